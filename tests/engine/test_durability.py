"""What waits for durability? Every delivery to the function, and every attempt after it."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Context, Registry
from perdure.ports.commands import Command
from tests.engine.cluster import Gate, cluster, entry_of, running
from tests.engine.support import Runs, appends, trace_of


@pytest.mark.cold
async def test_outcomes_arrive_in_the_order_of_the_journal(url: str) -> None:
    """Two outcomes that become durable together are delivered as they were appended."""
    registry = Registry()
    gates = {"a": Gate(), "b": Gate()}
    schedules: list[list[str]] = []

    async def work(name: str) -> None:
        await gates[name].wait()

    async def branch(ctx: Context, name: str, schedule: list[str]) -> None:
        await ctx.step(work, name, name=name)
        schedule.append(name)
        await ctx.step(work, name, name="after")

    @registry.workflow("order", version="1")
    async def order(ctx: Context) -> None:
        schedules.append([])
        await ctx.gather(branch(ctx, "a", schedules[-1]), branch(ctx, "b", schedules[-1]))
        await ctx.receive("go")

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start(order)
        async with running(process) as task:
            await entry_of(process.engine, eid, "frame.started", "root/b#0")
            process.wire.passing.clear()
            gates["b"].opened.set()
            await asyncio.sleep(0)
            gates["a"].opened.set()
            process.wire.passing.set()
            await task
        await process.engine.signal(eid, "go", None)
        await process.run_until_idle()
        assert (await trace_of(process, eid)).startswith(
            "XS FS a#0/1 FS b#0/1 FC b#0 FC a#0 FS after#0/1"
        )
        assert await process.engine.status(eid) == "completed"
    assert schedules == [["b", "a"], ["b", "a"]]


@pytest.mark.parametrize(("method", "waits"), [("now", True), ("random", False), ("uuid", False)])
async def test_no_step_starts_before_what_the_function_saw_is_durable(
    url: str, method: str, *, waits: bool
) -> None:
    """The clock cannot be asked again; what chance gives is derived, so nothing waits for it."""
    registry, gate = Registry(), Gate()

    @registry.workflow("seen", version="1")
    async def saw(ctx: Context) -> None:
        getattr(ctx, method)()
        await ctx.step(gate.wait)

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        assert process.worker is not None
        await process.engine.start(saw)
        held = asyncio.Event()

        async def hold(commands: list[Command]) -> None:
            if appends("frame.completed", f"root/{method}#0")(commands):
                held.set()
                process.wire.passing.clear()

        process.wire.before_commit = hold
        async with running(process) as task:
            await held.wait()
            assert gate.entered.is_set() != waits
            process.wire.passing.set()
            await gate.entered.wait()
            gate.opened.set()
            await task


async def test_no_step_starts_before_the_outcome_that_led_to_it_is_durable(url: str) -> None:
    registry, runs = Registry(), Runs()

    async def f() -> None:
        runs["f"] += 1

    @registry.workflow("two", version="1")
    async def two(ctx: Context) -> None:
        await ctx.step(f, name="first")
        await ctx.step(f, name="second")

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        await process.engine.start("two")
        held = asyncio.Event()

        async def hold(commands: list[Command]) -> None:
            if appends("frame.completed", "root/first#0")(commands):
                process.wire.passing.clear()
                held.set()

        process.wire.before_commit = hold
        async with running(process) as task:
            await held.wait()
            assert runs == {"f": 1}
            process.wire.passing.set()
            await task
    assert runs == {"f": 2}
