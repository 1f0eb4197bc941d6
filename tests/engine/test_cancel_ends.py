"""What becomes of a cancel? Children, blocked executions, deaths, drains, and what is left open."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from perdure import Actor, Cancelled, Context, EngineConfig, Registry
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, gated_steps, running
from tests.engine.support import Runs, appends, trace_of

ADA = Actor.human("ada@example.com")


async def test_children_are_cancelled_too_unless_they_were_started_to_live_on(url: str) -> None:
    registry = Registry()
    undone: list[int] = []

    async def undo(depth: int) -> None:
        undone.append(depth)

    @registry.workflow("deep", version="1")
    async def deep(ctx: Context, depth: int) -> None:
        try:
            if depth:
                await ctx.child(deep, depth - 1)
            await ctx.receive("never")
        except Cancelled:
            async with ctx.shield():
                await ctx.step(undo, depth)
            raise

    @registry.workflow("parent", version="1")
    async def parent(ctx: Context) -> None:
        await ctx.gather(
            ctx.child(deep, 2),
            ctx.child(deep, 0, key="free", on_parent_cancel="abandon"),
            ctx.child(deep, 0, key="elsewhere", queue="nowhere"),
        )

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(parent)
        await under.run_until_idle()
        await under.engine.cancel(eid, reason="all of it", by=ADA)
        await under.run_until_idle()
        rows = {row.eid: row for row in (await under.engine.executions()).items}
        free = [row for row in rows.values() if not row.status.terminal]
        assert [row.parent.fid for row in free if row.parent] == ["root/deep:free"]
        rest = [row for row in rows.values() if row.status.terminal]
        assert len(rest) == 5
        assert {row.status.value for row in rest} == {"cancelled"}
        assert {(row.stopped_by, row.stop_reason) for row in rest} == {(ADA, "all of it")}
        assert sorted(undone) == [0, 1, 2], "the one that was pending never ran"


@pytest.mark.cold
async def test_a_blocked_execution_is_cancelled_without_its_function(url: str) -> None:
    registry = Registry()
    names = ["x"]
    runs = Runs()

    @registry.workflow("child", version="1")
    async def child(ctx: Context) -> None:
        await ctx.receive("never")

    @registry.workflow("changing", version="1")
    async def changing(ctx: Context) -> None:
        frame = ctx.child(child) if names == ["x"] else None
        await ctx.receive(names[0])
        runs["after"] += 1
        if frame is not None:
            await frame

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(changing)
        await under.run_until_idle()
        names[0] = "y"
        await under.engine.resume(eid)
        await under.run_until_idle()
        assert (await under.engine.execution(eid)).blocked is not None
        await under.engine.cancel(eid, reason="hopeless")
        await under.run_until_idle()
        assert await under.engine.status(eid) == "cancelled"
        assert (await trace_of(under, eid)).endswith("XU[operator] | XR(3,cancel) XX")
        assert runs["after"] == 0
        (row,) = (await under.engine.executions(parent=eid)).items
        assert row.status == "cancelled"


async def test_a_cancel_survives_the_death_of_whoever_delivered_it(url: str) -> None:
    registry = Registry()
    undone: list[str] = []

    async def undo() -> None:
        undone.append("undone")

    @registry.workflow("saga", version="1")
    async def saga(ctx: Context) -> None:
        try:
            await ctx.sleep(3600)
        except Cancelled:
            async with ctx.shield():
                await ctx.step(undo)
            raise

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start(saga)
        await process.run_until_idle()
        await process.engine.cancel(eid)
        await process.run_to_death(appends("execution.cancelling"), after=True)
        heir = await machines.boot()
        await heir.advance(60)
        assert await heir.engine.status(eid) == "cancelled"
        assert undone == ["undone"]
        line = await trace_of(heir, eid)
        assert line.count("XX?") == 1
        assert line.endswith("XX? | XR(3,recovery) FS undo#0/1 FC undo#0 XX")


async def test_a_cancel_during_a_drain_is_delivered_elsewhere(url: str) -> None:
    gate, runs = Gate(), Runs()
    first, second = gated_steps(gate, runs)
    registry = Registry()

    @registry.workflow("two", version="1")
    async def two(ctx: Context) -> None:
        await ctx.step(first)
        await ctx.step(second)

    async with cluster(registry, url) as machines:
        process = await machines.boot(config=EngineConfig(drain=30))
        eid = await process.engine.start(two)
        async with running(process):
            await gate.entered.wait()
            assert process.worker is not None
            draining = asyncio.ensure_future(process.worker.drain())
            await process.engine.cancel(eid)
            gate.opened.set()
            await draining
        heir = await machines.boot()
        await heir.run_until_idle()
        assert await heir.engine.status(eid) == "cancelled"
        assert runs == {"first": 1}


async def test_a_function_that_continues_after_a_cancel_is_cancelled(url: str) -> None:
    registry = Registry()

    @registry.workflow("loop", version="1")
    async def loop(ctx: Context) -> None:
        with suppress(Cancelled):
            await ctx.sleep(3600)
        ctx.continue_as()

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(loop)
        await under.run_until_idle()
        await under.engine.cancel(eid)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "cancelled"
        assert len((await under.engine.executions()).items) == 1


@pytest.mark.parametrize("how", ["cancel", "terminate", "fail"])
async def test_no_frame_seems_to_wait_when_its_execution_has_ended(url: str, how: str) -> None:
    registry = Registry()

    @registry.workflow("waits", version="1")
    async def waits(ctx: Context) -> None:
        ctx.receive("never")
        await ctx.receive("x")
        raise ValueError("enough")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(waits)
        await under.run_until_idle()
        if how == "fail":
            await under.engine.signal(eid, "x", 1)
        else:
            await getattr(under.engine, how)(eid)
        await under.run_until_idle()
        tree = await under.engine.frames(eid)
        left = {"cancel": "cancelled", "terminate": "terminated", "fail": "abandoned"}[how]
        ended = "completed" if how == "fail" else left
        assert [frame.status for frame in tree.children] == [left, ended]
        assert {frame.waits_on for frame in tree.children} == {None}
        assert tree.status == ("failed" if how == "fail" else left)
