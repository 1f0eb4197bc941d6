"""How do the tests read a journal, and how do they crash a process?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure import EngineConfig, Entry, Registry, Site
from perdure.model.entry import entry_fid, entry_type, unpack
from perdure.ports.commands import Append
from perdure.projection import SqliteProjection
from perdure.runtime.engine import Engine
from perdure.testing import EngineUnderTest, ManualClock
from perdure.wiring import open_store

if TYPE_CHECKING:
    from perdure.ports.commands import Command, Transition
    from perdure.ports.store import Claimed, Committed, Store

SHORT = {
    "execution.started": "XS",
    "execution.suspended": "XU",
    "execution.resumed": "XR",
    "execution.completed": "XC",
    "execution.failed": "XF",
    "execution.cancelling": "XX?",
    "execution.cancelled": "XX",
    "execution.terminated": "XT",
    "execution.migrated": "XM",
    "execution.forked": "XK",
    "frame.started": "FS",
    "frame.completed": "FC",
    "frame.failed": "FF",
    "frame.suspended": "FU",
    "frame.fulfilled": "CL",
    "frame.abandoned": "FA",
}


def trace(entries: Sequence[Entry]) -> str:
    """Write a journal in one line: ``XS FS f#0/1 FC f#0 XU[timer] | XR(2,timer) …``."""
    return " ".join(_word(entry) for entry in entries)


def _word(entry: Entry) -> str:
    short = SHORT[entry.type]
    fid = entry.fid.removeprefix("root/")
    if short == "XU":
        return f"XU[{','.join(on.partition(':')[0] for on in entry.payload['on'])}]"
    if short == "XR":
        return f"| XR({entry.epoch},{entry.payload['reason']})"
    if short == "XF":
        return f"XF({entry.payload['error_type']})"
    if short in ("FS", "FF"):
        return f"{short} {fid}/{entry.attempt}"
    return short if entry.fid == "root" else f"{short} {fid}"


def appends(kind: str, fid: str = "root") -> Callable[[list[Command]], bool]:
    """Give a test of commands: whether they append an entry of this type to this frame."""

    def test(commands: list[Command]) -> bool:
        return any(
            (entry_type(entry), entry_fid(entry)) == (kind, fid)
            for command in commands
            if isinstance(command, Append)
            for entry in unpack(command.body)
        )

    return test


class Runs(Counter[str]):
    """Counts real runs of functions, outside the engine."""


class Crash(BaseException):
    """The process that called the store has died."""


class Link:
    """A store as one process sees it, until the process dies at a chosen write.

    Write number `crash_at` (commits and dequeues that claimed something, from 1) is applied, and
    the process dies before it learns of it; with `before` it dies before a commit is applied.
    """

    def __init__(self, store: Store, *, crash_at: int = 0, before: bool = False) -> None:
        self._store = store
        self._crash_at = crash_at
        self._before = before
        self.writes = 0
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def own_beat(self) -> None:
        """Tests beat when they want to."""

    async def commit(
        self, session: int, batch_no: int, transitions: Sequence[Transition]
    ) -> Committed:
        """Commit, unless the process dies here."""
        await self._die_before()
        committed = await self._store.commit(session, batch_no, transitions)
        await self._die_after()
        return committed

    async def transact(self, *args: Any) -> Any:
        """Make a transaction with a user's function, unless the process dies here."""
        await self._die_before()
        outcome = await self._store.transact(*args)
        await self._die_after()
        return outcome

    async def dequeue(self, *args: Any, **kept: Any) -> list[Claimed]:
        """Dequeue, unless the process dies here."""
        if self.dead.is_set():
            await asyncio.Future()
        claimed = await self._store.dequeue(*args, **kept)
        if claimed:
            self.writes += 1
            if self.writes == self._crash_at:
                self.dead.set()
                await asyncio.Future()
        return claimed

    async def close(self) -> None:
        """Leave the store open for the next process."""

    async def _die_before(self) -> None:
        if self.dead.is_set():
            await asyncio.Future()
        self.writes += 1
        if self._before and self.writes == self._crash_at:
            self.dead.set()
            await asyncio.Future()

    async def _die_after(self) -> None:
        if not self._before and self.writes == self._crash_at:
            self.dead.set()
            await asyncio.Future()


class Machine:
    """One store, and the processes that come and go on it."""

    def __init__(self, registry: Registry, store: Store, clock: ManualClock) -> None:
        self.registry = registry
        self.store = store
        self.clock = clock
        self.link = Link(store)
        self.under: EngineUnderTest | None = None

    @classmethod
    async def open(cls, registry: Registry, url: str) -> Machine:
        """Open the store of a machine."""
        clock = ManualClock()
        return cls(registry, await open_store(url), clock)

    async def boot(self, *, crash_at: int = 0, before: bool = False) -> EngineUnderTest:
        """Start a process: an engine with a worker, which dies at a chosen write."""
        self.link = Link(self.store, crash_at=crash_at, before=before)
        engine = Engine(
            self.link,
            self.registry,
            projection=SqliteProjection(self.link, None, self.clock),
            config=EngineConfig(drain=0),
            site=Site("host", 1),
            clock=self.clock,
        )
        self.under = EngineUnderTest(engine, self.clock, ("default",), 1000, 256)
        await self.under.start_worker()
        return self.under

    async def until_death(self, work: Any) -> bool:
        """Do `work` until it is done or the process has died; tell whether it died."""
        task = asyncio.ensure_future(work)
        death = asyncio.ensure_future(self.link.dead.wait())
        await asyncio.wait([task, death], return_when=asyncio.FIRST_COMPLETED)
        died = self.link.dead.is_set()
        for one in (task, death):
            one.cancel()
        await asyncio.gather(task, death, return_exceptions=True)
        if not died:
            task.result()
        return died

    async def bury(self) -> None:
        """Remove what is left of a process, without a write."""
        under, self.under = self.under, None
        if under is None:
            return
        self.link.dead.set()
        await under.kill_worker()
        await kill_engine(under.engine)


async def kill_engine(engine: Engine) -> None:
    """End the tasks of an engine without a write."""
    await engine._changes.stop()  # noqa: SLF001 - a crash has no public door
    task = engine.committer._task  # noqa: SLF001
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
    engine.alarms.close()
    await engine.projection.close()


async def trace_of(under: EngineUnderTest, eid: UUID) -> str:
    """Write the journal of an execution in one line."""
    return trace(await under.engine.journal(eid))


async def result_of(under: EngineUnderTest, eid: UUID) -> Any:
    """Give the result of an execution that has ended."""
    return (await under.engine.execution(eid)).result
