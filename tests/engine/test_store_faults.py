"""What if the store fails for a while, or its answers get lost? Work waits, and happens once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, Registry, RetryPolicy, StoreUnavailable, step_info
from perdure.ports.commands import Append, Command, CreateExecution, EndExecution, Send, Suspend
from tests.engine.cluster import (
    Gate,
    cluster,
    entry_of,
    holds,
    nothing_left,
    retrying,
    running,
    turns,
)
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


async def test_engine_calls_raise_while_the_store_is_unavailable(url: str) -> None:
    """Nothing of them happens later on."""
    async with cluster(working(Runs()), url) as machines:
        process = await machines.boot()
        engine = process.engine
        eid = await engine.start("work")
        process.wire.down = True
        calls = (
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
            lambda: anext(engine.watch(eid)),
        )
        async with retrying(machines.clock):
            for call in calls:
                with pytest.raises(StoreUnavailable, match="has cut the wire"):
                    await call()
            process.wire.down = False
            other = await engine.start("work", key="afterwards")
        rows = (await engine.executions()).items
        assert [row.eid for row in rows] == [other, eid]
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
            async with retrying(machines.clock):
                await turns()
                assert not task.done()
                process.wire.down = False
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
        async with process.engine.worker(upkeep=False) as worker, retrying(machines.clock):
            process.wire.down = True
            eid = await operator.engine.start("work")
            worker.poke()
            await turns()
            assert await operator.engine.status(eid) == "pending"
            process.wire.down = False
            await entry_of(process.engine, eid, "execution.suspended")


async def test_a_wait_for_an_end_outlasts_the_failure(url: str) -> None:
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("work")
        process.wire.down = True
        async with retrying(machines.clock):
            waiting = asyncio.create_task(process.engine.result(eid))
            await turns()
            process.wire.down = False
            await process.run_until_idle()
            await process.engine.signal(eid, "x", None)
            await process.run_until_idle()
            assert await waiting == [1, None, 1]


def beside_a_step(gate: Gate) -> Registry:
    """Give a workflow that receives with a timeout while a step runs."""
    registry = Registry()

    @registry.workflow("owned", version="1")
    async def owned(ctx: Context) -> Any:
        _, message = await ctx.gather(ctx.step(gate.wait), ctx.receive("x", timeout=MINUTE))
        return message.payload if message else None

    return registry


async def test_a_timeout_is_not_decided_while_the_channel_cannot_be_read(url: str) -> None:
    """A message is there; the owner cannot see it, and must not take that for its absence."""
    gate = Gate()
    async with cluster(beside_a_step(gate), url) as machines:
        process = await machines.boot()
        operator = await machines.boot(worker=False)
        eid = await process.engine.start("owned")
        async with running(process) as task:
            await gate.entered.wait()
            await process.engine.committer.idle()
            await operator.engine.signal(eid, "x", "in time")
            process.wire.down = True
            machines.clock.advance(MINUTE)
            async with retrying(machines.clock):
                await turns()
                process.wire.down = False
                gate.opened.set()
                await task
        assert (await process.engine.execution(eid)).result == "in time"


async def test_a_message_that_comes_while_the_owner_looks_makes_it_look_again(url: str) -> None:
    """What it was about to learn is older than the message."""
    gate = Gate()
    async with cluster(beside_a_step(gate), url) as machines:
        process = await machines.boot()
        engine = process.engine
        eid = await engine.start("owned")
        looked, go = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            looked.set()
            await go.wait()

        async with running(process) as task:
            await gate.entered.wait()
            await engine.committer.idle()
            process.wire.after["mail"] = hold
            await engine.signal(eid, "unheard", None)
            await looked.wait()
            await engine.signal(eid, "x", "meanwhile")
            go.set()
            await entry_of(engine, eid, "frame.fulfilled", "root/receive#0")
            gate.opened.set()
            await task
        assert (await engine.execution(eid)).result == "meanwhile"


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
        async with retrying(machines.clock):
            eid = await process.engine.start("work")
            await process.run_until_idle()
            assert await process.engine.signal(eid, "x", "hello") == 1
            await process.run_until_idle()
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

        async def cut(_: list[Command]) -> None:
            process.wire.answers_lost = 1
            process.wire.down_after_loss = True

        process.wire.before_commit = cut
        with pytest.raises(StoreUnavailable):
            await process.engine.signal(first, "x", "of unknown fate")
        process.wire.before_commit = None
        process.wire.down = False
        async with retrying(machines.clock):
            second = await process.engine.start("work", key="second")
            assert second != first
            assert await process.engine.status(second) == "pending"
            assert await process.engine.signal(first, "x", "again") == 2
            await process.run_until_idle()
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
        async with retrying(machines.clock):
            await process.run_until_idle()
        assert [await process.engine.status(eid) for eid in eids] == ["suspended"] * 3
        assert runs["first"] == 5, "the start of unknown fate was applied"
        again = await process.engine.start_result("work", key="behind")
        assert again.deduplicated


async def test_an_error_that_nobody_expects_does_not_stop_the_engine(url: str) -> None:
    """Who waits is told; executions are lost for the moment, and found again by two beats."""
    runs, gate = Runs(), Gate()
    gate.opened.set()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()
        assert process.worker is not None
        errors = iter([ValueError("a bug of the store")])

        async def fail_once(_: list[Command]) -> None:
            for error in errors:
                raise error

        process.wire.before_commit = fail_once
        with pytest.raises(ValueError, match="a bug of the store"):
            await process.engine.start("work")
        eid = await process.engine.start("work")
        errors = iter([ValueError("another one")])
        await process.run_until_idle()
        assert trace(await process.engine.journal(eid)) == "XS"
        for _ in range(2):
            await process.worker.beat_once()
            await process.run_until_idle()
        assert trace(await process.engine.journal(eid)) == (
            "XS | XR(2,reconcile) FS first#0/1 FC first#0 FS receive#0/1 FU receive#0 XU[channel]"
        )


async def test_an_engine_closes_although_its_store_is_gone(url: str) -> None:
    runs, gate = Runs(), Gate()
    async with cluster(working(runs, gate), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("work")
        async with running(process):
            await gate.entered.wait()
            process.wire.down = True
            gate.opened.set()
            async with retrying(machines.clock):
                await turns()
                await process.engine.close()
        second = await machines.boot()
        await second.advance(2 * MINUTE)
        await second.advance(2 * MINUTE)
        assert (await second.engine.execution(eid)).result == [1, None, 1]
        assert runs == {"first": 2, "second": 1}
