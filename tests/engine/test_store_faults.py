"""What if the store fails for a while, or its answers get lost? Work waits, and happens once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, Registry, RetryPolicy, StoreUnavailable, step_info
from perdure.ports.commands import Append, Command, CreateExecution, EndExecution, Send, Suspend
from tests.engine.cluster import Gate, Process, cluster, entry_of, holds, nothing_left, running
from tests.engine.support import Runs, trace

MINUTE = timedelta(minutes=1)


def working(runs: Runs, gate: Gate | None = None) -> Registry:
    """Give a workflow with steps, a wait and a timer."""
    registry = Registry()
    gate = gate or Gate()

    async def first() -> int:
        runs["first"] += 1
        await gate.wait()
        return step_info().attempt

    async def second() -> int:
        runs["second"] += 1
        return step_info().attempt

    @registry.workflow("work", version="1")
    async def work(ctx: Context) -> Any:
        one = await ctx.step(first, retry=RetryPolicy(max_attempts=3))
        message = await ctx.receive("x", timeout=MINUTE)
        two = await ctx.step(second, retry=RetryPolicy(max_attempts=3))
        return [one, message.payload if message else None, two]

    return registry


async def let_retry(process: Process, times: int = 10) -> None:
    """Move the clock a little so that what waits for the store tries again."""
    for _ in range(times):
        for _ in range(10):
            await asyncio.sleep(0)
        process.clock.advance(1)


async def test_engine_calls_raise_while_the_store_is_unavailable(url: str) -> None:
    """Nothing of them happens later on."""
    async with cluster(working(Runs()), url) as machines:
        process = await machines.boot()
        engine = process.engine
        eid = await engine.start("work")
        process.wire.down = True
        for call in (
            lambda: engine.start("work"),
            lambda: engine.start_many("work", [[], []]),
            lambda: engine.signal(eid, "x", 1),
            lambda: engine.status(eid),
            lambda: engine.execution(eid),
            engine.executions,
            lambda: engine.journal(eid),
            lambda: engine.frames(eid),
            lambda: engine.lease(eid),
            engine.store_info,
        ):
            with pytest.raises(StoreUnavailable):
                await call()
        with pytest.raises(StoreUnavailable):
            await anext(engine.watch(eid))
        process.wire.down = False
        await let_retry(process)
        assert len((await engine.executions()).items) == 1
        mail = await engine.store.mail(eid)
        assert mail is not None
        assert mail.messages == ()


async def test_an_execution_waits_for_the_store_and_spends_no_attempt(url: str) -> None:
    runs, gate = Runs(), Gate()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("work")
        async with running(process) as task:
            await gate.entered.wait()
            process.wire.down = True
            gate.opened.set()
            await let_retry(process)
            assert not task.done()
            process.wire.down = False
            await let_retry(process)
            await task
        await process.engine.signal(eid, "x", "hello")
        await process.run_until_idle()
        row = await process.engine.execution(eid)
        assert (row.status, row.result) == ("completed", [1, "hello", 1])
        assert runs == {"first": 1, "second": 1}
        assert await nothing_left(machines.store)


async def test_a_worker_that_cannot_dequeue_tries_again(url: str) -> None:
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot(worker=False)
        operator = await machines.boot(worker=False)
        async with process.engine.worker(upkeep=False):
            process.wire.down = True
            eid = await operator.engine.start("work")
            process.engine._workers[0].poke()  # noqa: SLF001 - what a notice of the store does
            await let_retry(process)
            assert await operator.engine.status(eid) == "pending"
            process.wire.down = False
            moving = asyncio.create_task(let_retry(process))
            await entry_of(process.engine, eid, "execution.suspended")
            await moving


async def test_a_wait_for_an_end_outlasts_the_failure(url: str) -> None:
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("work")
        process.wire.down = True
        waiting = asyncio.create_task(process.engine.result(eid))
        await let_retry(process, 3)
        process.wire.down = False
        await let_retry(process, 3)
        await process.run_until_idle()
        await process.advance(2 * MINUTE)
        assert await waiting == [1, None, 1]


async def test_a_timeout_is_not_decided_while_the_channel_cannot_be_read(url: str) -> None:
    """A message is there; the owner cannot see it, and must not take that for its absence."""
    registry = Registry()
    gate = Gate()

    @registry.workflow("owned", version="1")
    async def owned(ctx: Context) -> Any:
        _, message = await ctx.gather(ctx.step(gate.wait), ctx.receive("x", timeout=MINUTE))
        return message.payload if message else None

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        operator = await machines.boot(worker=False)
        eid = await process.engine.start(owned)
        async with running(process) as task:
            await gate.entered.wait()
            await process.engine.committer.idle()
            await operator.engine.signal(eid, "x", "in time")
            process.wire.down = True
            machines.clock.advance(MINUTE)
            await let_retry(process)
            process.wire.down = False
            await let_retry(process)
            gate.opened.set()
            await task
        assert (await process.engine.execution(eid)).result == "in time"


COMMITS = [CreateExecution, Send, Append, Suspend, EndExecution]


@pytest.mark.parametrize("kind", COMMITS, ids=lambda kind: kind.__name__)
async def test_a_commit_whose_answer_was_lost_is_applied_once(url: str, kind: type) -> None:
    """Nobody guesses at its fate: it is looked up, and the caller learns how it went."""
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()

        async def lose(commands: list[Command]) -> None:
            if holds(commands, kind):
                process.wire.before_commit = None
                process.wire.answers_lost = 1

        process.wire.before_commit = lose
        moving = asyncio.create_task(let_retry(process, 30))
        eid = await process.engine.start("work")
        await process.run_until_idle()
        assert await process.engine.signal(eid, "x", "hello") == 1
        await process.run_until_idle()
        await moving
        row = await process.engine.execution(eid)
        assert (row.status, row.result, row.epoch) == ("completed", [1, "hello", 1], 2)
        assert len((await process.engine.executions()).items) == 1
        assert runs == {"first": 1, "second": 1}
        assert trace(await process.engine.journal(eid)) == (
            "XS FS first#0/1 FC first#0 FS receive#0/1 FU receive#0 XU[channel] "
            "| XR(2,message) CL receive#0 FS second#0/1 FC second#0 XC"
        )
        assert await nothing_left(machines.store)


async def test_a_lost_answer_is_not_taken_for_that_of_the_next_batch(url: str) -> None:
    """The store stays away after it has applied a batch; what comes later is no part of that."""
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()
        first = await process.engine.start("work", key="first")

        async def cut(commands: list[Command]) -> None:
            process.wire.answers_lost = 1
            process.wire.down_after_loss = True

        process.wire.before_commit = cut
        with pytest.raises(StoreUnavailable):
            await process.engine.signal(first, "x", "of unknown fate")
        process.wire.before_commit = None
        process.wire.down = False
        moving = asyncio.create_task(let_retry(process, 30))
        second = await process.engine.start("work", key="second")
        assert second != first
        assert await process.engine.status(second) == "pending"
        assert await process.engine.signal(first, "x", "again") == 2
        await process.run_until_idle()
        await moving
        assert (await process.engine.execution(first)).result == [1, "of unknown fate", 1]


async def test_a_batch_of_operators_and_runners_survives_a_lost_answer(url: str) -> None:
    """Some in the batch are told at once, others wait; each gets the answer that is its own."""
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()
        assert process.worker is not None
        eids = await process.engine.start_many("work", [[]] * 3)
        entered, go = asyncio.Event(), asyncio.Event()

        async def hold(_: list[Command]) -> None:
            process.wire.before_commit = cut
            entered.set()
            await go.wait()

        async def cut(_: list[Command]) -> None:
            process.wire.before_commit = None
            process.wire.answers_lost = 1
            process.wire.down_after_loss = True

        process.wire.before_commit = hold
        ahead = asyncio.create_task(process.engine.start("work", key="ahead"))
        await entered.wait()
        await process.worker.run_once()
        behind = asyncio.create_task(process.engine.start("work", key="behind"))
        await asyncio.sleep(0)
        go.set()
        await ahead
        with pytest.raises(StoreUnavailable):
            await behind
        process.wire.down = False
        moving = asyncio.create_task(let_retry(process, 30))
        await process.run_until_idle()
        await moving
        assert [await process.engine.status(eid) for eid in eids] == ["suspended"] * 3
        assert runs["first"] == 5, "the start of unknown fate was applied"
        again = await process.engine.start_result("work", key="behind")
        assert again.deduplicated


async def test_an_engine_closes_although_its_store_is_gone(url: str) -> None:
    runs, gate = Runs(), Gate()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("work")
        async with running(process):
            await gate.entered.wait()
            process.wire.down = True
            gate.opened.set()
            await let_retry(process, 2)
            closing = asyncio.create_task(process.engine.close())
            await let_retry(process, 10)
            await closing
        second = await machines.boot()
        await second.advance(2 * MINUTE)
        await second.advance(2 * MINUTE)
        assert (await second.engine.execution(eid)).result == [1, None, 1]
        assert runs == {"first": 2, "second": 1}
