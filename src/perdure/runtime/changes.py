"""Who waits for something to change? Readers, workers and callers that wait for an end.

Within the process a commit tells at once. What other processes write is seen by asking the store
whether anything changed: every 20 ms, and every 60 ms when nothing has changed for 2 seconds, since
most of the cost is to wake up at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

from perdure.errors import StoreUnavailable
from perdure.model.execution import ExecutionRow
from perdure.ports.clock import Clock
from perdure.ports.store import Store
from perdure.runtime.trouble import Trouble

POLL_S = 0.02
QUIET_POLLS = 100
QUIET_POLL_S = 0.06
RETRY_S = 0.5

End = asyncio.Future[ExecutionRow | None]

log = logging.getLogger("perdure.changes")


class Changes:
    """Tells those who wait that something was written."""

    def __init__(
        self, store: Store, clock: Clock, look_around: Callable[[], Awaitable[None]]
    ) -> None:
        """Prepare it; `look_around` is awaited when another process may have written."""
        self._store = store
        self._clock = clock
        self._look_around = look_around
        self._any: list[asyncio.Future[None]] = []
        self._ends: dict[UUID, list[End]] = {}
        self._unchecked: set[UUID] = set()
        self._checker: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask the store for changes by others. Starting twice is fine."""
        if self._poller is None and self._store.shared:
            self._poller = asyncio.get_running_loop().create_task(
                self._poll(), name="perdure-changes"
            )

    async def stop(self) -> None:
        """Ask no more, and end every wait."""
        tasks = [task for task in (self._poller, self._checker) if task is not None]
        self._poller = self._checker = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        waiting: list[list[asyncio.Future[Any]]] = [self._any, *self._ends.values()]
        for futures in waiting:
            for future in futures:
                if not future.done():
                    future.set_exception(StoreUnavailable("the engine was closed meanwhile"))
                    future.exception()  # some of them may have lost their reader

    def fire(self, closed: Iterable[UUID] = ()) -> None:
        """Something was written; the executions in `closed` have ended."""
        if self._any:
            waiting, self._any = self._any, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        if self._ends:
            self._check_soon(eid for eid in closed if eid in self._ends)

    def next(self) -> asyncio.Future[None]:
        """Give a future that is done when something is written after this call."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._any.append(future)
        return future

    def end(self, eid: UUID) -> asyncio.Future[ExecutionRow | None]:
        """Give a future of the execution when it has ended; ``None`` if it does not exist."""
        future: End = asyncio.get_running_loop().create_future()
        self._ends.setdefault(eid, []).append(future)
        self._check_soon((eid,))  # its end may lie in the past
        return future

    def forget(self, eid: UUID, future: End) -> None:
        """Stop waiting with a future that `end` gave."""
        waiting = self._ends.get(eid, [])
        if future in waiting:
            waiting.remove(future)
        if not waiting:
            self._ends.pop(eid, None)

    def _check_soon(self, eids: Iterable[UUID]) -> None:
        """Ask the store about ends; what this turn of the loop brings is asked together."""
        self._unchecked.update(eids)
        if self._unchecked and self._checker is None:
            self._checker = asyncio.get_running_loop().create_task(self._check())

    async def _check(self) -> None:
        while self._unchecked:
            eids, self._unchecked = list(self._unchecked), set()
            await self._check_ends(eids)
        self._checker = None

    async def _check_ends(self, eids: list[UUID]) -> None:
        while eids:
            try:
                ended = await self._store.ended(eids)
            except StoreUnavailable:
                await self._clock.sleep(RETRY_S)
            else:
                for eid, row in ended.items():
                    for future in self._ends.pop(eid, ()):
                        if not future.done():
                            future.set_result(row)
                return

    async def _poll(self) -> None:
        trouble = Trouble(log)
        quiet = 0
        while True:
            try:
                quiet += 1
                if await self._store.changed():
                    quiet = 0
                    self.fire()
                    await self._check_ends(list(self._ends))
                    await self._look_around()
                pause = POLL_S if quiet < QUIET_POLLS else QUIET_POLL_S
            except StoreUnavailable as error:
                trouble.tell(error)
                pause = RETRY_S
            else:
                trouble.over()
            # Real seconds on any clock: other processes do not wait for this one's clock to move.
            await asyncio.sleep(pause)
