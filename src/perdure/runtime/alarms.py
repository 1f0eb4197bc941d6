"""What is due on this process's own clock? Callbacks at instants, for owned executions.

Timeouts of attempts and waits of executions that still run other frames ring here. Waits of
suspended executions are rows in the store, and the sweeper's.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from perdure.ports.clock import Clock


class Alarm:
    """One callback at one instant."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never call it."""
        self.callback = None


class Alarms:
    """Rings alarms in the order of their instants; one sleep of the clock at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._wakes_at = float("inf")

    def after(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` when `seconds` have passed."""
        alarm = Alarm(callback)
        due = self._clock.monotonic() + max(seconds, 0.0)
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, alarm))
        if due < self._wakes_at:
            self._sleep_until(due)
        return alarm

    def close(self) -> None:
        """Ring no more."""
        self._heap.clear()
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None

    def _sleep_until(self, due: float) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
        self._wakes_at = due
        self._sleeper = asyncio.get_running_loop().create_task(self._sleep(due))

    async def _sleep(self, due: float) -> None:
        await self._clock.sleep(max(due - self._clock.monotonic(), 0.0))
        self._sleeper = None
        self._wakes_at = float("inf")
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            callback = heapq.heappop(self._heap)[2].callback
            if callback is not None:
                callback()
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        if self._heap and self._heap[0][0] < self._wakes_at:
            self._sleep_until(self._heap[0][0])
