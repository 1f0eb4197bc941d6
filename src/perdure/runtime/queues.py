"""What is on a queue? Its tasks, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.ids import QUEUE, check_name
from perdure.runtime import requests

if TYPE_CHECKING:
    from perdure.model.queue_task import QueueDepth, QueueTask
    from perdure.runtime.engine import Engine


class Queues:
    """The queues of a store; ``engine.queues``."""

    def __init__(self, engine: Engine) -> None:
        """Look at the queues of one engine's store."""
        self._engine = engine

    async def pending(self, name: str, *, limit: int = 100) -> list[QueueTask]:
        """List the tasks of a queue, ready, delayed and leased, in the order they are taken.

        Args:
            name: the queue; one that nobody has used yet is empty.
            limit: list at most so many.

        Raises:
            InvalidName: if no queue can be called so.
            InvalidArgument: if the limit is out of range.

        Example:
            ``for task in await engine.queues.pending("agents"): print(task.task_id, task.state)``
        """
        queue = check_name("queue", name, QUEUE)
        requests.check_limit(limit)
        return await self._engine.store.queue_tasks(queue, limit)

    async def depth(self, name: str) -> QueueDepth:
        """Count the tasks of a queue: ready, delayed and leased.

        Args:
            name: the queue; one that nobody has used yet is empty.

        Raises:
            InvalidName: if no queue can be called so.
        """
        return await self._engine.store.queue_depth(check_name("queue", name, QUEUE))
