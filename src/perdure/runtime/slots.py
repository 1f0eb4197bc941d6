"""Which ready step runs next? The one of the best priority, then the one that waited longest."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Start = Callable[[], bool]


class Slots:
    """A bounded number of places for attempts. Not thread-safe: it lives on the event loop."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._order = 0
        self._granting = False
        self._waiting: list[tuple[int, int, Start]] = []

    def request(self, priority: int, start: Start) -> None:
        """Call `start` when a place is free, at once if one is.

        `start` returns whether it took the place; one that does must `release` it.
        """
        if self._free and not self._waiting:
            self._grant(start)
            return
        self._order += 1
        heapq.heappush(self._waiting, (priority, self._order, start))

    def release(self) -> None:
        """Give a place back."""
        self._free += 1
        if self._granting:  # an attempt that ended at once, below the loop that started it
            return
        self._granting = True
        try:
            while self._free and self._waiting:
                self._grant(heapq.heappop(self._waiting)[2])
        finally:
            self._granting = False

    def _grant(self, start: Start) -> None:
        self._free -= 1
        if not start():
            self._free += 1
