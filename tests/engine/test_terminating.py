"""Terminate: at once, whoever owns it, with everything below it, and without any of its code."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Actor,
    AlreadyClosed,
    Cancelled,
    ChildFailed,
    Context,
    ExecutionTerminated,
    Registry,
    UnknownExecution,
)
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, entry_of, gated_steps, nothing_left, running, until
from tests.engine.support import Runs, trace_of

ADA = Actor.human("ada@example.com")


def trees(seen: list[str]) -> Registry:
    """Give a workflow ``tree`` whose children are nested, and that cleans up after a cancel."""
    registry = Registry()

    @registry.workflow("tree", version="1")
    async def tree(ctx: Context, depth: int, width: int = 1) -> None:
        try:
            await ctx.gather(
                *(
                    ctx.child(tree, depth - 1, width, key=str(n))
                    for n in range(width if depth else 0)
                ),
                ctx.receive("never"),
            )
        except (Cancelled, ChildFailed) as stopped:
            seen.append(type(stopped).__name__)
            raise

    return registry


async def test_a_tree_is_closed_level_by_level_and_no_code_runs(url: str) -> None:
    seen: list[str] = []
    async with engine_under_test(trees(seen), url=url) as under:
        eid = await under.engine.start("tree", 3, 2)
        await under.run_until_idle()
        rows = (await under.engine.executions()).items
        assert len(rows) == 15
        await under.engine.terminate(eid, reason="gone mad", by=ADA)
        await under.run_until_idle()
        rows = (await under.engine.executions()).items
        assert {row.status.value for row in rows} == {"terminated"}
        assert {row.stop_reason for row in rows} == {"gone mad"}
        for row in rows:
            assert (await trace_of(under, row.eid)).endswith("] XT")
            last = (await under.engine.journal(row.eid))[-1]
            assert (last.epoch, last.payload["reason"]) == (row.epoch, "gone mad")
        with pytest.raises(ExecutionTerminated, match="gone mad"):
            await under.engine.result(eid)
        assert seen == []
        assert await nothing_left(under.engine.store)


async def test_an_owner_is_fenced_and_stops_at_once(url: str) -> None:
    gate, runs = Gate(), Runs()
    first, second = gated_steps(gate, runs)
    registry = Registry()

    @registry.workflow("two", version="1")
    async def two(ctx: Context) -> None:
        await ctx.step(first)
        await ctx.step(second)

    async with cluster(registry, url) as machines:
        owner, operator = await machines.boot(), await machines.boot(worker=False)
        for terminator in (owner, operator):
            eid = await owner.engine.start(two)
            async with running(owner):
                await entry_of(owner.engine, eid, "frame.started", "root/first#0")
                await gate.entered.wait()
                await terminator.engine.terminate(eid)
                if terminator is operator:
                    assert owner.worker is not None
                    await owner.worker.beat_once()
                await until(lambda: owner.worker is not None and not owner.worker._runners)  # noqa: SLF001
                gate.opened.set()
            assert await owner.engine.status(eid) == "terminated"
            assert await trace_of(owner, eid) == "XS FS first#0/1 XT"
            gate.entered.clear()
            gate.opened.clear()
        assert runs == {"first": 2}


async def test_what_an_owner_writes_after_it_is_refused(url: str) -> None:
    """It was not told, and its step ends: the journal does not get the outcome."""
    gate, runs = Gate(), Runs()
    first, second = gated_steps(gate, runs)
    registry = Registry()

    @registry.workflow("two", version="1")
    async def two(ctx: Context) -> None:
        await ctx.step(first)
        await ctx.step(second)

    async with cluster(registry, url) as machines:
        owner, operator = await machines.boot(), await machines.boot(worker=False)
        eid = await owner.engine.start(two)
        async with running(owner) as task:
            await entry_of(owner.engine, eid, "frame.started", "root/first#0")
            await operator.engine.terminate(eid)
            gate.opened.set()
            await task
        assert await trace_of(owner, eid) == "XS FS first#0/1 XT"
        assert runs == {"first": 1}


async def test_a_child_that_was_to_live_on_does_and_a_parent_is_told(url: str) -> None:
    registry = trees([])

    @registry.workflow("parent", version="1")
    async def parent(ctx: Context) -> str:
        frame = ctx.child("tree", 0, key="free", on_parent_cancel="abandon")
        try:
            await ctx.child("tree", 1, key="tied")
        except ChildFailed as failed:
            await ctx.receive("go")
            return f"{failed.status}: {failed.message}"
        await frame
        return "fine"

    async with engine_under_test(registry, url=url) as under:
        told, closed = await under.engine.start(parent), await under.engine.start(parent)
        await under.run_until_idle()
        for row in (await under.engine.executions(parent=told)).items:
            if row.parent is not None and row.parent.fid.endswith("tied"):
                await under.engine.terminate(row.eid, reason="alone", by=ADA)
        await under.run_until_idle()
        await under.engine.signal(told, "go", None)
        await under.run_until_idle()
        assert await under.engine.result(told) == "terminated: by human:ada@example.com: alone"
        await under.engine.terminate(closed)
        rows = {
            row.parent.fid: row.status.value
            for row in (await under.engine.executions(parent=closed)).items
            if row.parent is not None
        }
        assert rows == {"root/tree:free": "suspended", "root/tree:tied": "terminated"}


@pytest.mark.cold
async def test_whatever_state_it_is_in(url: str) -> None:
    registry = trees([])
    names = ["x"]

    @registry.workflow("changing", version="1")
    async def changing(ctx: Context) -> None:
        await ctx.receive(names[0])

    async with engine_under_test(registry, url=url) as under:
        blocked = await under.engine.start(changing)
        await under.run_until_idle()
        names[0] = "y"
        await under.engine.resume(blocked)
        await under.run_until_idle()
        pending = await under.engine.start("tree", 0)
        asked = await under.engine.start("tree", 0, queue="nowhere")
        for eid in (blocked, pending, asked):
            await under.engine.terminate(eid)
            assert await under.engine.status(eid) == "terminated"
            with pytest.raises(AlreadyClosed):
                await under.engine.terminate(eid)
            with pytest.raises(AlreadyClosed):
                await under.engine.signal(eid, "x", 1)
        assert await trace_of(under, pending) == "XT"
        with pytest.raises(UnknownExecution):
            await under.engine.terminate("00000000-0000-7000-8000-000000000000")
        await under.run_until_idle()
        assert await nothing_left(under.engine.store)


async def test_a_dead_worker_does_not_bring_it_back(url: str) -> None:
    gate, runs = Gate(), Runs()
    first, _ = gated_steps(gate, runs)
    registry = Registry()

    @registry.workflow("one", version="1")
    async def one(ctx: Context) -> Any:
        return await ctx.step(first)

    async with cluster(registry, url) as machines:
        owner = await machines.boot()
        eid = await owner.engine.start(one)
        async with running(owner):
            await entry_of(owner.engine, eid, "frame.started", "root/first#0")
            await owner.die()
        other = await machines.boot()
        await other.engine.terminate(eid)
        await other.advance(timedelta(minutes=5))
        assert await trace_of(other, eid) == "XS FS first#0/1 XT"
        assert await nothing_left(machines.store)
