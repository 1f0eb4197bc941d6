"""Cancel: when the function sees it, what it may still do, and what becomes of its children."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import (
    Actor,
    AlreadyClosed,
    Cancelled,
    Context,
    ExecutionCancelled,
    InvalidArgument,
    Registry,
    RetryPolicy,
    UnknownExecution,
)
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import Gate, cluster, entry_of, gated_steps, nothing_left, running, turns
from tests.engine.support import Runs, trace_of

ADA = Actor.human("ada@example.com")


async def cancel_in(under: EngineUnderTest, gate: Gate, eid: UUID) -> None:
    """Ask for a cancel while a step stands at a gate, then let the step go on."""
    async with running(under):
        await gate.entered.wait()
        await under.engine.cancel(eid, reason="enough", by=ADA)
        gate.opened.set()
        await under.engine.wait(eid)


async def test_what_runs_may_finish_and_nothing_else_begins(url: str) -> None:
    gate, runs = Gate(), Runs()
    first, second = gated_steps(gate, runs)
    registry = Registry()

    @registry.workflow("two", version="1")
    async def two(ctx: Context) -> None:
        await ctx.step(first)
        await ctx.step(second)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(two)
        await cancel_in(under, gate, eid)
        assert await trace_of(under, eid) == "XS FS first#0/1 FC first#0 XX? XX"
        assert runs == {"first": 1}
        row = await under.engine.execution(eid)
        assert (row.status, row.epoch) == ("cancelled", 1)
        assert (row.stopped_by, row.stop_reason) == (ADA, "enough")
        with pytest.raises(ExecutionCancelled, match="cancelled by human"):
            await under.engine.result(eid)
        last = (await under.engine.journal(eid))[-1]
        assert last.payload == {
            "by": {"kind": "human", "id": "ada@example.com"},
            "reason": "enough",
        }
        assert await nothing_left(under.engine.store)


FRAMES: dict[str, Any] = {
    "sleep": lambda ctx: ctx.sleep(timedelta(days=365)),
    "sleep_until": lambda ctx: ctx.sleep_until(ctx.now() + timedelta(days=1)),
    "receive": lambda ctx: ctx.receive("x"),
    "receive globally": lambda ctx: ctx.receive("x", scope="global"),
    "receive at once": lambda ctx: ctx.receive("x", timeout=0),
    "child": lambda ctx: ctx.child("nothing"),
    "send": lambda ctx: ctx.send("x", 1),
    "send globally": lambda ctx: ctx.send("x", 1, scope="global"),
    "announce": lambda ctx: ctx.announce("x", 1),
    "claim": lambda ctx: ctx.claim("x", 1),
    "gather": lambda ctx: ctx.gather(ctx.receive("x"), ctx.send("y", 1)),
    "select": lambda ctx: ctx.select(ctx.receive("x"), ctx.sleep(5)),
}


@pytest.mark.parametrize("kind", FRAMES)
async def test_every_kind_of_frame_is_a_boundary(url: str, kind: str) -> None:
    """It raises instead of beginning, and leaves no trace."""
    gate, runs = Gate(), Runs()
    first, _ = gated_steps(gate, runs)
    registry = Registry()
    seen: list[Any] = []

    @registry.workflow("nothing", version="1")
    async def nothing(_ctx: Context) -> None:
        runs["child"] += 1

    @registry.workflow("boundary", version="1")
    async def boundary(ctx: Context) -> None:
        await ctx.step(first)
        try:
            await FRAMES[kind](ctx)
        except Exception:  # noqa: BLE001 - a cancel is none
            seen.append("caught")
        except Cancelled:
            seen.append("cancelled")
            raise

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(boundary)
        await cancel_in(under, gate, eid)
        now = " FS now#0/1 FC now#0" if kind == "sleep_until" else ""
        assert await trace_of(under, eid) == f"XS FS first#0/1 FC first#0{now} XX? XX"
        assert seen == ["cancelled"]
        assert runs["child"] == 0
        assert len((await under.engine.executions()).items) == 1
        told = [entry.type for entry in await under.engine.store.control()]
        assert not [kind for kind in told if kind.startswith("announce.")]
        assert await under.engine.broadcast("x", 0) == 1, "nothing was sent on it"
        assert await nothing_left(under.engine.store)


async def test_a_cancel_that_was_acknowledged_is_seen_at_the_next_frame(url: str) -> None:
    """However slow the owner's look is: no frame begins before it."""
    gate, runs = Gate(), Runs()
    first, second = gated_steps(gate, runs)
    registry = Registry()

    @registry.workflow("two", version="1")
    async def two(ctx: Context) -> None:
        await ctx.step(first)
        await ctx.gather(ctx.step(second), ctx.send("x", 1))

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        looked = asyncio.Event()

        async def look_slowly() -> None:
            await looked.wait()

        process.wire.after["mail"] = look_slowly
        eid = await process.engine.start(two)
        async with running(process):
            await gate.entered.wait()
            await process.engine.cancel(eid)
            gate.opened.set()
            await entry_of(process.engine, eid, "frame.completed", "root/first#0")
            await turns()
            assert (await trace_of(process, eid)).endswith("FC first#0")
            looked.set()
            await process.engine.wait(eid)
        assert await trace_of(process, eid) == "XS FS first#0/1 FC first#0 XX? XX"
        assert runs == {"first": 1}


@pytest.mark.parametrize("restart", [False, True])
async def test_a_suspended_execution_is_replayed_and_cancelled_at_its_waits(
    url: str, *, restart: bool
) -> None:
    registry = Registry()
    seen: list[str] = []

    async def undo(what: str) -> str:
        seen.append(what)
        return what

    @registry.workflow("saga", version="1")
    async def saga(ctx: Context) -> None:
        requested = ctx.cancel_requested
        try:
            await ctx.gather(ctx.receive("x"), ctx.sleep(3600), ctx.receive("y", timeout=60))
        except Cancelled:
            seen.append(f"{requested} {ctx.cancel_requested}")
            async with ctx.shield():
                await ctx.step(undo, "one")
                await ctx.sleep(5)
                await ctx.step(undo, "two")
            raise

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(saga)
        await under.run_until_idle()
        await under.engine.signal(eid, "x", "competes")
        await under.engine.cancel(eid)
        await under.engine.cancel(eid, by=ADA, reason="the second request")
        if restart:
            await under.kill_worker()
            await under.start_worker()
        await under.run_until_idle()
        if restart:
            await under.kill_worker()
            await under.start_worker()
        await under.advance(10)
        assert await under.engine.status(eid) == "cancelled"
        assert await trace_of(under, eid) == (
            "XS FS receive#0/1 FS sleep#0/1 FS receive#1/1 FU receive#0 FU sleep#0 FU receive#1 "
            "XU[channel,timer,channel] | XR(2,message) XX? FS undo#0/1 FC undo#0 FS sleep#1/1 "
            "FU sleep#1 XU[timer] | XR(3,timer) CL sleep#1 FS undo#1/1 FC undo#1 XX"
        )
        assert [what for what in seen if " " not in what] == ["one", "two"]
        assert {what for what in seen if " " in what} == {"False True"}
        row = await under.engine.execution(eid)
        assert str(row.stopped_by) == "system:perdure", "the first request counts"
        assert await nothing_left(under.engine.store)


async def test_a_pending_execution_is_cancelled_without_being_run(url: str) -> None:
    runs = Runs()
    registry = Registry()

    @registry.workflow("never", version="1")
    async def never(_ctx: Context) -> None:
        runs["never"] += 1

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(never)
        await under.engine.cancel(eid, reason="before")
        assert await under.engine.status(eid) == "cancelled"
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XX"
        assert runs["never"] == 0
        assert await nothing_left(under.engine.store)


async def test_what_has_ended_is_refused_and_what_never_was_is_unknown(url: str) -> None:
    registry = Registry()

    @registry.workflow("short", version="1")
    async def short(_ctx: Context) -> int:
        return 1

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(short)
        await under.run_until_idle()
        before = await trace_of(under, eid)
        with pytest.raises(AlreadyClosed):
            await under.engine.cancel(eid)
        with pytest.raises(UnknownExecution):
            await under.engine.cancel("00000000-0000-7000-8000-000000000000")
        with pytest.raises(InvalidArgument):
            await under.engine.cancel("nobody")
        with pytest.raises(InvalidArgument):
            await under.engine.cancel(eid, reason=7)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            await under.engine.cancel(eid, by="ada")  # type: ignore[arg-type]
        assert await trace_of(under, eid) == before
        assert (await under.engine.execution(eid)).stopped_by is None


async def test_a_function_that_returns_without_another_frame_has_completed(url: str) -> None:
    gate, runs = Gate(), Runs()
    first, _ = gated_steps(gate, runs)
    registry = Registry()

    @registry.workflow("returns", version="1")
    async def returns(ctx: Context) -> Any:
        return await ctx.step(first)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(returns)
        await cancel_in(under, gate, eid)
        assert await under.engine.result(eid) == "one"
        assert "XX" not in await trace_of(under, eid)


async def test_a_function_that_swallows_it_is_cancelled_all_the_same(url: str) -> None:
    registry = Registry()
    seen: list[int] = []

    @registry.workflow("swallows", version="1")
    async def swallows(ctx: Context) -> str:
        for number in range(3):
            try:
                await ctx.sleep(3600)
            except Cancelled:
                seen.append(number)
        return "as if nothing had happened"

    @registry.workflow("breaks", version="1")
    async def breaks(ctx: Context) -> None:
        try:
            await ctx.sleep(3600)
        finally:
            raise ValueError("in the cleanup")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(swallows)
        other = await under.engine.start(breaks)
        await under.run_until_idle()
        await under.engine.cancel(eid)
        await under.engine.cancel(other)
        await under.run_until_idle()
        assert seen == [0, 1, 2]
        assert await under.engine.status(eid) == "cancelled"
        row = await under.engine.execution(other)
        assert (row.status, row.error) == ("failed", ("ValueError", "in the cleanup"))


async def test_a_gather_waits_for_the_cleanup_of_its_branches(url: str) -> None:
    registry = Registry()
    seen: list[str] = []

    async def undo(name: str) -> None:
        seen.append(name)

    async def guarded(ctx: Context, name: str) -> None:
        try:
            await ctx.sleep(3600)
        except Cancelled:
            async with ctx.shield():
                await ctx.step(undo, name, key=name)
            raise

    @registry.workflow("branches", version="1")
    async def branches(ctx: Context) -> None:
        await ctx.gather(guarded(ctx, "a"), ctx.receive("x"), guarded(ctx, "b"))

    @registry.workflow("first", version="1")
    async def first(ctx: Context) -> None:
        await ctx.select(ctx.receive("x"), guarded(ctx, "c"))

    async with engine_under_test(registry, url=url) as under:
        for workflow in (branches, first):
            eid = await under.engine.start(workflow)
            await under.run_until_idle()
            await under.engine.cancel(eid)
            await under.run_until_idle()
            assert await under.engine.status(eid) == "cancelled"
            assert "FA" not in await trace_of(under, eid)
        assert sorted(seen) == ["a", "b", "c"]


async def test_shielded_frames_know_nothing_of_a_cancel(url: str) -> None:
    registry = Registry()

    @registry.workflow("shielded", version="1")
    async def shielded(ctx: Context) -> Any:
        async with ctx.shield():
            message = await ctx.receive("x")
        try:
            await ctx.sleep(1)
        except Cancelled:
            return "unseen"
        return message

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(shielded)
        await under.run_until_idle()
        await under.engine.cancel(eid)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "suspended"
        await under.engine.signal(eid, "x", 1)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "cancelled"
        assert await trace_of(under, eid) == (
            "XS FS receive#0/1 FU receive#0 XU[channel] | XR(2,cancel) XX? XU[channel] "
            "| XR(3,message) CL receive#0 XX"
        )


async def test_a_step_that_waits_for_its_next_attempt_is_cancelled(url: str) -> None:
    registry = Registry()
    runs = Runs()

    async def fail() -> None:
        runs["fail"] += 1
        raise ValueError("no")

    @registry.workflow("retries", version="1")
    async def retries(ctx: Context) -> None:
        await ctx.step(fail, retry=RetryPolicy(max_attempts=9, backoff=timedelta(minutes=1)))

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(retries)
        await under.run_until_idle()
        await under.engine.cancel(eid)
        await under.advance(600)
        assert await under.engine.status(eid) == "cancelled"
        assert runs["fail"] == 1
        assert (await trace_of(under, eid)).endswith("XU[timer] | XR(2,cancel) XX? XX")
