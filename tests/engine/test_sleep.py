"""When does a sleep end? At the instant computed when it first ran, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Context, Registry
from perdure.ports.commands import FireTimers
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import Gate, cluster, entry_of, holds, nothing_left, running
from tests.engine.support import Runs, trace

HOUR = timedelta(hours=1)
SECONDS_10 = timedelta(seconds=10)
MICROSECOND = timedelta(microseconds=1)


def sleeping(runs: Runs | None = None) -> Registry:
    """Give workflows that sleep."""
    registry = Registry()
    runs = Runs() if runs is None else runs

    @registry.workflow("nap", version="1")
    async def nap(ctx: Context) -> Any:
        runs["wf"] += 1
        return await ctx.sleep(HOUR)

    @registry.workflow("twins", version="1")
    async def twins(ctx: Context) -> Any:
        return await ctx.gather(ctx.sleep(HOUR), ctx.sleep(HOUR))

    @registry.workflow("until", version="1")
    async def until(ctx: Context, instant: datetime) -> datetime:
        return await ctx.sleep_until(instant)

    return registry


async def journal_of(under: EngineUnderTest, eid: Any) -> str:
    return trace(await under.engine.journal(eid))


async def test_the_due_instant_is_computed_once(url: str) -> None:
    """A wake-up before it is due changes nothing of it; nothing happens a microsecond before."""
    async with engine_under_test(sleeping(), url=url) as under:
        began = under.clock.now()
        eid = await under.engine.start("nap")
        await under.run_until_idle()
        suspended = (await under.engine.journal(eid))[2]
        assert suspended.type == "frame.suspended"
        assert suspended.payload["deadline"] == began + HOUR
        under.clock.advance(HOUR / 2)
        await under.engine.signal(eid, "unheard", None)
        await under.run_until_idle()
        under.clock.advance(HOUR / 2 - MICROSECOND)
        assert await under.sweep() == 0
        under.clock.advance(MICROSECOND)
        assert await under.sweep() == 1
        assert await under.sweep() == 0
        await under.run_until_idle()
        assert await journal_of(under, eid) == (
            "XS FS sleep#0/1 FU sleep#0 XU[timer] | XR(2,message) XU[timer] "
            "| XR(3,timer) CL sleep#0 XC"
        )
        row = await under.engine.execution(eid)
        assert row.result == (began + HOUR).isoformat().replace("+00:00", "Z")
        assert row.ended_at == began + HOUR
        assert await nothing_left(under.engine.store)


async def test_a_crash_while_another_frame_runs_does_not_move_the_deadlines(url: str) -> None:
    """They count from the first attempt, not from the recovery."""
    registry = Registry()
    gate = Gate()

    @registry.workflow("beside", version="1")
    async def beside(ctx: Context) -> Any:
        _, due, message = await ctx.gather(
            ctx.step(gate.wait), ctx.sleep(HOUR), ctx.receive("x", timeout=HOUR)
        )
        return [due, message is None]

    async with cluster(registry, url) as machines:
        first = await machines.boot()
        began = machines.clock.now()
        eid = await first.engine.start(beside)
        async with running(first):
            await gate.entered.wait()
            await entry_of(first.engine, eid, "frame.started", "root/receive#0")
        await first.die()
        gate.opened.set()
        second = await machines.boot()
        await second.advance(timedelta(minutes=20))
        journal = trace(await second.engine.journal(eid))
        assert journal.endswith("FC wait#0 FU sleep#0 FU receive#0 XU[timer,channel]")
        await second.advance(HOUR)
        row = await second.engine.execution(eid)
        assert (row.status, row.ended_at) == ("completed", began + HOUR)
        assert row.result[1] is True


@pytest.mark.cold
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_sweeper_that_dies_in_its_pass_is_no_loss(url: str, *, after: bool) -> None:
    runs = Runs()
    async with cluster(sleeping(runs), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("nap")
        await process.run_until_idle()
        machines.clock.advance(HOUR)
        doomed = await machines.boot(worker=False)
        doomed.wire.doom = lambda commands: holds(commands, FireTimers)
        doomed.wire.doom_after = after
        sweeping = asyncio.create_task(doomed.sweep())
        await doomed.wire.dead.wait()
        sweeping.cancel()
        await process.sweep()
        await process.run_until_idle()
        assert await process.engine.status(eid) == "completed"
        assert trace(await process.engine.journal(eid)).count("CL sleep#0") == 1
        assert runs["wf"] == 2
        assert await nothing_left(machines.store)


@pytest.mark.cold
async def test_two_sweepers_at_the_same_instant_wake_it_once(url: str) -> None:
    runs = Runs()
    async with cluster(sleeping(runs), url) as machines:
        processes = [await machines.boot() for _ in range(2)]
        eid = await processes[0].engine.start("nap")
        await processes[0].run_until_idle()
        machines.clock.advance(HOUR)
        swept = await asyncio.gather(*(process.sweep() for process in processes))
        assert sum(swept) == 1
        await asyncio.gather(*(process.run_until_idle() for process in processes))
        assert trace(await processes[0].engine.journal(eid)).endswith("| XR(2,timer) CL sleep#0 XC")
        assert runs["wf"] == 2
        assert await nothing_left(machines.store)


async def test_equal_instants_are_two_timers_and_one_wake(url: str) -> None:
    async with engine_under_test(sleeping(), url=url) as under:
        eid = await under.engine.start("twins")
        await under.run_until_idle()
        assert (await under.engine.store.info()).timers == 2
        await under.advance(HOUR)
        assert await journal_of(under, eid) == (
            "XS FS sleep#0/1 FS sleep#1/1 FU sleep#0 FU sleep#1 XU[timer,timer] "
            "| XR(2,timer) CL sleep#0 CL sleep#1 XC"
        )
        assert await nothing_left(under.engine.store)


async def test_timers_of_an_execution_that_has_ended_are_gone(url: str) -> None:
    """It failed while another branch slept; the hour passes and nothing happens."""
    registry = Registry()

    @registry.workflow("doomed", version="1")
    async def doomed(ctx: Context) -> None:
        async def fail() -> None:
            await ctx.receive("x")
            message = "told to"
            raise ValueError(message)

        await ctx.gather(ctx.sleep(HOUR), fail())

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(doomed)
        await under.run_until_idle()
        assert (await under.engine.store.info()).timers == 1
        await under.engine.signal(eid, "x", None)
        await under.run_until_idle()
        journal = await journal_of(under, eid)
        assert journal.endswith("CL receive#0 FA sleep#0 XF(ValueError)")
        assert await nothing_left(under.engine.store)
        await under.advance(2 * HOUR)
        assert await journal_of(under, eid) == journal


async def test_a_timer_of_an_owned_execution_is_served_by_its_owner(url: str) -> None:
    """The sweep finds nothing: while a step runs, the sleep beside it ends in memory."""
    registry = Registry()
    gate = Gate()

    @registry.workflow("mixed", version="1")
    async def mixed(ctx: Context) -> Any:
        async def branch() -> str:
            await ctx.sleep(SECONDS_10)
            message = await ctx.receive("x", timeout=SECONDS_10)
            gate.opened.set()
            return "got one" if message else "in time"

        return await ctx.gather(ctx.step(gate.wait, "slow"), branch())

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start(mixed)
        async with running(process) as task:
            await gate.entered.wait()
            assert await process.sweep() == 0
            machines.clock.advance(SECONDS_10)
            assert await process.sweep() == 0
            await entry_of(process.engine, eid, "frame.started", "root/receive#0")
            machines.clock.advance(SECONDS_10)
            await task
        journal = trace(await process.engine.journal(eid))
        assert journal == (
            "XS FS wait#0/1 FS sleep#0/1 CL sleep#0 FS receive#0/1 CL receive#0 FC wait#0 XC"
        )
        assert (await process.engine.execution(eid)).result == ["slow", "in time"]


async def test_a_timer_that_is_due_before_its_suspension_is_stored_still_fires(url: str) -> None:
    async with cluster(sleeping(), url) as machines:
        process = await machines.boot()

        async def wait_an_hour(_: Any) -> None:
            process.wire.before_commit = None
            machines.clock.advance(2 * HOUR)

        eid = await process.engine.start("nap")
        process.wire.before_commit = wait_an_hour
        await process.run_until_idle()
        assert await process.engine.status(eid) == "suspended"
        assert await process.sweep() == 1
        await process.run_until_idle()
        assert await process.engine.status(eid) == "completed"


async def test_what_is_due_already_needs_no_suspension(url: str) -> None:
    registry = Registry()

    @registry.workflow("past", version="1")
    async def past(ctx: Context) -> Any:
        nothing = await ctx.sleep(0)
        long_ago = await ctx.sleep_until(datetime(2020, 1, 1, tzinfo=UTC))
        return [nothing, long_ago]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(past)
        await under.run_until_idle()
        assert await journal_of(under, eid) == (
            "XS FS sleep#0/1 CL sleep#0 FS sleep_until#0/1 CL sleep_until#0 XC"
        )
        row = await under.engine.execution(eid)
        assert row.result == ["2030-01-01T00:00:00Z", "2020-01-01T00:00:00Z"]


async def test_sleep_until_ends_at_its_instant_in_any_timezone(url: str) -> None:
    async with engine_under_test(sleeping(), url=url) as under:
        instant = datetime(2030, 1, 3, 4, 5, 6, 7, tzinfo=UTC)
        eid = await under.engine.start("until", instant)
        await under.run_until_idle()
        await under.advance(timedelta(days=5))
        row = await under.engine.execution(eid)
        assert row.ended_at == instant
        assert datetime.fromisoformat(row.result) == instant


async def test_timers_fire_in_the_order_of_their_instants(url: str) -> None:
    registry = Registry()
    ended: list[int] = []

    @registry.workflow("alarm", version="1")
    async def alarm(ctx: Context, minutes: int) -> None:
        await ctx.sleep(timedelta(minutes=minutes))
        ended.append(minutes)

    async with engine_under_test(registry, url=url) as under:
        await under.engine.start_many(alarm, [[minutes] for minutes in (30, 10, 50, 20, 40)])
        await under.run_until_idle()
        await under.advance(HOUR)
        assert ended == [10, 20, 30, 40, 50]


async def test_waiting_for_an_end_does_not_slow_the_clock_of_a_test_down(url: str) -> None:
    """A month passes in a moment, also after somebody has waited for a result."""
    async with engine_under_test(sleeping(), url=url) as under:
        first = await under.engine.start("nap")
        waiting = asyncio.create_task(under.engine.result(first))
        await under.run_until_idle()
        await under.advance(HOUR)
        await waiting
        second = await under.engine.start("nap")
        await under.run_until_idle()
        await under.advance(timedelta(days=30))
        assert await under.engine.status(second) == "completed"
