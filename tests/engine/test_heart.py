"""Does a worker stay alive in the eyes of others, and does it notice when it does not?"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

import perdure
from perdure import EngineConfig, Registry, StoreUnavailable
from perdure.ports.clock import SystemClock
from perdure.ports.store import Beat, SessionGone
from perdure.runtime.engine import Engine
from perdure.runtime.heart import Heart
from perdure.testing import ManualClock
from tests.engine.cluster import Gate, Process, cluster, gated, retrying, turns, until
from tests.engine.support import trace

TTL = 30.0
THIRD = TTL / 3


class Pulse:
    """A store of which only the beat works, or does not."""

    def __init__(self) -> None:
        self.beats = 0
        self.failure: Exception | None = None
        self.beaten: list[Beat] = []
        self.gone = asyncio.Event()

    async def beat(self, session: int) -> Beat:
        assert session == 7
        self.beats += 1
        if self.failure is not None:
            raise self.failure
        return Beat(())

    def own_beat(self) -> None:
        return None

    def heart(self, clock: ManualClock) -> Heart:
        store: Any = self
        return Heart(store, clock, 7, TTL, beaten=self.beaten.append, gone=self.gone.set)


async def advance(clock: ManualClock, seconds: float) -> None:
    await turns()
    clock.advance(seconds)
    await turns()


async def test_it_beats_every_third_of_the_time_to_live() -> None:
    pulse, clock = Pulse(), ManualClock()
    heart = pulse.heart(clock)
    heart.start()
    for number in range(1, 5):
        await advance(clock, THIRD - 0.001)
        assert pulse.beats == number - 1
        await advance(clock, 0.001)
        assert pulse.beats == number
    assert len(pulse.beaten) == 4
    await heart.stop()
    await heart.stop()
    await advance(clock, TTL)
    assert pulse.beats == 4


async def test_a_heart_that_never_started_can_be_stopped() -> None:
    pulse = Pulse()
    await pulse.heart(ManualClock()).stop()
    assert pulse.beats == 0


async def test_a_failed_beat_is_repeated_until_the_time_to_live_is_over() -> None:
    pulse, clock = Pulse(), ManualClock()
    heart = pulse.heart(clock)
    heart.start()
    pulse.failure = StoreUnavailable("for a while")
    for _ in range(29):
        await advance(clock, 1)
    assert pulse.beats > 10, "it tries more often than it beats"
    assert not pulse.gone.is_set()
    pulse.failure = None
    await advance(clock, 1)
    assert len(pulse.beaten) == 1
    pulse.failure = StoreUnavailable("for ever")
    for _ in range(41):
        await advance(clock, 1)
    assert pulse.gone.is_set()
    beats = pulse.beats
    await advance(clock, TTL)
    assert pulse.beats == beats, "a session that is gone beats no more"
    await heart.stop()


async def test_a_session_that_others_have_expired_is_gone_at_the_next_beat() -> None:
    pulse, clock = Pulse(), ManualClock()
    heart = pulse.heart(clock)
    heart.start()
    pulse.failure = SessionGone()
    await advance(clock, THIRD)
    assert pulse.gone.is_set()
    await heart.stop()


async def test_a_busy_event_loop_does_not_lose_the_session(tmp_path: Any) -> None:
    """The beat has a thread of its own: the loop stands still for several times to live."""
    url = f"sqlite:///{tmp_path / 'test.db'}"
    config = EngineConfig(session_ttl=0.6)
    gate = Gate()
    async with (
        perdure.open(url, gated(gate), config=config) as engine,
        perdure.open(url, Registry()) as watcher,
        engine.worker(upkeep=False) as worker,
    ):
        eid = await engine.start("gated")
        await gate.entered.wait()
        (beaten,) = await watcher.store.sessions()
        read = watcher.store._reads.sessions  # type: ignore[attr-defined]  # noqa: SLF001
        while read()[0].beat < beaten.beat + 5:
            pass  # the event loop does not turn meanwhile
        assert worker.session == beaten.session
        gate.opened.set()
        assert await engine.result(eid) == "done"
        assert (await engine.execution(eid)).epoch == 1


async def expire(process: Process) -> None:
    """Let a sweeper find that nobody has beaten for a whole time to live."""
    await process.sweep()
    process.clock.advance(TTL)
    await process.sweep()


async def test_a_worker_whose_session_is_gone_opens_a_new_one_and_goes_on(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with cluster(gated(gate), url) as machines:
        process = await machines.boot(worker=False)
        sweeper = await machines.boot(worker=False)
        eid = await process.engine.start("gated")
        async with process.engine.worker(upkeep=False) as worker:
            await gate.entered.wait()
            old = worker.session
            process.wire.passing.clear()  # the process is paused
            await expire(sweeper)
            gate.opened.set()
            with caplog.at_level(logging.WARNING, "perdure.worker"):
                process.wire.passing.set()
                assert await process.engine.result(eid) == "done"
            assert worker.session != old
            assert "session has expired" in caplog.text
        journal = trace(await process.engine.journal(eid))
        assert journal.count("XC") == 1
        assert "| XR(2,recovery)" in journal


async def test_beat_and_dequeue_that_both_find_the_session_gone_open_one_session(
    url: str,
) -> None:
    """A second renewal would drop what was acquired after the first."""
    gate = Gate()
    async with cluster(gated(gate), url) as machines:
        process = await machines.boot(worker=False)
        sweeper = await machines.boot(worker=False)
        async with process.engine.worker(upkeep=False) as worker:
            await turns()
            old = worker.session
            process.wire.passing.clear()
            await expire(sweeper)
            eid = await sweeper.engine.start("gated")
            worker.poke()
            await turns()  # the beat and the dequeue wait in the wire
            process.wire.passing.set()
            await gate.entered.wait()
            await turns()
            assert worker.session != old
            assert [one.session for one in await machines.store.sessions()] == [worker.session]
            gate.opened.set()
            await process.engine.wait(eid)
        assert (await sweeper.engine.execution(eid)).epoch == 1


async def test_a_worker_waits_for_the_store_with_its_new_session(url: str) -> None:
    async with cluster(Registry(), url) as machines:
        process = await machines.boot(worker=False)
        sweeper = await machines.boot(worker=False)
        async with process.engine.worker(upkeep=False) as worker:
            await turns()
            old = worker.session
            process.wire.passing.clear()
            await expire(sweeper)
            failed, failing = asyncio.Event(), process.wire.open_session

            async def fail(*_: Any) -> Any:
                failed.set()
                raise StoreUnavailable("not yet")

            process.wire.open_session = fail  # type: ignore[attr-defined]
            process.wire.passing.set()
            async with retrying(machines.clock):
                await failed.wait()
                process.wire.open_session = failing  # type: ignore[attr-defined]
                await until(lambda: worker.session not in (old, -1))
        assert (await machines.store.info()).sessions == 0


async def test_the_thread_of_a_heart_ends_with_it(tmp_path: Any) -> None:
    async with perdure.open(f"sqlite:///{tmp_path / 'test.db'}", Registry()) as engine:
        before = threading.active_count()
        assert await beats(engine, 3) >= 3
        assert threading.active_count() <= before + 1  # the pool in which it was joined


async def beats(engine: Engine, enough: int) -> int:
    """Let a session beat a few times in a thread."""
    opened = await engine.store.open_session(engine.site, 0.03, 0)
    seen: list[Beat] = []
    full = asyncio.Event()

    def beaten(beat: Beat) -> None:
        seen.append(beat)
        if len(seen) >= enough:
            full.set()

    heart = Heart(engine.store, SystemClock(), opened.session, 0.03, beaten=beaten, gone=full.set)
    heart.start()
    await full.wait()
    await heart.stop()
    await engine.store.close_session(opened.session)
    return len(seen)
