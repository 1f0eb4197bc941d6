"""How is a workflow tested? In memory, on a clock that stands still; nothing runs by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from perdure.errors import InvalidArgument
from perdure.model.instants import from_us
from perdure.runtime.config import EngineConfig
from perdure.runtime.engine import Engine
from perdure.runtime.registry import Registry
from perdure.runtime.upkeep.sweeper import Sweeper
from perdure.runtime.worker import Worker
from perdure.testing.clock import ManualClock
from perdure.wiring import open as open_engine

TURNS = 4


class EngineUnderTest:
    """An engine whose worker and clock a test moves.

    Attributes:
        engine: the engine.
        clock: its clock.
        worker: the worker that runs now, or ``None`` after `kill_worker`.
    """

    def __init__(
        self,
        engine: Engine,
        clock: ManualClock,
        queues: Sequence[str],
        max_executions: int,
        max_steps: int,
    ) -> None:
        """Wrap an engine; `engine_under_test` does that."""
        self.engine = engine
        self.clock = clock
        self.worker: Worker | None = None
        self._queues = queues
        self._max_executions = max_executions
        self._max_steps = max_steps
        self._sweeper = Sweeper(engine.store, engine.committer, clock)

    async def start_worker(self) -> Worker:
        """Open a session for a worker that runs when it is told.

        Raises:
            InvalidArgument: if one runs already.
        """
        if self.worker is not None:
            message = "a worker runs already; kill it before another one is started"
            raise InvalidArgument(message)
        self.worker = Worker(
            self.engine,
            queues=self._queues,
            max_executions=self._max_executions,
            max_steps=self._max_steps,
            upkeep=True,
            worker_id=None,
            background=False,
        )
        await self.worker.__aenter__()
        return self.worker

    async def kill_worker(self) -> None:
        """Stop the worker without a write, as a crash would: its session is left to expire."""
        if self.worker is not None:
            worker, self.worker = self.worker, None
            await worker.kill()

    async def run_until_idle(self) -> None:
        """Run until no task that the worker knows is ready and nothing that it owns moves."""
        await self._let_loop_turn()
        if self.worker is None:
            await self.engine.committer.idle()
        else:
            await self.worker.run_until_idle()

    async def sweep(self) -> int:
        """Make one pass of the sweeper, and tell how much it did."""
        return await self._sweeper.run_once()

    async def advance(self, duration: timedelta | float) -> None:
        """Move the clock from one due instant to the next, and run until idle at each.

        Args:
            duration: a timedelta or seconds.
        """
        step = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        target = self.clock.now() + step
        await self._tick()
        while (due := await self._next_due(target)) is not None:
            self.clock.advance(due - self.clock.now())
            await self._tick()
        self.clock.advance(target - self.clock.now())
        await self._tick()

    async def _tick(self) -> None:
        if self.worker is not None:
            await self.worker.beat_once()
        await self.sweep()
        await self.run_until_idle()

    async def _next_due(self, target: datetime) -> datetime | None:
        """Give the next instant, after now and before `target`, at which something is due."""
        now = self.clock.now()
        instants = [self.clock.next_due()]
        stored = await self.engine.store.next_due()
        instants.append(None if stored is None else from_us(stored))
        # Our own worker beats at every stop, so its session never expires.
        own = 0 if self.worker is None else self.worker.session
        expiry = self._sweeper.next_expiry(besides=own)
        if expiry is not None:
            instants.append(now + timedelta(seconds=expiry - self.clock.monotonic()))
        return min((at for at in instants if at is not None and now < at < target), default=None)

    async def _let_loop_turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)


@asynccontextmanager
async def engine_under_test(
    registry: Registry,
    *,
    url: str = "memory:",
    clock: ManualClock | None = None,
    config: EngineConfig | None = None,
    queues: Sequence[str] = ("default",),
    max_executions: int = 1_000,
    max_steps: int = 256,
) -> AsyncIterator[EngineUnderTest]:
    """Open an engine with one worker for a test. Nothing runs by itself.

    Work happens in ``run_until_idle`` and ``advance``; then the test looks at what came of it.

    Args:
        registry: the workflows under test.
        url: the store; in memory by default.
        clock: the clock; one that begins in 2030 by default.
        config: settings of the engine.
        queues: the queues of the worker.
        max_executions: how many executions the worker owns at most.
        max_steps: how many attempts it runs at most.

    Example:
        ``async with engine_under_test(registry) as under: …; await under.run_until_idle()``
    """
    clock = clock or ManualClock()
    async with open_engine(
        url, registry, config=config or EngineConfig(drain=0), clock=clock
    ) as engine:
        under = EngineUnderTest(engine, clock, queues, max_executions, max_steps)
        await under.start_worker()
        try:
            yield under
        finally:
            await under.kill_worker()
