"""Children: ids, results and failures, inheritance, queues, and who is told of their ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import (
    ChildFailed,
    Context,
    EngineConfig,
    ExecutionFailed,
    InvalidArgument,
    Registry,
    StartOptions,
    UnknownWorkflow,
)
from perdure.ports.commands import Command, CreateExecution, EndExecution
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import cluster, holds, nothing_left, retrying
from tests.engine.support import Runs, trace_of


@dataclass
class Box:
    """A value with a type."""

    number: int


def family(runs: Runs) -> Registry:  # noqa: C901 - small functions, one after the other
    """Give workflows that start each other."""
    registry = Registry()

    async def note(what: str) -> str:
        runs[what] += 1
        return what

    @registry.workflow("the.leaf", version="1")
    async def leaf(_ctx: Context, number: int) -> int:
        runs["leaf"] += 1
        if number < 0:
            message = f"{number} is negative"
            raise ValueError(message)
        return number * number

    @registry.workflow("boxed", version="1")
    async def boxed(_ctx: Context, number: int) -> Box:
        return Box(number)

    @registry.workflow("waiter", version="1", queue="slow")
    async def waiter(ctx: Context) -> Any:
        message = await ctx.receive("x")
        return None if message is None else message.payload

    @registry.workflow("one", version="1")
    async def one(ctx: Context, number: int) -> list[Any]:
        runs["one"] += 1
        box = await ctx.child(boxed, 7)
        return [await ctx.child(leaf, number), isinstance(box, Box), box.number]

    @registry.workflow("careful", version="1")
    async def careful(ctx: Context, workflow: str, *args: Any) -> str:
        try:
            await ctx.child(workflow, *args)
        except ChildFailed as failed:
            first = await ctx.step(note, failed.status)
            await ctx.receive("go")
            return f"{first} {failed.eid} {failed.error_type} {failed.message}"
        return "fine"

    @registry.workflow("many", version="1")
    async def many(ctx: Context, numbers: list[int]) -> list[int]:
        runs["many"] += 1
        return await ctx.gather(*(ctx.child(leaf, n, key=str(i)) for i, n in enumerate(numbers)))

    @registry.workflow("on", version="1")
    async def on(ctx: Context, queue: str | None) -> Any:
        return await ctx.child("waiter", queue=queue, name="other")

    return registry


async def children(under: EngineUnderTest, eid: UUID) -> list[Any]:
    """List the children of an execution."""
    return list((await under.engine.executions(parent=eid)).items)


async def test_a_child_runs_once_and_gives_its_typed_result(url: str) -> None:
    runs = Runs()
    async with engine_under_test(family(runs), url=url) as under:
        eid = await under.engine.start("one", 3)
        await under.run_until_idle()
        assert await under.engine.result(eid) == [9, True, 7]
        assert runs["leaf"] == 1
        assert await trace_of(under, eid) == (
            "XS FS boxed#0/1 FU boxed#0 XU[child] | XR(2,child) CL boxed#0 "
            "FS leaf#0/1 FU leaf#0 XU[child] | XR(3,child) CL leaf#0 XC"
        )
        (first, second) = sorted(await children(under, eid), key=lambda row: row.workflow)
        assert (first.parent, second.parent) == ((eid, "root/boxed#0"), (eid, "root/leaf#0"))
        assert await nothing_left(under.engine.store)


async def test_the_id_of_a_child_is_that_of_its_frame(url: str) -> None:
    async with engine_under_test(family(Runs()), url=url) as under:
        eids = [await under.engine.start("many", [1, 2]) for _ in range(2)]
        await under.run_until_idle()
        ids = [row.eid for eid in eids for row in await children(under, eid)]
        assert len(set(ids)) == 4
        assert {one.version for one in ids} == {5}
        on = [
            entry.payload["on"]
            for entry in await under.engine.journal(eids[0])
            if entry.type == "frame.suspended"
        ]
        assert set(on) == {f"child:{row.eid}" for row in await children(under, eids[0])}


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_child_that_does_not_complete_raises_the_same_on_every_replay(
    url: str, *, cancelled: bool
) -> None:
    runs = Runs()
    async with engine_under_test(family(runs), url=url, queues=("default", "slow")) as under:
        workflow = ("waiter",) if cancelled else ("the.leaf", -1)
        eid = await under.engine.start("careful", *workflow)
        await under.run_until_idle()
        (child,) = await children(under, eid)
        if cancelled:
            await under.engine.cancel(child.eid, reason="enough")
            await under.run_until_idle()
        await under.kill_worker()
        await under.start_worker()
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        status = "cancelled" if cancelled else "failed"
        end = {
            "cancelled": "ExecutionCancelled by system:perdure: enough",
            "failed": "ValueError -1 is negative",
        }[status]
        assert await under.engine.result(eid) == f"{status} {child.eid} {end}"
        assert runs[status] == 1
        assert len(await children(under, eid)) == 1


async def test_a_failure_that_nobody_catches_fails_the_parent_at_once(url: str) -> None:
    runs = Runs()
    async with engine_under_test(family(runs), url=url) as under:
        eid = await under.engine.start("many", [1, -1, 2])
        await under.run_until_idle()
        with pytest.raises(ExecutionFailed, match="ChildFailed: child execution"):
            await under.engine.result(eid)
        rows = await children(under, eid)
        assert all(row.status.terminal for row in rows)
        assert await nothing_left(under.engine.store)


async def test_results_come_in_the_order_of_the_arguments(url: str) -> None:
    runs = Runs()
    async with engine_under_test(family(runs), url=url, max_executions=3) as under:
        eid = await under.engine.start("many", list(range(30)))
        await under.run_until_idle()
        assert await under.engine.result(eid) == [n * n for n in range(30)]
        assert runs["leaf"] == 30
        empty = await under.engine.start("many", [])
        await under.run_until_idle()
        assert await under.engine.result(empty) == []
        assert await trace_of(under, empty) == "XS XC"


async def test_a_child_stands_on_its_own_queue_and_its_parent_on_its_own(url: str) -> None:
    async with cluster(family(Runs()), url) as machines:
        one = await machines.boot()
        own = await one.engine.start("on", None)
        other = await one.engine.start("on", "third")
        await one.run_until_idle()
        (slow,) = await children(one, own)
        (third,) = await children(one, other)
        assert (slow.queue, third.queue) == ("slow", "third")
        assert (slow.status, third.status) == ("pending", "pending")
        two = await machines.boot(queues=("slow", "third"))
        for row in (slow, third):
            await one.engine.signal(row.eid, "x", "done")
        await two.run_until_idle()
        assert await one.engine.status(own) == "suspended"
        await one.run_until_idle()
        assert await one.engine.result(own) == await one.engine.result(other) == "done"


async def test_a_child_inherits_priority_and_baggage(url: str) -> None:
    registry = Registry()
    seen: list[Any] = []

    @registry.workflow("child", version="1")
    async def child(ctx: Context) -> None:
        seen.append((ctx.eid, dict(ctx.baggage)))

    @registry.workflow("parent", version="1")
    async def parent(ctx: Context) -> None:
        await ctx.child(child)
        options = StartOptions(priority=9, baggage={"b": "2"}, tags={"t": "x"})
        await ctx.child(child, options=options)

    async with engine_under_test(registry, url=url) as under:
        options = StartOptions(priority=5, baggage={"a": "1"}, tags={"p": "y"})
        eid = await under.engine.start(parent, options=options)
        await under.run_until_idle()
        assert [baggage for _, baggage in seen] == [{"a": "1"}, {"a": "1", "b": "2"}]
        records = [await under.engine.store.record(child_id) for child_id, _ in seen]
        assert [r.options.priority for r in records if r] == [5, 9]
        assert [r.options.tags for r in records if r] == [{}, {"t": "x"}]
        assert {r.created_by.kind for r in records if r} == {"worker"}
        assert (await under.engine.execution(eid)).status == "completed"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda ctx: ctx.child("nobody"), UnknownWorkflow),
        (lambda ctx: ctx.child(print), UnknownWorkflow),
        (lambda ctx: ctx.child("the.leaf"), InvalidArgument),
        (lambda ctx: ctx.child("the.leaf", 1, 2), InvalidArgument),
        (lambda ctx: ctx.child("the.leaf", "no number"), InvalidArgument),
        (lambda ctx: ctx.child("the.leaf", object()), InvalidArgument),
        (lambda ctx: ctx.child("the.leaf", 1, queue="no queue!"), InvalidArgument),
        (lambda ctx: ctx.child("the.leaf", 1, options=7), InvalidArgument),
        (lambda ctx: ctx.child("the.leaf", 1, options=StartOptions(priority=-1)), InvalidArgument),
        (lambda ctx: ctx.child("the.leaf", 1, on_parent_cancel="keep"), InvalidArgument),
    ],
)
async def test_a_child_that_cannot_be_meant_is_refused_and_nothing_is_stored(
    url: str, call: Any, error: type[Exception]
) -> None:
    registry = family(Runs())

    @registry.workflow("wrong", version="1")
    async def wrong(ctx: Context) -> str:
        with pytest.raises(error):
            await call(ctx)
        return "refused"

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(wrong)
        await under.run_until_idle()
        assert await under.engine.result(eid) == "refused"
        assert await trace_of(under, eid) == "XS XC"
        assert len((await under.engine.executions()).items) == 1


@pytest.mark.cold
async def test_a_child_whose_workflow_is_gone_blocks_its_parent_and_does_not_fail_it(
    url: str,
) -> None:
    async with cluster(family(Runs()), url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("careful", "the.leaf", -1)
        await first.run_until_idle()
        await first.die()
        poorer = Registry()
        poorer.workflow("careful", version="1")(family(Runs()).get("careful", "1").function)  # type: ignore[union-attr]
        second = await machines.boot(registry=poorer)
        await second.engine.signal(eid, "go", None)
        await second.run_until_idle()
        blocked = (await second.engine.execution(eid)).blocked
        assert blocked is not None
        assert "the.leaf" in blocked
        await second.die()
        third = await machines.boot()
        await third.engine.resume(eid)
        await third.run_until_idle()
        assert str(await third.engine.result(eid)).startswith("failed")


async def test_a_child_of_a_child_that_waits_is_not_told_to_anybody_else(url: str) -> None:
    """The end of a child resumes its parent once, and nobody above it."""
    registry = Registry()

    @registry.workflow("nested", version="1")
    async def nested(ctx: Context, depth: int) -> int:
        if not depth:
            await ctx.sleep(timedelta(hours=1))
            return 1
        return 1 + await ctx.child(nested, depth - 1)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(nested, 3)
        await under.run_until_idle()
        await under.advance(timedelta(hours=1))
        assert await under.engine.result(eid) == 4
        line = "XS FS nested#0/1 FU nested#0 XU[child] | XR(2,child) CL nested#0 XC"
        assert await trace_of(under, eid) == line


async def test_the_execution_that_a_lost_frame_started_is_asked_to_cancel(url: str) -> None:
    """The losers of a select, and what a failed gather leaves, do not run on by accident."""
    registry = family(Runs())

    async def fail() -> None:
        raise ValueError("no")

    @registry.workflow("loses", version="1")
    async def loses(ctx: Context) -> int:
        place, _ = await ctx.select(ctx.child("waiter"), ctx.sleep(60))
        await ctx.sleep(60)
        return place

    @registry.workflow("fails", version="1")
    async def fails(ctx: Context) -> None:
        await ctx.gather(ctx.child("waiter", on_parent_cancel="abandon"), ctx.step(fail))

    async with engine_under_test(registry, url=url, queues=("default", "slow")) as under:
        loser = await under.engine.start(loses)
        failer = await under.engine.start(fails)
        await under.run_until_idle()
        await under.advance(121)
        assert await under.engine.result(loser) == 1
        (lost,) = await children(under, loser)
        assert lost.status == "cancelled"
        assert lost.stop_reason == (
            "its frame was abandoned: another frame of its select was first"
        )
        (kept,) = await children(under, failer)
        assert (await under.engine.status(failer), kept.status) == ("failed", "suspended")


async def test_a_parent_that_returns_leaves_no_child_behind(url: str) -> None:
    registry = family(Runs())

    @registry.workflow("careless", version="1")
    async def careless(ctx: Context) -> str:
        ctx.child("waiter")
        ctx.child("waiter", on_parent_cancel="abandon")
        await ctx.sleep(1)
        return "done"

    async with engine_under_test(registry, url=url, queues=("default", "slow")) as under:
        eid = await under.engine.start(careless)
        await under.run_until_idle()
        await under.advance(2)
        assert await under.engine.result(eid) == "done"
        rows = await children(under, eid)
        assert sorted(row.status.value for row in rows) == ["cancelled", "suspended"]
        (asked,) = [row for row in rows if row.status == "cancelled"]
        assert asked.stop_reason == "its parent is completed"


async def test_the_end_of_a_child_whose_parent_is_gone_is_no_error(url: str) -> None:
    registry = family(Runs())

    @registry.workflow("short", version="1")
    async def short(ctx: Context) -> None:
        ctx.child("waiter", on_parent_cancel="abandon")
        await ctx.sleep(1)

    async with engine_under_test(
        registry, url=url, queues=("default", "slow"), config=EngineConfig(drain=0)
    ) as under:
        eid = await under.engine.start(short)
        await under.run_until_idle()
        await under.advance(2)
        (child,) = await children(under, eid)
        before = await trace_of(under, eid)
        await under.engine.signal(child.eid, "x", 5)
        await under.run_until_idle()
        assert await under.engine.result(child.eid) == 5
        assert await trace_of(under, eid) == before
        assert await nothing_left(under.engine.store)


async def test_a_child_that_is_to_live_on_is_started_even_if_nobody_awaits_it(url: str) -> None:
    registry = family(Runs())

    @registry.workflow("leaves", version="1")
    async def leaves(ctx: Context) -> str:
        ctx.child("the.leaf", 3, key="tied")
        ctx.child("the.leaf", 4, key="free", on_parent_cancel="abandon")
        return "left"

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(leaves)
        await under.run_until_idle()
        assert await under.engine.result(eid) == "left"
        (child,) = await children(under, eid)
        assert (child.parent.fid, child.result) == ("root/leaf:free", 16)
        assert await nothing_left(under.engine.store)


@pytest.mark.parametrize("kind", [CreateExecution, EndExecution], ids=["its start", "its end"])
@pytest.mark.parametrize("lost", ["never applied", "answer lost"])
async def test_no_trouble_with_the_store_loses_or_doubles_a_child(
    url: str, kind: type, lost: str
) -> None:
    runs = Runs()
    async with cluster(family(runs), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("one", 3)

        async def trouble(commands: list[Command]) -> None:
            if not holds(commands, kind):
                return
            process.wire.before_commit = None
            if lost == "answer lost":
                process.wire.answers_lost = 1
            else:
                process.wire.down = True
                asyncio.get_running_loop().call_later(0.05, up)

        def up() -> None:
            process.wire.down = False

        process.wire.before_commit = trouble
        async with retrying(machines.clock):
            await process.run_until_idle()
        assert await process.engine.result(eid) == [9, True, 7]
        assert runs["leaf"] == 1
        assert len(await children(process, eid)) == 2
        assert "FF" not in await trace_of(process, eid)
        assert await nothing_left(machines.store)
