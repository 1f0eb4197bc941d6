"""How is an execution given up while it waits? Whole or not at all, and no wake-up is missed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from perdure import Context, Registry, RetryPolicy
from perdure.ports.commands import Command, Suspend
from tests.engine.cluster import Cluster, Process, cluster, holds, nothing_left, running
from tests.engine.support import trace

HOUR = timedelta(hours=1)


def waiting() -> Registry:
    """Give workflows that wait."""
    registry = Registry()

    @registry.workflow("receive", version="1")
    async def receive(ctx: Context) -> Any:
        message = await ctx.receive("x")
        return message.payload if message else None

    @registry.workflow("sleep", version="1")
    async def sleep(ctx: Context) -> str:
        return (await ctx.sleep(HOUR)).isoformat()

    async def fail() -> None:
        raise ValueError

    @registry.workflow("retry", version="1")
    async def retry(ctx: Context) -> None:
        await ctx.step(fail, retry=RetryPolicy(max_attempts=2, backoff=30))

    @registry.workflow("both", version="1")
    async def both(ctx: Context) -> Any:
        message, _ = await ctx.gather(ctx.receive("x"), ctx.sleep(HOUR))
        return message.payload if message else None

    return registry


def suspends(commands: list[Command]) -> bool:
    return holds(commands, Suspend)


@pytest.mark.parametrize(
    ("workflow", "frame", "on", "timers"),
    [
        ("receive", "receive#0", "channel:{eid}.x", 0),
        ("sleep", "sleep#0", "timer:root/sleep#0", 1),
        ("retry", "fail#0", "timer:root/fail#0", 1),
    ],
)
async def test_each_kind_of_wait_gives_the_execution_up(
    url: str, workflow: str, frame: str, on: str, timers: int
) -> None:
    async with cluster(waiting(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start(workflow)
        await process.run_until_idle()
        on = on.format(eid=eid)
        entry, suspended = (await process.engine.journal(eid))[-2:]
        assert (entry.type, entry.fid) == ("frame.suspended", f"root/{frame}")
        assert entry.payload["on"] == on
        assert (suspended.type, suspended.payload) == ("execution.suspended", {"on": [on]})
        row = await process.engine.execution(eid)
        assert (row.status, row.suspended_on, row.epoch) == ("suspended", (on,), 1)
        assert not (await process.engine.lease(eid)).live
        info = await machines.store.info()
        assert (info.ready_tasks, info.timers) == (0, timers)
        control = await machines.store.control()
        assert [(one.type, one.epoch) for one in control] == [
            ("execution.created", 0),
            ("execution.started", 1),
            ("execution.suspended", 1),
        ]
        assert {one.eid for one in control} == {eid}
        assert msgspec.json.decode(control[-1].body) == {"on": [on]}


async def test_a_gather_of_waits_wakes_one_by_one(url: str) -> None:
    async with cluster(waiting(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("both")
        await process.run_until_idle()
        await process.advance(HOUR / 6)
        await process.engine.signal(eid, "x", "first")
        await process.run_until_idle()
        await process.advance(HOUR)
        assert trace(await process.engine.journal(eid)) == (
            "XS FS receive#0/1 FS sleep#0/1 FU receive#0 FU sleep#0 XU[channel,timer] "
            "| XR(2,message) CL receive#0 XU[timer] | XR(3,timer) CL sleep#0 XC"
        )
        row = await process.engine.execution(eid)
        assert (row.result, row.ended_at) == ("first", row.created_at + HOUR)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_around_the_suspension_leaves_all_of_it_or_nothing(
    url: str, *, after: bool
) -> None:
    async with cluster(waiting(), url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("both")
        await first.run_to_death(suspends, after=after)
        second = await machines.boot()
        row = await second.engine.execution(eid)
        lease = await second.engine.lease(eid)
        info = await machines.store.info()
        journal = trace(await second.engine.journal(eid))
        if after:
            assert journal == (
                "XS FS receive#0/1 FS sleep#0/1 FU receive#0 FU sleep#0 XU[channel,timer]"
            )
            assert (row.status, info.timers, lease.live) == ("suspended", 1, False)
        else:
            assert journal == "XS"
            assert (row.status, info.timers, lease.live) == ("running", 0, True)

        await second.advance(timedelta(minutes=5))  # the session of the first expires
        assert trace(await second.engine.journal(eid)).count("FU") == 2
        assert (await machines.store.info()).timers == 1
        assert await second.engine.status(eid) == "suspended"
        await second.engine.signal(eid, "x", 1)
        await second.advance(2 * HOUR)
        row = await second.engine.execution(eid)
        assert (row.status, row.result) == ("completed", 1)
        assert await nothing_left(machines.store)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_the_due_instant_that_was_recorded_survives_the_crash(
    url: str, *, after: bool
) -> None:
    async with cluster(waiting(), url) as machines:
        first = await machines.boot()
        began = machines.clock.now()
        eid = await first.engine.start("sleep")
        await first.run_to_death(suspends, after=after)
        second = await machines.boot()
        await second.advance(2 * HOUR)
        row = await second.engine.execution(eid)
        started = [e for e in await second.engine.journal(eid) if e.type == "frame.started"]
        assert [row.result] == [entry.payload["deadline"].isoformat() for entry in started]
        assert row.ended_at == started[0].payload["deadline"]
        if after:
            assert row.ended_at == began + HOUR


async def send(machines: Cluster, eid: Any) -> None:
    """Send a message from another process."""
    other = await machines.boot(worker=False)
    await other.engine.signal(eid, "x", "in between")


@pytest.mark.parametrize("workflow", ["receive", "both"])
async def test_a_message_between_the_last_look_and_the_suspension_is_not_missed(
    url: str, workflow: str
) -> None:
    """The suspension is refused, and the runner looks again; nothing waits for a sweep."""
    async with cluster(waiting(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start(workflow)

        async def slip_in(commands: list[Command]) -> None:
            if suspends(commands):
                process.wire.before_commit = None
                await send(machines, eid)

        process.wire.before_commit = slip_in
        await process.run_until_idle()
        journal = trace(await process.engine.journal(eid))
        assert "CL receive#0" in journal
        assert "|" not in journal, "the execution was never given up before"
        if workflow == "receive":
            assert journal == "XS FS receive#0/1 CL receive#0 XC"
        else:
            assert journal.endswith("XU[timer]")
            await process.advance(HOUR)
        row = await process.engine.execution(eid)
        assert (row.status, row.result) == ("completed", "in between")
        assert await nothing_left(machines.store)


async def test_messages_that_keep_coming_delay_the_suspension_and_lose_nothing(url: str) -> None:
    async with cluster(waiting(), url) as machines:
        process = await machines.boot()
        other = await machines.boot(worker=False)
        eid = await process.engine.start("receive")
        sent: list[int] = []

        async def slip_in(commands: list[Command]) -> None:
            if suspends(commands) and len(sent) < 5:
                sent.append(await other.engine.signal(eid, "unheard", len(sent)))

        process.wire.before_commit = slip_in
        await process.run_until_idle()
        assert sent == [1, 2, 3, 4, 5]
        assert trace(await process.engine.journal(eid)) == (
            "XS FS receive#0/1 FU receive#0 XU[channel]"
        )
        await process.engine.signal(eid, "x", "heard")
        await process.run_until_idle()
        assert (await process.engine.execution(eid)).result == "heard"


async def hold_the_next_commit(process: Process) -> asyncio.Event:
    """Hold the commit that comes next until the event is set; further ones queue behind it."""
    held = asyncio.Event()

    async def hold(_: list[Command]) -> None:
        process.wire.before_commit = None
        await held.wait()

    process.wire.before_commit = hold
    return held


@pytest.mark.parametrize("message_first", [False, True])
async def test_a_message_in_the_batch_of_the_suspension_is_not_missed(
    url: str, *, message_first: bool
) -> None:
    """The suspension waits for its turn, and the message is committed together with it."""
    async with cluster(waiting(), url) as machines:
        process = await machines.boot()
        assert process.worker is not None
        eid = await process.engine.start("receive")
        held = await hold_the_next_commit(process)
        ahead = asyncio.create_task(process.engine.start("sleep"))
        sending = None
        if message_first:
            sending = asyncio.create_task(process.engine.signal(eid, "x", "together"))
            await asyncio.sleep(0)
        assert await process.worker.run_once() == 1
        if sending is None:
            sending = asyncio.create_task(process.engine.signal(eid, "x", "together"))
            await asyncio.sleep(0)
        held.set()
        await asyncio.gather(ahead, sending)
        await process.run_until_idle()
        row = await process.engine.execution(eid)
        assert (row.status, row.result) == ("completed", "together")
        assert (await machines.store.info()).ready_tasks == 0


async def test_a_suspended_execution_holds_no_place(url: str) -> None:
    """A worker that owns one execution at most runs many that wait, one after the other."""
    async with cluster(waiting(), url) as machines:
        process = await machines.boot(max_executions=1)
        eids = [await process.engine.start("receive") for _ in range(5)]
        await process.run_until_idle()
        rows = [await process.engine.execution(eid) for eid in eids]
        assert [row.status for row in rows] == ["suspended"] * 5
        assert [row.worker_id for row in rows] == [None] * 5
        assert [row.suspended_on for row in rows] == [(f"channel:{eid}.x",) for eid in eids]


async def test_the_wait_set_is_replaced_whole_at_every_suspension(url: str) -> None:
    async with cluster(waiting(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("both")
        await process.run_until_idle()
        row = await process.engine.execution(eid)
        assert sorted(on.partition(":")[0] for on in row.suspended_on) == ["channel", "timer"]
        await process.engine.signal(eid, "x", "half")
        await process.run_until_idle()
        row = await process.engine.execution(eid)
        assert row.suspended_on == ("timer:root/sleep#0",)
        assert trace(await process.engine.journal(eid)).endswith(
            "| XR(2,message) CL receive#0 XU[timer]"
        )
        await process.advance(HOUR)
        assert await process.engine.status(eid) == "completed"


async def test_suspension_waits_while_another_frame_runs(url: str) -> None:
    """A wait beside a running step is served in memory; the execution is not given up for it."""
    registry = Registry()
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        entered.set()
        await go.wait()
        return "slow"

    @registry.workflow("mixed", version="1")
    async def mixed(ctx: Context) -> Any:
        value, message = await ctx.gather(ctx.step(slow), ctx.receive("x"))
        return [value, message.payload if message else None]

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start(mixed)
        async with running(process) as task:
            await entered.wait()
            assert await process.engine.status(eid) == "running"
            await process.engine.signal(eid, "x", "meanwhile")
            go.set()
            await task
        row = await process.engine.execution(eid)
        assert row.result == ["slow", "meanwhile"]
        assert "XU" not in trace(await process.engine.journal(eid))
