"""What does upkeep keep in order, and how does a service of it begin, fail and stop?"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Context, Registry, StartOptions, StoreUnavailable
from perdure.ports.commands import CreateExecution, ExpireSession, FireTimers, RepairPending
from perdure.runtime.upkeep.service import Service
from perdure.runtime.upkeep.sweeper import Sweeper
from perdure.testing import ManualClock
from tests.engine.cluster import Process, cluster, nothing_left, retrying, turns, until
from tests.engine.support import Runs, trace

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Counting(Service):
    """A service that counts its passes; some of them fail."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.passes = 0
        self.failures: dict[int, Exception] = {}
        self.passed = asyncio.Event()

    async def run_once(self) -> int:
        self.passes += 1
        self.passed.set()
        if self.passes in self.failures:
            raise self.failures[self.passes]
        return 1

    async def pause(self) -> float:
        return 5.0


async def test_a_service_passes_at_once_and_after_each_pause() -> None:
    clock = ManualClock()
    service = Counting(clock)
    service.start()
    for number in range(1, 4):
        await turns()
        assert service.passes == number
        clock.advance(4.999)
        await turns()
        assert service.passes == number
        clock.advance(0.001)
    await service.stop()


async def test_starting_and_stopping_twice_is_fine() -> None:
    clock = ManualClock()
    service = Counting(clock)
    await service.stop()
    service.start()
    service.start()
    await turns()
    assert service.passes == 1
    await service.stop()
    await service.stop()
    clock.advance(60)
    await turns()
    assert service.passes == 1
    service.start()
    await turns()
    assert service.passes == 2
    await service.stop()


async def test_starts_and_stops_in_any_order_end_with_what_came_last() -> None:
    clock = ManualClock()
    service = Counting(clock)
    for _ in range(20):
        service.start()
        await asyncio.gather(service.stop(), service.stop())
    assert not [task for task in asyncio.all_tasks() if "counting" in task.get_name()]
    service.start()
    await service.passed.wait()
    await service.stop()


@pytest.mark.parametrize(
    ("failure", "levels"),
    [(ValueError("a bug"), ["ERROR"] * 2), (StoreUnavailable("no disk"), ["WARNING"])],
    ids=["a bug, each time", "a trouble that lasts, once"],
)
async def test_a_pass_that_fails_is_logged_and_repeated(
    failure: Exception, levels: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    service = Counting(clock)
    service.failures = {1: failure, 2: failure}
    with caplog.at_level(logging.WARNING, "perdure.upkeep"):
        service.start()
        for _ in range(2):
            await turns()
            clock.advance(1)
        await turns()
    assert service.passes == 3
    assert [record.levelname for record in caplog.records] == levels
    assert str(failure) in caplog.text
    await service.stop()


def naps() -> Registry:
    """Give workflows for the sweeper to wake."""
    registry = Registry()

    @registry.workflow("nap", version="1")
    async def nap(ctx: Context, seconds: float) -> Any:
        return await ctx.sleep(seconds)

    return registry


async def test_a_worker_sweeps_by_itself(url: str) -> None:
    """It wakes what sleeps, and starts what was to wait."""
    async with cluster(naps(), url) as machines:
        process = await machines.boot(worker=False)
        async with process.engine.worker():
            eid = await process.engine.start("nap", 0.25)
            delayed = await process.engine.start(
                "nap", 0, options=StartOptions(not_before=machines.clock.now() + MINUTE)
            )
            waits = [asyncio.create_task(process.engine.wait(one)) for one in (eid, delayed)]
            async with retrying(machines.clock):
                nap, late = await asyncio.gather(*waits)
        assert nap.ended_at is not None
        assert nap.ended_at - nap.created_at >= SECOND / 4
        assert late.started_at is not None
        assert late.started_at - late.created_at >= MINUTE


async def test_a_worker_without_upkeep_leaves_it_to_others(url: str) -> None:
    async with cluster(naps(), url) as machines:
        process = await machines.boot(worker=False)
        async with process.engine.worker(upkeep=False):
            eid = await process.engine.start("nap", 1)
            async for entry in process.engine.watch(eid):
                if entry.type == "execution.suspended":
                    break
            machines.clock.advance(MINUTE)
            await turns()
            assert await process.engine.status(eid) == "suspended"
            assert await process.sweep() == 1
            assert (await process.engine.wait(eid)).status == "completed"


def commands_of(process: Process, kind: type) -> list[Any]:
    return [command for command in process.wire.applied if isinstance(command, kind)]


async def test_a_pass_with_nothing_to_do_writes_nothing(url: str) -> None:
    async with cluster(naps(), url) as machines:
        process = await machines.boot()
        await process.engine.start("nap", 3600)
        await process.run_until_idle()
        await process.sweep()
        process.wire.applied.clear()
        for _ in range(5):
            assert await process.sweep() == 0
        assert process.wire.applied == []


async def test_more_timers_than_one_command_fires_are_fired_in_one_pass(url: str) -> None:
    async with cluster(naps(), url) as machines:
        process = await machines.boot()
        eids = await process.engine.start_many("nap", [[1]] * 1_050)
        await process.run_until_idle()
        machines.clock.advance(1)
        assert await process.sweep() == 1_050
        assert len(commands_of(process, FireTimers)) == 2
        await process.run_until_idle()
        assert len(await process.engine.store.ended(eids)) == 1_050
        assert await nothing_left(machines.store)


async def test_any_number_of_sweepers_may_run(url: str) -> None:
    """They find the same dead session, the same timers, and wake each execution once."""
    runs = Runs()
    registry = Registry()

    @registry.workflow("count", version="1")
    async def count(ctx: Context, seconds: float) -> None:
        runs["wf"] += 1
        await ctx.sleep(seconds)

    async with cluster(registry, url) as machines:
        dead = await machines.boot()
        eids = await dead.engine.start_many(count, [[1]] * 20)
        await dead.run_until_idle()
        sweepers = [await machines.boot(worker=False) for _ in range(5)]
        swept = await asyncio.gather(*[process.sweep() for process in sweepers])
        machines.clock.advance(30)
        swept += await asyncio.gather(*[process.sweep() for process in sweepers])
        assert sum(swept) == 20
        expired = [await process.engine.store.sessions() for process in sweepers]
        assert expired == [[]] * 5
        worker = await machines.boot()
        await worker.run_until_idle()
        assert runs == {"wf": 40}
        assert len(await worker.engine.store.ended(eids)) == 20


async def test_a_pending_execution_without_a_task_gets_one(tmp_path: Path) -> None:
    """Damage that no code of ours makes: the task is gone."""
    file = tmp_path / "test.db"
    async with cluster(naps(), f"sqlite:///{file}") as machines:
        process = await machines.boot()
        eid = await process.engine.start("nap", 0)
        with sqlite3.connect(file) as damage:
            damage.execute("DELETE FROM tasks")
        damage.close()
        await process.run_until_idle()
        assert await process.engine.status(eid) == "pending"
        await process.sweep()
        await process.run_until_idle()
        assert trace(await process.engine.journal(eid)) == "XS FS sleep#0/1 CL sleep#0 XC"
        assert len(commands_of(process, RepairPending)) == 1, "once in the life of a sweeper"


async def test_only_sessions_that_stand_still_expire(url: str) -> None:
    async with cluster(naps(), url) as machines:
        still = await machines.boot()
        beating = await machines.boot()
        assert beating.worker is not None
        sweeper = Sweeper(machines.store, beating.engine.committer, machines.clock)
        for _ in range(40):
            await sweeper.run_once()
            machines.clock.advance(1)
            await beating.worker.beat_once()
        assert still.worker is not None
        assert [one.session for one in commands_of(beating, ExpireSession)] == [
            still.worker.session
        ]
        live = [session.session for session in await machines.store.sessions()]
        assert live == [beating.worker.session]
        assert commands_of(beating, CreateExecution) == []


async def test_a_timer_that_is_due_before_the_next_pass_fires_in_time(url: str) -> None:
    """A nap of a fifth of a second does not take the second between two passes."""
    registry = Registry()

    @registry.workflow("nap", version="1")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(0.2)
        return "awake"

    async with cluster(registry, url) as machines:
        process = await machines.boot(worker=False)
        clock, fifth = machines.clock, timedelta(seconds=0.2)
        async with process.engine.worker():
            await until(lambda: clock.next_due() is not None)  # the sweeper pauses
            eid = await process.engine.start(nap)
            due = clock.now() + fifth
            await until(lambda: clock.next_due() == due)
            clock.advance(fifth)
            assert (await process.engine.wait(eid)).result == "awake"
        assert clock.now() == due
