"""What does one execution wait for? Its waiting frames, found by channel or by due instant."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from perdure.runtime.frames import Frame


class Waits:
    """The frames of one owned execution that wait.

    Attributes:
        frames: those that wait, by their ids.
        unmarked: those whose ``frame.suspended`` is not in the journal.
    """

    def __init__(self) -> None:
        self.frames: dict[str, Frame[Any]] = {}
        self._channels: dict[str, dict[str, Frame[Any]]] = {}
        self._global: dict[str, None] = {}
        self._dues: list[tuple[int, int, Frame[Any]]] = []
        self.unmarked: dict[str, Frame[Any]] = {}

    def __contains__(self, frame: Frame[Any]) -> bool:
        """Whether this frame waits."""
        return frame.fid in self.frames

    def add(self, frame: Frame[Any]) -> None:
        """Let a frame wait for what it names: its channel, its deadline, or both."""
        self.frames[frame.fid] = frame
        if frame.channel:
            self._channels.setdefault(frame.channel, {})[frame.fid] = frame
            if frame.channel == frame.on:
                self._global[frame.channel] = None
        if frame.deadline is not None:
            heapq.heappush(self._dues, (frame.deadline, frame.index, frame))
        if frame.suspended != frame.on:
            self.unmarked[frame.fid] = frame

    def remove(self, frame: Frame[Any]) -> None:
        """Let a frame wait no more. One that does not is fine."""
        if self.frames.pop(frame.fid, None) is None:
            return
        self.unmarked.pop(frame.fid, None)
        waiting = self._channels.get(frame.channel, {})
        waiting.pop(frame.fid, None)
        if not waiting:
            self._channels.pop(frame.channel, None)
            self._global.pop(frame.channel, None)

    def mark(self) -> None:
        """The journal says now of every frame what it waits on."""
        for frame in self.unmarked.values():
            frame.suspended = frame.on
        self.unmarked = {}

    def _counts(self, due: tuple[int, int, Frame[Any]]) -> bool:
        """Whether the frame of a due instant still waits for it."""
        deadline, _, frame = due
        return frame.fid in self.frames and frame.deadline == deadline

    def next_due(self, held: Callable[[Frame[Any]], bool]) -> int | None:
        """Give the earliest due instant, in microseconds, of a frame that is not held."""
        while self._dues and not self._counts(self._dues[0]):
            heapq.heappop(self._dues)
        if not self._dues or not held(self._dues[0][2]):
            return self._dues[0][0] if self._dues else None
        waiting = (f for f in self.frames.values() if f.deadline is not None and not held(f))
        return min((frame.deadline or 0 for frame in waiting), default=None)

    @property
    def global_channels(self) -> list[str]:
        """The keys of the global channels that frames wait on."""
        return list(self._global)

    def ready(self, mail: Iterable[tuple[str, int]], now: int) -> list[Frame[Any]]:
        """Give the frames that can be served, in the order of their calls.

        Args:
            mail: the channels with unread messages, and how many each has.
            now: the instant, in microseconds.
        """
        found: dict[int, Frame[Any]] = {}
        for channel, count in mail:
            for frame in islice(self._channels.get(channel, {}).values(), count):
                found[frame.index] = frame
        due: list[tuple[int, int, Frame[Any]]] = []
        while self._dues and self._dues[0][0] <= now:
            due.append(heapq.heappop(self._dues))
        for one in due:
            if self._counts(one):
                found[one[1]] = one[2]
                heapq.heappush(self._dues, one)  # until it was served and is removed
        return [found[index] for index in sorted(found)]

    def first(self, limit: int) -> list[Frame[Any]]:
        """Give at most `limit` frames, in the order of their calls."""
        return heapq.nsmallest(limit, self.frames.values(), key=lambda frame: frame.index)

    def earliest(self, limit: int) -> list[Frame[Any]]:
        """Give at most `limit` frames with a due instant, in the order of these."""
        waiting = filter(self._counts, self._dues)
        return [frame for _, _, frame in heapq.nsmallest(limit, waiting, key=lambda due: due[:2])]
