"""Which ready step runs next? The one of the best priority, then the one that waited longest."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Start = Callable[[Any], bool]


class Slots:
    """A bounded number of places for attempts. Not thread-safe: it lives on the event loop."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._order = 0
        self._granting = False
        self._waiting: list[tuple[int, int, Start, Any]] = []

    @property
    def free(self) -> int:
        """How many places are free and nobody waits for."""
        return max(self._free - len(self._waiting), 0)

    def request(self, priority: int, start: Start, what: object) -> None:
        """Call `start` with `what` when a place is free, at once if one is.

        `start` returns whether it took the place; one that does must `release` it.
        """
        if self._free and not self._waiting:
            self._grant(start, what)
            return
        self._order += 1
        heapq.heappush(self._waiting, (priority, self._order, start, what))

    def release(self) -> None:
        """Give a place back."""
        self._free += 1
        if self._granting:  # an attempt that ended at once, below the loop that started it
            return
        self._granting = True
        try:
            while self._free and self._waiting:
                _, _, start, what = heapq.heappop(self._waiting)
                self._grant(start, what)
        finally:
            self._granting = False

    def _grant(self, start: Start, what: object) -> None:
        self._free -= 1
        if not start(what):
            self._free += 1
