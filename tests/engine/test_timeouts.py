"""What if an execution takes longer than it may? It is terminated, wherever it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, ExecutionTerminated, InvalidArgument, Registry, StartOptions
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, nothing_left, running, until
from tests.engine.support import trace_of

HOUR = StartOptions(timeout=timedelta(hours=1))


def waiting() -> Registry:
    """Give a workflow, ``wait``, that waits for ever, with a child that does so, too."""
    registry = Registry()

    @registry.workflow("wait", version="1")
    async def wait(ctx: Context, depth: int) -> None:
        if depth:
            await ctx.child(wait, depth - 1)
        await ctx.receive("never")

    return registry


async def test_a_suspended_execution_is_terminated_with_its_children(url: str) -> None:
    async with engine_under_test(waiting(), url=url) as under:
        eid = await under.engine.start("wait", 1, options=HOUR)
        await under.run_until_idle()
        await under.advance(3599)
        assert await under.engine.status(eid) == "suspended"
        await under.advance(1)
        with pytest.raises(ExecutionTerminated, match="timeout"):
            await under.engine.result(eid)
        (child,) = (await under.engine.executions(parent=eid)).items
        assert child.status == "terminated"
        assert (await trace_of(under, eid)).endswith("XU[child] XT")
        assert await nothing_left(under.engine.store)
        assert await under.sweep() == 0


async def test_an_execution_that_ends_in_time_is_left_alone(url: str) -> None:
    async with engine_under_test(waiting(), url=url) as under:
        eid = await under.engine.start("wait", 0, options=HOUR)
        await under.run_until_idle()
        await under.engine.signal(eid, "never", None)
        await under.run_until_idle()
        await under.advance(7200)
        assert await under.engine.status(eid) == "completed"


async def test_a_running_execution_is_terminated_and_its_owner_stops(url: str) -> None:
    gate = Gate()
    registry = Registry()
    after: list[Any] = []

    @registry.workflow("slow", version="1")
    async def slow(ctx: Context) -> None:
        await ctx.step(gate.wait)
        after.append(await ctx.step(gate.wait))

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("slow", options=HOUR)
        async with running(process):
            await gate.entered.wait()
            machines.clock.advance(timedelta(hours=1))
            assert await process.sweep() == 1
            gate.opened.set()
            await until(lambda: process.worker is not None and not process.worker._runners)  # noqa: SLF001
        assert await process.engine.status(eid) == "terminated"
        assert after == []


async def test_time_before_a_planned_start_does_not_count(url: str) -> None:
    async with engine_under_test(waiting(), url=url) as under:
        begin = under.clock.now() + timedelta(hours=5)
        options = StartOptions(timeout=3600, not_before=begin)
        eid = await under.engine.start("wait", 0, options=options)
        await under.advance(timedelta(hours=5, minutes=59))
        assert await under.engine.status(eid) == "suspended"
        await under.advance(60)
        assert await under.engine.status(eid) == "terminated"


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon", True])
async def test_a_timeout_that_is_no_duration_is_refused(timeout: Any) -> None:
    async with engine_under_test(waiting()) as under:
        with pytest.raises(InvalidArgument, match="option timeout"):
            await under.engine.start("wait", 0, options=StartOptions(timeout=timeout))
        assert (await under.engine.store_info()).executions == {}
