"""How is one execution started for each tick of a schedule, however many ask? By its key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from perdure import Actor, Engine, InvalidArgument
from perdure.model.ids import WORKFLOW, check_name


async def on_tick(
    engine: Engine,
    workflow: Callable[..., Any] | str,
    schedule: str,
    tick: datetime,
    *args: Any,
    queue: str | None = None,
    **kwargs: Any,
) -> UUID:
    """Start the execution of one tick of a schedule, unless it was started before.

    Whoever notices the tick may call it, from any number of processes: the dispatch key
    ``tick:{schedule}:{tick}`` makes all of them mean one execution.

    Args:
        engine: the engine.
        workflow: the registered function, or the name of a workflow.
        schedule: the name of the schedule; letters, digits, ``_ . -``.
        tick: the instant of the tick, an aware datetime.
        *args: the function's arguments, without the context.
        queue: the queue it stands on, if not the workflow's own.
        **kwargs: the function's keyword arguments.

    Returns:
        The id of the execution.

    Raises:
        InvalidName: if the schedule's name is out of its grammar.
        InvalidArgument: if the tick is no aware datetime.

    Example:
        ``await on_tick(engine, nightly, "nightly", midnight)``
    """
    check_name("schedule", schedule, WORKFLOW)
    if not isinstance(tick, datetime) or tick.tzinfo is None:
        message = f"tick is {tick!r}; it is a datetime with a time zone"
        raise InvalidArgument(message)
    instant = tick.astimezone(UTC).isoformat().replace("+00:00", "Z")
    key, by = f"tick:{schedule}:{instant}", Actor.schedule(schedule)
    return await engine.start(workflow, *args, key=key, queue=queue, by=by, **kwargs)
