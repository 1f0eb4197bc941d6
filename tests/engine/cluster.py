"""How do the tests run several processes on one store, and break what lies between them?

A process of these tests is an engine with a worker of its own on a shared store and clock. Its wire
to the store can be held, cut, or lose answers; the other processes notice nothing of it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from perdure import Context, EngineConfig, Entry, Registry, Site, StoreUnavailable
from perdure.projection import SqliteProjection
from perdure.runtime.engine import Engine
from perdure.testing import EngineUnderTest, ManualClock
from perdure.wiring import open_store
from tests.engine.support import Link, Runs, kill_engine

if TYPE_CHECKING:
    from perdure.ports.commands import Command, Transition
    from perdure.ports.store import Claimed, Committed, Store

MOMENT = timedelta(seconds=2)

Hook = Callable[[list["Command"]], Awaitable[None]]
Step = Callable[[], Coroutine[Any, Any, str]]
Doom = Callable[[list["Command"]], bool]


class Gate:
    """A step that waits inside until the test opens the gate."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self, value: Any = None) -> Any:
        self.entered.set()
        await self.opened.wait()
        return value


def gated(gate: Gate) -> Registry:
    """Give a workflow, ``gated``, whose one step waits at a gate and gives ``done``."""
    registry = Registry()

    @registry.workflow("gated", version="1")
    async def run(ctx: Context) -> Any:
        return await ctx.step(gate.wait, "done")

    return registry


def gated_steps(gate: Gate, runs: Runs) -> tuple[Step, Step]:
    """Give two steps that count their runs, ``first``, which waits at a gate, and ``second``."""

    async def first() -> str:
        runs["first"] += 1
        return str(await gate.wait("one"))

    async def second() -> str:
        runs["second"] += 1
        return "two"

    return first, second


class Wire(Link):
    """A store as one process sees it, with faults that the test switches on and off.

    Attributes:
        down: every call raises `StoreUnavailable`, and nothing is applied.
        answers_lost: so many further commits are applied, and their answers lost.
        down_after_loss: the wire goes down with the answer that is lost.
        dequeues_lost: so many further dequeues are applied, and their answers lost.
        passing: while it is clear, every call waits: the process is paused.
        before_commit: is awaited with the commands of each commit before it is applied.
        doom: the process dies at the commit of which this says so, before it is applied or
            (with `doom_after`) right after.
        after: is awaited between an answer of the store and its arrival, by method; of a dequeue
            only if it has found something.
        applied: the commands of all commits that went through.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.down = False
        self.answers_lost = 0
        self.down_after_loss = False
        self.dequeues_lost = 0
        self.passing = asyncio.Event()
        self.passing.set()
        self.before_commit: Hook | None = None
        self.doom: Doom | None = None
        self.doom_after = False
        self.after: dict[str, Callable[[], Awaitable[None]]] = {}
        self.applied: list[Command] = []

    def __getattr__(self, name: str) -> Any:
        method = super().__getattr__(name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any) -> Any:
            await self._pass()
            answer = await method(*args)
            if name in self.after:
                await self.after[name]()
            return answer

        return call

    async def commit(
        self, session: int, batch_no: int, transitions: Sequence[Transition]
    ) -> Committed:
        await self._pass()
        commands = [command for transition in transitions for command in transition.commands]
        if self.before_commit is not None:
            await self.before_commit(commands)
            await self._pass()
        doomed = self.doom is not None and self.doom(commands)
        if doomed and not self.doom_after:
            await self._die()
        committed = await super().commit(session, batch_no, transitions)
        self.applied += commands
        if doomed:
            await self._die()
        if self.answers_lost and commands:
            self.answers_lost -= 1
            self.down = self.down_after_loss
            raise StoreUnavailable("the connection broke before the answer came")
        return committed

    async def dequeue(self, *args: Any, **kept: Any) -> list[Claimed]:
        await self._pass()
        claimed = await super().dequeue(*args, **kept)
        if claimed and "dequeue" in self.after:
            await self.after["dequeue"]()
        if self.dequeues_lost and claimed:
            self.dequeues_lost -= 1
            raise StoreUnavailable("the connection broke before the answer came")
        return claimed

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Future()

    async def _pass(self) -> None:
        await self.passing.wait()
        if self.down:
            raise StoreUnavailable("the test has cut the wire")


class Process(EngineUnderTest):
    """An engine with a worker on a wire of its own."""

    def __init__(
        self, registry: Registry, store: Store, clock: ManualClock, number: int, **settings: Any
    ) -> None:
        self.wire = Wire(store)
        engine = Engine(
            cast("Store", self.wire),
            registry,
            projection=SqliteProjection(cast("Store", self.wire), None, clock),
            config=settings.get("config") or EngineConfig(drain=0),
            site=Site("host", number),
            clock=clock,
        )
        super().__init__(
            engine,
            clock,
            settings.get("queues", ("default",)),
            settings.get("max_executions", 1_000),
            settings.get("max_steps", 256),
        )

    async def run_to_death(self, doom: Doom, *, after: bool) -> None:
        """Run until a commit of which `doom` says so; die before it, or right after it."""
        self.wire.doom, self.wire.doom_after = doom, after
        async with running(self):
            await self.wire.dead.wait()
        await self.die()

    async def die(self) -> None:
        """End the process without another write."""
        self.wire.dead.set()
        await self.kill_worker()
        await kill_engine(self.engine)


class Cluster:
    """One store, one clock, and the processes that run on them."""

    def __init__(self, registry: Registry, store: Store, clock: ManualClock) -> None:
        self.registry = registry
        self.store = store
        self.clock = clock
        self.processes: list[Process] = []

    async def boot(self, *, worker: bool = True, **settings: Any) -> Process:
        """Start a process; it has a worker that runs when it is told."""
        registry = settings.pop("registry", self.registry)
        number = len(self.processes) + 1
        process = Process(registry, self.store, self.clock, number, **settings)
        self.processes.append(process)
        if worker:
            await process.start_worker()
        return process

    async def close(self) -> None:
        """End every process and close the store."""
        for process in self.processes:
            await process.die()
        await self.store.close()


@asynccontextmanager
async def cluster(registry: Registry, url: str) -> AsyncIterator[Cluster]:
    """Open a store for several processes."""
    clock = ManualClock()
    opened = Cluster(registry, await open_store(url), clock)
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def running(process: EngineUnderTest) -> AsyncIterator[asyncio.Task[None]]:
    """Let a process run beside the test, until it is idle."""
    async with asyncio.TaskGroup() as group:  # should the task fail, the test does not wait for it
        task = group.create_task(process.run_until_idle())
        try:
            yield task
        finally:
            task.cancel()


async def turns(number: int = 20) -> None:
    """Let the event loop turn a few times."""
    for _ in range(number):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until something holds that nobody tells."""
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


@asynccontextmanager
async def retrying(clock: ManualClock) -> AsyncIterator[None]:
    """Let what waits a moment for the store try again: move the clock to such moments."""

    async def move() -> None:
        while True:
            await asyncio.sleep(0)
            due = clock.next_due()
            if due is not None and due - clock.now() <= MOMENT:
                clock.advance(due - clock.now())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(move())
        try:
            yield
        finally:
            task.cancel()


async def entry_of(engine: Engine, eid: UUID, kind: str, fid: str = "root") -> Entry:
    """Wait until the journal of an execution holds an entry, and give it."""
    async for entry in engine.watch(eid):
        if entry.type == kind and entry.fid == fid:
            return entry
    raise AssertionError(f"{eid} has ended without {kind} of {fid}")


def holds(commands: list[Command], kind: type, eid: UUID | None = None) -> bool:
    """Tell whether a command of a kind (for one execution) is among some."""
    return any(
        isinstance(command, kind) and eid in (None, getattr(command, "eid", None))
        for command in commands
    )


async def nothing_left(store: Store) -> bool:
    """Tell whether neither task nor timer is left in a store."""
    info = await store.info()
    return (info.ready_tasks, info.delayed_tasks, info.timers) == (0, 0, 0)
