"""The projection that the engine gives: it applies the log, then reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from sqlite3 import Connection
from typing import TypeVar
from uuid import UUID

from perdure.errors import StoreUnavailable
from perdure.model.execution import Page
from perdure.model.ids import parse_eid
from perdure.model.instants import to_us
from perdure.ports.clock import Clock
from perdure.ports.projection import (
    Announcement,
    EnqueuedTask,
    ExecutionSummary,
    Review,
    ReviewStatus,
)
from perdure.ports.store import ControlEntry, Reads
from perdure.projection import asking, reads
from perdure.projection.applying import Progress, apply, forget, progress
from perdure.projection.asking import Statuses
from perdure.projection.file import Database

T = TypeVar("T")

PAGE = 1_000
POLL_S = 0.02


class SqliteProjection:
    """A projection in a SQLite file of its own, which processes may share, or in memory."""

    def __init__(self, store: Reads, path: str | None, clock: Clock) -> None:
        """Prepare one; nothing is opened before it is used.

        Args:
            store: the store whose control log it shows.
            path: an absolute path, or ``None`` for memory.
            clock: what `wait_for` waits by.
        """
        self._store = store
        self._clock = clock
        self._database = Database(path)
        # One thread, so that the connection is used by one at a time.
        self._thread = None if path is None else ThreadPoolExecutor(1, "perdure-projection")
        self._applying = asyncio.Lock()
        self._closed = False

    async def close(self) -> None:
        """Close it. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            self._database.close()
        else:
            self._thread.submit(self._database.close)
            await asyncio.to_thread(self._thread.shutdown)

    async def _do(self, work: Callable[[Connection], T], *, write: bool = False) -> T:
        if self._closed:
            message = "the projection was closed with its engine; open an engine again"
            raise StoreUnavailable(message)
        do = partial(self._database.run, work, write=write)
        if self._thread is None:
            return do()
        return await asyncio.get_running_loop().run_in_executor(self._thread, do)

    # -- applying the log --------------------------------------------------------------------

    async def refresh(self) -> int:
        """Apply the control log to its end, and give the position of its last entry."""
        async with self._applying:
            known = await self._do(progress)
            while True:
                # The last entry that is known is read again, to see that it is the same log.
                entries = await self._store.control(max(known.position - 1, 0), PAGE)
                if _is_other_log(known, entries):
                    known = await self._do(partial(forget, before=known), write=True)
                    continue
                new = [entry for entry in entries if entry.position > known.position]
                if not new:
                    return known.position
                work = partial(apply, before=known, entries=new)
                known = await self._do(work, write=True)
                if len(entries) < PAGE and known.position >= new[-1].position:
                    return known.position

    async def wait_for(self, position: int, *, timeout: float = 2.0) -> bool:
        """Wait until the log is applied up to a position, at most `timeout` seconds."""
        asking.position("position", position)
        give_up = self._clock.monotonic() + timeout
        while await self.refresh() < position:
            left = give_up - self._clock.monotonic()
            if left <= 0:
                return False
            await self._clock.sleep(min(POLL_S, left))
        return True

    async def rebuild(self) -> None:
        """Forget everything, and apply the log from its beginning."""
        async with self._applying:
            known = await self._do(progress)
            await self._do(partial(forget, before=known), write=True)
        await self.refresh()

    async def _read(self, read: Callable[[Connection], T]) -> T:
        """Apply what is new, and read; again if the file was made anew in between."""
        while True:
            position = await self.refresh()
            found, seen = await self._do(
                lambda connection: (read(connection), progress(connection))
            )
            if seen.position >= position:
                return found

    # -- reading -----------------------------------------------------------------------------

    async def executions(
        self,
        *,
        status: Statuses | None = None,
        workflow: str | None = None,
        parent: UUID | str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ExecutionSummary]:
        """List executions, by their last change, the latest first."""
        last_at, last_eid = asking.place(cursor)
        values = {
            "status": asking.statuses(status),
            "workflow": asking.text("workflow", workflow),
            "parent": asking.eid_bytes(parent),
            "text": asking.text("text", text),
            "since": None if since is None else to_us(since, "since"),
            "until": None if until is None else to_us(until, "until"),
            "last_at": last_at,
            "last_eid": last_eid,
            "limit": asking.limit(limit),
        }
        return await self._read(partial(reads.executions, values=values))

    async def counts(self) -> dict[str, int]:
        """Count the executions by status."""
        return await self._read(reads.counts)

    async def reviews(
        self,
        *,
        queue: str | None = None,
        status: ReviewStatus | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Review]:
        """List reviews, oldest first."""
        values = {
            "queue": asking.text("queue", queue),
            "status": asking.review_status(status),
            "after": asking.place_in_log(cursor),
            "limit": asking.limit(limit),
        }
        return await self._read(partial(reads.reviews, values=values))

    async def review(self, rid: str) -> Review | None:
        """Read one review."""
        values = {"rid": asking.text("rid", rid), "limit": 1}
        page = await self._read(partial(reads.reviews, values=values))
        return page.items[0] if page.items else None

    async def announcements(
        self,
        *,
        type: str | None = None,  # noqa: A002 - what it is called everywhere
        eid: UUID | str | None = None,
        after: int = 0,
        limit: int = 50,
    ) -> list[Announcement]:
        """List what functions announced, oldest first."""
        values = {
            "type": asking.text("type", type),
            "eid": asking.eid_bytes(eid),
            "after": asking.position("after", after),
            "limit": asking.limit(limit),
        }
        return await self._read(partial(reads.announcements, values=values))

    async def tasks(self, eid: UUID | str) -> list[EnqueuedTask]:
        """List the tasks that an execution enqueued, oldest first."""
        return await self._read(partial(reads.tasks, eid=parse_eid(eid).bytes))

    async def children(self, eid: UUID | str) -> list[ExecutionSummary]:
        """List the executions that an execution started, oldest first."""
        return await self._read(partial(reads.children, eid=parse_eid(eid).bytes))


def _is_other_log(known: Progress, entries: list[ControlEntry]) -> bool:
    """Tell whether a log cannot be the one that was applied: the store was replaced.

    That the last known entry is gone proves nothing if later ones are there: old ones may be.
    """
    if known.position == 0:
        return False
    if not entries:
        return True
    first = entries[0]
    same = (first.eid.bytes, first.at) == known[1:]
    return first.position == known.position and not same
