"""What does a worker keep of executions that it has suspended? Their coroutines, if they fit.

A kept execution that the same worker acquires next goes on without a replay. The journal stays the
authority: if anybody else has had the execution meanwhile, what was kept of it is thrown away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from perdure.runtime.runner import Runner


FRAMES_MAX = 100_000
"""How many frames all kept executions have at most: each holds a value, and about a kilobyte."""


class Kept:
    """The runners of suspended executions, those used last; the others are discarded.

    Attributes:
        epochs: under which epoch each was owned.
    """

    def __init__(self, size: int) -> None:
        """Keep at most `size`."""
        self._size = size
        self._runners: dict[UUID, Runner] = {}
        self._frames = 0
        self.epochs: dict[UUID, int] = {}

    def add(self, runner: Runner) -> None:
        """Keep a runner; those that were kept for longest may have to go."""
        self.discard(runner.eid)
        self._runners[runner.eid] = runner
        self._frames += runner.size
        self.epochs[runner.eid] = runner.epoch
        while len(self._runners) > self._size or self._frames > FRAMES_MAX:
            self.discard(next(iter(self._runners)))

    def take(self, eid: UUID) -> Runner | None:
        """Take a runner out, if it is kept."""
        self.epochs.pop(eid, None)
        runner = self._runners.pop(eid, None)
        if runner is not None:
            self._frames -= runner.size
        return runner

    def discard(self, eid: UUID) -> None:
        """Throw away what is kept of an execution, if anything is."""
        runner = self.take(eid)
        if runner is not None:
            runner.discard()

    def clear(self) -> None:
        """Throw everything away."""
        for eid in list(self._runners):
            self.discard(eid)
