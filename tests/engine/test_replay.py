"""What does a replay repeat? The decisions of the function, never the work of its frames."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, EngineConfig, Registry, StepFailed
from perdure.ports.commands import Command, EndExecution
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, entry_of, holds, nothing_left, running
from tests.engine.support import Runs, appends, result_of, trace, trace_of

AGES = timedelta(minutes=5)
"""Long enough for a session to expire and for its executions to be recovered."""


def two_steps(runs: Runs) -> tuple[Registry, Gate]:
    """Give a workflow of two steps; the first one passes a gate before it has its effect."""
    registry, gate = Registry(), Gate()

    async def f(value: int) -> int:
        await gate.wait()
        runs["f"] += 1
        return value

    async def g(value: int) -> int:
        runs["g"] += 1
        return value

    @registry.workflow("two", version="1")
    async def two(ctx: Context) -> list[int]:
        runs["wf"] += 1
        return [await ctx.step(f, 1), await ctx.step(g, 2)]

    return registry, gate


async def test_a_completed_frame_survives_a_crash(url: str) -> None:
    runs = Runs()
    registry, gate = two_steps(runs)
    gate.opened.set()
    async with cluster(registry, url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("two")
        await first.run_to_death(appends("frame.completed", "root/f#0"), after=True)
        second = await machines.boot()
        await second.advance(AGES)
        assert await trace_of(second, eid) == (
            "XS FS f#0/1 FC f#0 | XR(2,recovery) FS g#0/1 FC g#0 XC"
        )
        completed = [e for e in await second.engine.journal(eid) if e.type == "frame.completed"]
        assert [entry.epoch for entry in completed] == [1, 2]
        assert await result_of(second, eid) == [1, 2]
        assert await nothing_left(machines.store)
    assert runs == {"wf": 2, "f": 1, "g": 1}


@pytest.mark.parametrize(("effect", "runs_of_f"), [(True, 2), (False, 1)])
async def test_a_crash_around_the_effect_repeats_the_attempt(
    url: str, runs_of_f: int, *, effect: bool
) -> None:
    """A step whose outcome was not stored runs again; both attempts are the first."""
    runs = Runs()
    registry, gate = two_steps(runs)
    async with cluster(registry, url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("two")
        async with running(first):
            await entry_of(first.engine, eid, "frame.started", "root/f#0")
            if effect:
                first.wire.doom = appends("frame.completed", "root/f#0")
                gate.opened.set()
                await first.wire.dead.wait()
        await first.die()
        gate.opened.set()
        second = await machines.boot()
        await second.advance(AGES)
        assert await trace_of(second, eid) == (
            "XS FS f#0/1 | XR(2,recovery) FS f#0/1 FC f#0 FS g#0/1 FC g#0 XC"
        )
        assert await result_of(second, eid) == [1, 2]
    assert runs == {"wf": 2, "f": runs_of_f, "g": 1}


async def test_falsy_values_are_memos_too(url: str) -> None:
    registry, runs = Registry(), Runs()
    values: list[Any] = [None, 0, False, "", [], {}]

    async def give(index: int) -> Any:
        runs[str(index)] += 1
        return values[index]

    @registry.workflow("falsy", version="1")
    async def falsy(ctx: Context) -> list[Any]:
        given = [await ctx.step(give, index) for index in range(len(values))]
        assert given == values
        await ctx.receive("go")
        return given

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(falsy)
        await under.run_until_idle()
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        result = await result_of(under, eid)
    assert [(type(value), value) for value in result] == [(type(v), v) for v in values]
    assert set(runs.values()) == {1}


def drawing(runs: Runs) -> Registry:
    """Give a workflow whose step succeeds at its first run and fails at each later one."""
    registry = Registry()

    async def draw() -> str:
        runs["draw"] += 1
        if runs["draw"] > 1:
            message = "a further run"
            raise ValueError(message)
        return "drawn"

    async def n() -> str:
        runs["n"] += 1
        return "fallback"

    @registry.workflow("draw", version="1")
    async def draw_once(ctx: Context) -> str:
        try:
            value = await ctx.step(draw)
        except StepFailed:
            value = await ctx.step(n)
        await ctx.receive("go")
        return value

    return registry


async def test_an_outcome_that_was_stored_before_the_crash_counts(url: str) -> None:
    runs = Runs()
    async with cluster(drawing(runs), url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("draw")
        await first.run_to_death(appends("frame.completed", "root/draw#0"), after=True)
        second = await machines.boot()
        await second.advance(AGES)
        await second.engine.signal(eid, "go", None)
        await second.run_until_idle()
        assert await result_of(second, eid) == "drawn"
    assert runs == {"draw": 1}


async def test_an_outcome_that_comes_after_the_fence_is_refused(url: str) -> None:
    """A paused worker whose execution went on elsewhere cannot add to it when it wakes."""
    runs = Runs()
    async with cluster(drawing(runs), url) as machines:
        first, second = await machines.boot(), await machines.boot()
        eid = await first.engine.start("draw")
        paused = asyncio.Event()

        async def pause(commands: list[Command]) -> None:
            if appends("frame.completed", "root/draw#0")(commands):
                first.wire.before_commit = None
                first.wire.passing.clear()
                paused.set()

        first.wire.before_commit = pause
        async with running(first) as task:
            await paused.wait()
            await second.advance(AGES)
            assert await second.engine.status(eid) == "suspended"
            before = await trace_of(second, eid)
            first.wire.passing.set()
            await task
            assert await trace_of(second, eid) == before
        await second.engine.signal(eid, "go", None)
        await second.run_until_idle()
        assert await result_of(second, eid) == "fallback"
        assert (await trace_of(second, eid)).count("XC") == 1
    assert runs == {"draw": 2, "n": 1}


async def test_a_crash_after_the_end_changes_nothing(url: str) -> None:
    runs = Runs()
    registry, gate = two_steps(runs)
    gate.opened.set()
    async with cluster(registry, url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("two")
        await first.run_to_death(lambda commands: holds(commands, EndExecution), after=True)
        second = await machines.boot()
        journal = await second.engine.journal(eid)
        control = await machines.store.control()
        await second.advance(AGES)
        assert await second.engine.journal(eid) == journal
        assert await machines.store.control() == control
        assert trace(journal) == "XS FS f#0/1 FC f#0 FS g#0/1 FC g#0 XC"
        assert await nothing_left(machines.store)
    assert runs == {"wf": 1, "f": 1, "g": 1}


@pytest.mark.cold
async def test_the_clock_and_chance_are_asked_once(url: str) -> None:
    registry = Registry()

    @registry.workflow("inline", version="1")
    async def inline(ctx: Context) -> Any:
        values: list[Any] = [
            [ctx.now(), ctx.now()],
            [ctx.random(), ctx.random()],
            [ctx.uuid(), ctx.uuid()],
        ]
        seen.append(values)
        await ctx.receive("go")
        return values

    seen: list[Any] = []
    async with engine_under_test(registry, url=url) as under:
        began = under.clock.now()
        eid = await under.engine.start(inline)
        await under.run_until_idle()
        await under.advance(timedelta(days=1))
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "completed"
        fids = ["now#0", "now#1", "random#0", "random#1", "uuid#0", "uuid#1"]
        assert await trace_of(under, eid) == (
            "XS "
            + " ".join(f"FS {fid}/1 FC {fid}" for fid in fids)
            + " FS receive#0/1 FU receive#0 XU[channel] | XR(2,message) CL receive#0 XC"
        )
    live, replayed = seen
    assert live == replayed
    (first_now, second_now), chances, uuids = live
    assert (first_now, second_now) == (began, began)
    assert all(0 <= chance < 1 for chance in chances)
    assert len({*chances, *uuids}) == 4
    assert {one.version for one in uuids} == {4}


async def test_executions_draw_different_chances(url: str) -> None:
    registry = Registry()

    @registry.workflow("chance", version="1")
    async def chance(ctx: Context) -> list[str]:
        return [str(ctx.random()), str(ctx.uuid())]

    async with engine_under_test(registry, url=url) as under:
        eids = await under.engine.start_many(chance, [(), ()])
        await under.run_until_idle()
        results = [await result_of(under, eid) for eid in eids]
    assert len({value for result in results for value in result}) == 4


async def test_ten_recoveries_without_an_outcome_are_allowed(url: str) -> None:
    """The next one parks the execution; a message makes the count begin again."""
    runs = Runs()
    registry, gate = two_steps(runs)
    async with cluster(registry, url) as machines:
        sweeper = await machines.boot(worker=False)
        eid = await sweeper.engine.start("two")

        async def crash() -> None:
            gate.entered.clear()
            process = await machines.boot()
            async with running(process):
                await gate.entered.wait()
            await process.die()
            await sweeper.advance(AGES)

        for _ in range(11):
            await crash()
        assert runs["wf"] == 11
        last = await machines.boot()
        await last.run_until_idle()
        row = await last.engine.execution(eid)
        assert (row.status, row.suspended_on) == ("suspended", ("operator",))
        assert "recovered 11 times" in (row.blocked or "")
        assert runs["wf"] == 11, "the function is not run any more"
        await last.die()
        await sweeper.engine.signal(eid, "operator", "the machine has more memory now")
        await crash()
        gate.opened.set()
        await (await machines.boot()).run_until_idle()
        assert await result_of(sweeper, eid) == [1, 2]
        journal = await sweeper.engine.journal(eid)
        started = [e for e in journal if e.type == "frame.started" and e.fid == "root/f#0"]
        assert {entry.attempt for entry in started} == {1}, "a crash spends no attempt"
        assert trace(journal).endswith("FC f#0 FS g#0/1 FC g#0 XC")


async def test_an_outcome_makes_the_count_of_recoveries_begin_again(url: str) -> None:
    registry, gate = Registry(), Gate()
    config = EngineConfig(drain=0, max_recoveries=2)

    @registry.workflow("long", version="1")
    async def long(ctx: Context) -> None:
        for _ in range(3):
            await ctx.step(gate.wait)

    async with cluster(registry, url) as machines:
        sweeper = await machines.boot(worker=False)
        eid = await sweeper.engine.start(long)
        for step in range(3):
            gate.opened.clear()
            process = await machines.boot(config=config)
            async with running(process):
                await entry_of(process.engine, eid, "frame.started", f"root/wait#{step}")
            await process.die()
            await sweeper.advance(AGES)
            gate.opened.set()
            process = await machines.boot(config=config)
            await process.run_to_death(appends("frame.completed", f"root/wait#{step}"), after=True)
            await sweeper.advance(AGES)
        last = await machines.boot(config=config)
        await last.run_until_idle()
        assert await last.engine.status(eid) == "completed"
        assert (await trace_of(last, eid)).count("recovery") == 6
