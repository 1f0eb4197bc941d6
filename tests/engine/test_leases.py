"""Who may write? Only the present owner: what paused, died or came too late changes nothing."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import Context, EngineConfig, Registry
from perdure.ports.commands import Append, Command, Release
from tests.engine.cluster import (
    Cluster,
    Gate,
    Process,
    cluster,
    entry_of,
    gated_steps,
    holds,
    nothing_left,
    running,
)
from tests.engine.support import Runs, trace

TTL = timedelta(seconds=30)
THIRD = TTL / 3


def two_steps(gate: Gate, runs: Runs) -> Registry:
    """Give a workflow whose first step waits at a gate."""
    registry = Registry()
    first, second = gated_steps(gate, runs)

    @registry.workflow("steps", version="1")
    async def steps(ctx: Context) -> list[str]:
        return [await ctx.step(first), await ctx.step(second)]

    @registry.workflow("wait", version="1")
    async def wait(ctx: Context) -> Any:
        runs["wait"] += 1
        await ctx.step(first)
        message = await ctx.receive("x")
        return message.payload if message else None

    return registry


async def steal(machines: Cluster, thief: Process) -> None:
    """Let the time pass after which the sessions of those who do not beat have expired."""
    await thief.sweep()
    machines.clock.advance(TTL)
    if thief.worker is not None:
        await thief.worker.beat_once()
    await thief.sweep()


async def test_a_worker_that_was_fenced_writes_nothing_more(url: str) -> None:
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("steps")
        async with running(first) as task:
            await gate.entered.wait()
            second = await machines.boot()
            await steal(machines, second)
            async with running(second) as other:
                await entry_of(second.engine, eid, "execution.resumed")
                gate.opened.set()  # both attempts of the step end now
                await asyncio.gather(task, other)
        journal = await second.engine.journal(eid)
        assert trace(journal) == (
            "XS FS first#0/1 | XR(2,recovery) FS first#0/1 FC first#0 FS second#0/1 FC second#0 XC"
        )
        assert [entry.epoch for entry in journal] == [1, 1, 2, 2, 2, 2, 2, 2]
        assert runs == {"first": 2, "second": 1}
        assert await nothing_left(machines.store)


async def test_a_paused_worker_that_comes_back_drops_all_and_goes_on_with_new_work(
    url: str,
) -> None:
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        first = await machines.boot()
        assert first.worker is not None
        gone = first.worker.session
        eid = await first.engine.start("steps")
        async with running(first) as task:
            await gate.entered.wait()
            first.wire.passing.clear()
            gate.opened.set()  # its step ends, and its commit waits in the wire
            second = await machines.boot()
            await steal(machines, second)
            await second.run_until_idle()
            ended = trace(await second.engine.journal(eid))
            assert ended.endswith("XC")
            applied = len(first.wire.applied)
            first.wire.passing.set()
            await task
            assert first.wire.applied[applied:] == [] or await refused(first, applied)
        assert trace(await second.engine.journal(eid)) == ended
        assert first.worker.session != gone
        again = await second.engine.start("steps")
        await first.run_until_idle()
        journal = await second.engine.journal(again)
        assert trace(journal).endswith("XC")
        assert {entry.provenance.actor.id for entry in journal} == {first.worker.worker_id}


async def refused(process: Process, since: int) -> bool:
    """Tell whether what a process tried to append since then left no row of its own."""
    appends = [one for one in process.wire.applied[since:] if isinstance(one, Append)]
    rows = [row for one in appends for row in await process.wire._store.journal(one.eid)]  # noqa: SLF001
    return all(row.body != one.body for one in appends for row in rows)


async def test_a_session_that_is_gone_loses_all_its_executions_at_once(url: str) -> None:
    """The worker learns it at its beat, before anybody has fenced the single executions."""
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        first = await machines.boot()
        assert first.worker is not None
        await first.engine.start_many("steps", [[]] * 3)
        async with running(first) as task:
            await gate.entered.wait()
            watcher = await machines.boot(worker=False)
            await steal(machines, watcher)
            await first.worker.beat_once()
            await asyncio.wait([task], timeout=0)
            gate.opened.set()
            await task
        await first.run_until_idle()
        page = await first.engine.executions()
        assert [(row.status, row.epoch) for row in page.items] == [("completed", 2)] * 3
        assert runs == {"first": 6, "second": 3}


async def test_a_dead_worker_is_recovered_once_and_again(url: str) -> None:
    """Nothing happens before its session has expired; each recovery is one more epoch."""
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("steps")
        async with running(first):
            await gate.entered.wait()
        await first.die()
        second = await machines.boot()
        assert await second.sweep() == 0
        machines.clock.advance(TTL - timedelta(microseconds=1))
        assert second.worker is not None
        await second.worker.beat_once()
        assert await second.sweep() == 0
        machines.clock.advance(timedelta(microseconds=1))
        assert await second.sweep() == 1
        assert await second.sweep() == 0
        async with running(second):
            await entry_of(second.engine, eid, "execution.resumed")
        await second.die()
        third = await machines.boot()
        await steal(machines, third)
        gate.opened.set()
        await third.run_until_idle()
        journal = trace(await third.engine.journal(eid))
        assert journal.startswith("XS FS first#0/1 | XR(2,recovery) FS first#0/1 | XR(3,recovery)")
        assert journal.endswith("XC")
        kinds = [
            (entry.type.removeprefix("execution."), entry.epoch)
            for entry in await machines.store.control()
        ]
        assert kinds == [
            ("created", 0), ("started", 1), ("resumed", 2), ("resumed", 3), ("completed", 3)
        ]  # fmt: skip


async def test_a_live_session_is_left_alone(url: str) -> None:
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        first = await machines.boot()
        second = await machines.boot()
        assert first.worker is not None
        eid = await first.engine.start("steps")
        async with running(first) as task:
            await gate.entered.wait()
            for _ in range(12):
                machines.clock.advance(THIRD)
                await first.worker.beat_once()
                await second.sweep()
            gate.opened.set()
            await task
        assert (await first.engine.execution(eid)).epoch == 1


async def test_a_sweeper_needs_to_watch_a_whole_time_to_live(url: str) -> None:
    """It trusts no other clock: what was silent before it came counts for nothing."""
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        first = await machines.boot()
        await first.engine.start("steps")
        async with running(first):
            await gate.entered.wait()
        machines.clock.advance(10 * TTL)
        late = await machines.boot(worker=False)
        assert await late.sweep() == 0
        machines.clock.advance(TTL - timedelta(seconds=1))
        assert await late.sweep() == 0
        machines.clock.advance(timedelta(seconds=1))
        assert await late.sweep() == 1


async def test_a_beat_between_look_and_expiry_saves_the_session(url: str) -> None:
    """The sweeper decides on the beat it has watched; one that came meanwhile refutes it."""
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        first = await machines.boot()
        assert first.worker is not None
        worker = first.worker
        watcher = await machines.boot(worker=False)

        async def beat(_: list[Command]) -> None:
            await worker.beat_once()

        await watcher.sweep()
        machines.clock.advance(TTL)
        watcher.wire.before_commit = beat
        session = worker.session
        await watcher.sweep()
        await worker.beat_once()
        assert worker.session == session


async def test_a_task_of_an_owned_execution_is_dropped_and_its_cause_is_not_lost(url: str) -> None:
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        first = await machines.boot()
        second = await machines.boot()
        eid = await first.engine.start("wait")
        await first.sweep()
        async with running(first) as task:
            await gate.entered.wait()
            await second.engine.signal(eid, "x", "the cause")
            await second.run_until_idle()
            gate.opened.set()
            await task
        assert trace(await second.engine.journal(eid)) == (
            "XS FS first#0/1 FC first#0 FS receive#0/1 CL receive#0 XC"
        )
        assert runs == {"wait": 1, "first": 1}
        assert await nothing_left(machines.store)


async def test_an_equal_name_is_no_shared_ownership(url: str) -> None:
    """Two workers of one process under one name: one of them owns the execution."""
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        process = await machines.boot(worker=False)
        async with (
            process.engine.worker(worker_id="twin", upkeep=False),
            process.engine.worker(worker_id="twin", upkeep=False),
        ):
            eid = await process.engine.start("wait")
            await gate.entered.wait()
            await process.engine.signal(eid, "x", "hello")
            assert (await process.engine.lease(eid)).holder == "twin"
            gate.opened.set()
            assert await process.engine.result(eid) == "hello"
        assert runs == {"wait": 1, "first": 1}


async def test_the_answer_of_a_dequeue_that_was_lost_is_reconciled_by_two_beats(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(two_steps(gate, runs), url) as machines:
        process = await machines.boot()
        assert process.worker is not None
        eid = await process.engine.start("steps")
        process.wire.dequeues_lost = 1
        with pytest.raises(Exception, match="the connection broke"):
            await process.worker.run_once()
        lease = await process.engine.lease(eid)
        assert (lease.live, lease.holder) == (True, process.worker.worker_id)
        await process.run_until_idle()
        assert trace(await process.engine.journal(eid)) == "XS"
        await process.worker.beat_once()
        await process.run_until_idle()
        assert trace(await process.engine.journal(eid)) == "XS", "once may be too early"
        with caplog.at_level(logging.WARNING, "perdure.worker"):
            await process.worker.beat_once()
            await process.run_until_idle()
        assert str(eid) in caplog.text
        journal = trace(await process.engine.journal(eid))
        assert journal.startswith("XS | XR(2,reconcile) FS first#0/1")
        assert journal.endswith("XC")
        assert runs == {"first": 1, "second": 1}


async def test_a_dequeue_that_is_slow_is_not_taken_for_one_that_was_lost(url: str) -> None:
    """Beats that overtake the answer of a dequeue do not give away what it brings."""
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(two_steps(gate, runs), url) as machines:
        process = await machines.boot()
        worker = process.worker
        assert worker is not None
        eid = await process.engine.start("steps")
        dequeued, go = asyncio.Event(), asyncio.Event()
        process.wire.after["dequeue"] = lambda: _hold(dequeued, go)
        running_once = asyncio.create_task(worker.run_once())
        await dequeued.wait()
        for _ in range(3):
            await worker.beat_once()
        go.set()
        await running_once
        await process.run_until_idle()
        assert not holds(process.wire.applied, Release)
        row = await process.engine.execution(eid)
        assert (row.status, row.epoch) == ("completed", 1)
        assert runs == {"first": 1, "second": 1}


async def _hold(entered: asyncio.Event, go: asyncio.Event) -> None:
    entered.set()
    await go.wait()


async def test_the_lease_tells_who_owns_an_execution(url: str) -> None:
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        process = await machines.boot()
        assert process.worker is not None
        eid: UUID = await process.engine.start("wait")
        nobody = await process.engine.lease(eid)
        assert (nobody.holder, nobody.epoch, nobody.deadline, nobody.live) == (None, 0, None, False)
        async with running(process) as task:
            await gate.entered.wait()
            lease = await process.engine.lease(eid)
            assert (lease.holder, lease.epoch, lease.live) == (process.worker.worker_id, 1, True)
            assert lease.deadline == machines.clock.now() + TTL
            gate.opened.set()
            await task
        lease = await process.engine.lease(eid)
        assert (lease.holder, lease.epoch, lease.live) == (None, 1, False)


async def test_an_execution_that_kills_its_workers_is_parked(url: str) -> None:
    """Ten recoveries without an outcome are allowed by default; here it is one."""
    runs, gate = Runs(), Gate()
    async with cluster(two_steps(gate, runs), url) as machines:
        config = EngineConfig(drain=0, max_recoveries=1)
        process = await machines.boot(config=config)
        eid = await process.engine.start("steps")
        for _ in range(2):
            gate.entered.clear()
            async with running(process):
                await gate.entered.wait()
                await process.engine.committer.idle()
            await process.die()
            process = await machines.boot(config=config)
            await steal(machines, process)
        await process.run_until_idle()
        row = await process.engine.execution(eid)
        assert (row.status, row.suspended_on) == ("suspended", ("operator",))
        assert row.blocked is not None
        assert "recovered 2 times" in row.blocked
        assert runs == {"first": 2}
        gate.opened.set()
        await process.engine.signal(eid, "wake", None)  # an operator has mended what killed them
        await process.run_until_idle()
        assert await process.engine.status(eid) == "completed"
