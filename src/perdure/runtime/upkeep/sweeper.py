"""Who wakes what sleeps and recovers what died? The sweeper, at least every second, on any worker.

It fires due timers of suspended executions, promotes delayed tasks, terminates executions that have
taken too long, and expires sessions and leases of tasks whose beat or renewal it has watched stand
still for a whole time to live, by its own clock. Every pass is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.ports.clock import Clock, now_us
from perdure.ports.commands import (
    Command,
    Done,
    ExpireSession,
    ExpireTask,
    FireTimers,
    RepairPending,
)
from perdure.ports.store import Store
from perdure.runtime.committer import Committer
from perdure.runtime.upkeep.service import Service

INTERVAL_S = 1.0
LIMIT = 1_000


class Watch:
    """Watches beats by its own clock: nobody compares another machine's instant with its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[int, ...], tuple[int, float, float]] = {}

    def still(
        self, beating: Iterable[tuple[tuple[int, ...], int, float]]
    ) -> list[tuple[tuple[int, ...], int]]:
        """Look at all that beats: what it is, its last beat, and its time to live in seconds.

        Returns:
            What has stood still for its whole time to live, with its beat.
        """
        still: list[tuple[tuple[int, ...], int]] = []
        watched: dict[tuple[int, ...], tuple[int, float, float]] = {}
        now = self._clock.monotonic()
        for what, beat, ttl in beating:
            before = self._seen.get(what)
            since = before[1] if before is not None and before[0] == beat else now
            if now - since >= ttl:
                still.append((what, beat))
            else:
                watched[what] = (beat, since, ttl)
        self._seen = watched
        return still

    def next_expiry(self, besides: int | None = None) -> float | None:
        """Give the earliest instant of the monotonic clock at which something may expire."""
        watched = (seen for what, seen in self._seen.items() if what != (besides,))
        return min((since + ttl for _, since, ttl in watched), default=None)


class Sweeper(Service):
    """Fires timers, promotes delayed tasks and recovers executions of dead workers."""

    def __init__(self, store: Store, committer: Committer, clock: Clock) -> None:
        """Prepare a sweeper; any number of them may run on one store."""
        super().__init__(clock)
        self._store = store
        self._committer = committer
        self._sessions = Watch(clock)
        self._leases = Watch(clock)
        self._repaired = False
        self._due: int | None = None  # what the last pass found to be due next
        self._expected: int | None = None  # the first of the timers that were set since

    async def run_once(self) -> int:
        """Make one pass.

        Returns:
            How many executions were woken or recovered and tasks promoted.
        """
        done = await self._expire()
        if not self._repaired:
            done += await self._repeat(RepairPending(self._now(), LIMIT), LIMIT)
            self._repaired = True
        self._expected = None
        self._due = await self._store.next_due()
        if self._due is not None and self._due <= self._now():
            done += await self._repeat(FireTimers(self._now(), LIMIT), LIMIT)
            self._due = await self._store.next_due()
        return done

    async def pause(self) -> float:
        """Wait a second, or less if a timer is due before."""
        dues = [due for due in (self._due, self._expected) if due is not None]
        if not dues:
            return INTERVAL_S
        return min(max((min(dues) - self._now()) / 1e6, 0.001), INTERVAL_S)

    def expect(self, due: int) -> None:
        """Take notice of a timer that was set, so that it does not wait for the next pass."""
        if all(known is None or due < known for known in (self._due, self._expected)):
            self._expected = due
            self.hurry()

    def next_expiry(self, *, besides: int) -> float | None:
        """Give the earliest instant of the monotonic clock at which another session may expire."""
        expiries = (self._sessions.next_expiry(besides), self._leases.next_expiry())
        return min((at for at in expiries if at is not None), default=None)

    async def _expire(self) -> int:
        """Expire what was watched for long enough; count the executions and tasks recovered."""
        recovered = 0
        sessions = [((s.session,), s.beat, s.ttl) for s in await self._store.sessions()]
        for (session,), beat in self._sessions.still(sessions):
            recovered += _count(await self._apply(ExpireSession(session, beat, self._now())))
        leases = [((w.task, w.epoch), w.renewal, w.ttl) for w in await self._store.leases()]
        for (task, epoch), renewal in self._leases.still(leases):
            recovered += _count(await self._apply(ExpireTask(task, epoch, renewal, self._now())))
        return recovered

    async def _repeat(self, command: Command, limit: int) -> int:
        total = 0
        while True:
            count = _count(await self._apply(command))
            total += count
            if count < limit:
                return total

    async def _apply(self, command: Command) -> object:
        outcome = await self._committer.apply(command)
        return outcome.results[0] if isinstance(outcome, Done) else 0

    def _now(self) -> int:
        return now_us(self._clock)


def _count(result: object) -> int:
    return result if isinstance(result, int) else 0
