"""What if time only moves when a test says so? A clock for tests."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

from perdure.errors import InvalidArgument


class ManualClock:
    """A clock that stands still until `advance`.

    Example:
        ``clock = ManualClock()`` then ``perdure.open("memory:", registry, clock=clock)``
    """

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        """Make a clock that shows `start`, an aware instant."""
        if start.tzinfo is None:
            message = f"start is {start!r}; give an aware datetime"
            raise InvalidArgument(message)
        self._start = start
        self._elapsed = timedelta(0)
        self._order = itertools.count()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Give the instant that the clock shows."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Give the seconds by which the clock was advanced."""
        return self._elapsed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was advanced by `seconds`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due = self._elapsed + timedelta(seconds=max(seconds, 0.0))
        if due <= self._elapsed:
            future.set_result(None)
        else:
            heapq.heappush(self._sleepers, (due, next(self._order), future))
        await future

    def advance(self, duration: timedelta | float) -> None:
        """Move the clock by a timedelta or seconds; what sleeps until then wakes, in order.

        The sleepers run when the event loop does next.
        """
        step = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        if step < timedelta(0):
            message = f"a clock cannot go back by {step!r}"
            raise InvalidArgument(message)
        self._elapsed += step
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    def next_due(self) -> datetime | None:
        """Give the earliest instant at which something that sleeps wakes, or ``None``."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._start + self._sleepers[0][0] if self._sleepers else None
