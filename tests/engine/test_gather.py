"""How do frames run beside each other? Results come by argument, errors by the journal."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from perdure import AlreadyClosed, Context, InvalidArgument, Registry, StepFailed
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, entry_of, nothing_left, running
from tests.engine.support import Runs, result_of, trace_of

HOUR = timedelta(hours=1)

colour: ContextVar[str] = ContextVar("colour", default="none")


async def give(value: Any) -> Any:
    return value


async def boom() -> None:
    message = "boom"
    raise ValueError(message)


async def test_results_come_in_the_order_of_the_arguments(url: str) -> None:
    """The steps run before the execution waits for what is left."""
    registry, runs = Registry(), Runs()

    async def count(value: str) -> str:
        runs[value] += 1
        return value

    @registry.workflow("w", version="1")
    async def mixed(ctx: Context) -> list[Any]:
        a, message, b = await ctx.gather(
            ctx.step(count, "a"), ctx.receive("x"), ctx.step(count, "b")
        )
        return [a, message.payload if message else None, b]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(mixed)
        await under.run_until_idle()
        journal = await trace_of(under, eid)
        assert journal.endswith("FC count#1 FU receive#0 XU[channel]")
        assert "FC count#0" in journal
        await under.engine.signal(eid, "x", "message")
        await under.run_until_idle()
        assert await result_of(under, eid) == ["a", "message", "b"]
    assert runs == {"a": 1, "b": 1}


async def test_gathers_nest_and_may_be_empty(url: str) -> None:
    registry = Registry()

    @registry.workflow("w", version="1")
    async def nested(ctx: Context) -> list[Any]:
        inner = ctx.gather(ctx.step(give, "a"), ctx.step(give, "b"))
        both = await ctx.gather(inner, ctx.step(give, "c"), ctx.gather())
        same = ctx.step(give, "d")
        return [*both, await ctx.gather(), await ctx.gather(same, same), await inner]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(nested)
        await under.run_until_idle()
        assert await result_of(under, eid) == [
            *[["a", "b"], "c", []],
            [],
            ["d", "d"],
            ["a", "b"],
        ]
        assert (await trace_of(under, eid)).count("FS") == 4, "a gather has no entry of its own"


async def test_coroutines_are_branches_with_contexts_of_their_own(url: str) -> None:
    registry = Registry()

    async def branch(ctx: Context, name: str) -> list[str]:
        inherited = colour.get()
        colour.set(name)
        first = await ctx.step(give, name)
        inner = await ctx.gather(leaf(ctx), leaf(ctx))
        return [inherited, first, colour.get(), *inner]

    async def leaf(ctx: Context) -> str:
        inherited = colour.get()
        colour.set("leaf")
        await ctx.step(give, "leaf")
        return inherited

    @registry.workflow("w", version="1")
    async def branches(ctx: Context) -> list[Any]:
        colour.set("root")
        left, right, step = await ctx.gather(
            branch(ctx, "left"), branch(ctx, "right"), ctx.step(give, "step")
        )
        await ctx.receive("go")
        return [left, right, step, colour.get()]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(branches)
        await under.run_until_idle()
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await result_of(under, eid) == [
            ["root", "left", "left", "left", "left"],
            ["root", "right", "right", "right", "right"],
            "step",
            "root",
        ]


async def test_branches_that_nobody_awaits_end_with_the_function(url: str) -> None:
    """What still runs when the function returns is left; the execution has ended."""
    registry, runs, gate = Registry(), Runs(), Gate()

    async def branch(ctx: Context) -> None:
        try:
            await ctx.step(gate.wait)
            runs["went on"] += 1
        finally:
            runs["closed"] += 1

    @registry.workflow("w", version="1")
    async def careless(ctx: Context) -> str:
        ctx.gather(branch(ctx), branch(ctx))
        await ctx.step(give, 1)
        return "ended"

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(careless)
        await under.run_until_idle()
        assert await result_of(under, eid) == "ended"
        gate.opened.set()
        await under.run_until_idle()
    assert runs == {"closed": 2}


async def test_a_failure_that_nobody_catches_ends_the_execution_at_once(url: str) -> None:
    """It does not wait for the other frames; they are abandoned, and nothing of them is left."""
    registry = Registry()

    @registry.workflow("w", version="1")
    async def fails(ctx: Context) -> None:
        await ctx.gather(ctx.receive("x", timeout=HOUR), ctx.step(boom), ctx.sleep(HOUR))

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start(fails)
        await process.run_until_idle()
        ended = await trace_of(process, eid)
        assert ended.endswith("FA receive#0 FA sleep#0 XF(StepFailed)")
        assert ended.count("FS") == 3
        assert await nothing_left(machines.store)
        with pytest.raises(AlreadyClosed):
            await process.engine.signal(eid, "x", "too late")
        await process.advance(2 * HOUR)
        assert await trace_of(process, eid) == ended


async def test_the_error_that_is_first_in_the_journal_is_raised(url: str) -> None:
    registry = Registry()
    gates = {"first": Gate(), "second": Gate()}

    async def fail(name: str) -> None:
        await gates[name].wait()
        raise ValueError(name)

    @registry.workflow("w", version="1")
    async def fails(ctx: Context) -> list[str]:
        seen = []
        try:
            await ctx.gather(ctx.step(fail, "second"), ctx.step(fail, "first"))
        except StepFailed as failed:
            seen.append(failed.message)
        await ctx.receive("go")
        return seen

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start(fails)
        async with running(process) as task:
            await gates["first"].entered.wait()
            await process.engine.committer.idle()
            process.wire.passing.clear()
            gates["first"].opened.set()
            await asyncio.sleep(0)
            gates["second"].opened.set()
            await asyncio.sleep(0)
            process.wire.passing.set()
            await task
        await process.engine.signal(eid, "go", None)
        await process.run_until_idle()
        assert await result_of(process, eid) == ["first"]


async def test_errors_may_be_results(url: str) -> None:
    registry = Registry()

    async def branch(ctx: Context) -> None:
        await ctx.step(give, 1)
        raise KeyError("in the function")

    @registry.workflow("w", version="1")
    async def collects(ctx: Context) -> list[str]:
        results = await ctx.gather(
            ctx.step(boom), ctx.step(give, "fine"), branch(ctx), return_exceptions=True
        )
        await ctx.receive("go")
        return [str(result) for result in results]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(collects)
        await under.run_until_idle()
        assert "FA" not in await trace_of(under, eid)
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await result_of(under, eid) == [
            "step root/boom#0 failed after 1 attempt: ValueError: boom",
            "fine",
            "'in the function'",
        ]


async def test_a_crash_inside_a_gather_repeats_what_had_no_outcome(url: str) -> None:
    registry, runs = Registry(), Runs()
    gates = [Gate() for _ in range(5)]

    async def work(index: int) -> int:
        runs[str(index)] += 1
        return int(await gates[index].wait(index))

    @registry.workflow("w", version="1")
    async def five(ctx: Context) -> list[int]:
        return list(await ctx.gather(*(ctx.step(work, index) for index in range(5))))

    async with cluster(registry, url) as machines:
        first = await machines.boot()
        eid = await first.engine.start(five)
        async with running(first):
            await entry_of(first.engine, eid, "frame.started", "root/work#4")
            for index in (3, 0, 2):
                gates[index].opened.set()
                await entry_of(first.engine, eid, "frame.completed", f"root/work#{index}")
        await first.die()
        for gate in gates:
            gate.opened.set()
        second = await machines.boot()
        await second.advance(timedelta(minutes=5))
        assert await result_of(second, eid) == [0, 1, 2, 3, 4]
        assert (await trace_of(second, eid)).count("FC") == 5
    assert runs == {"0": 1, "1": 2, "2": 1, "3": 1, "4": 2}


@pytest.mark.parametrize("member", [None, 7, "text", give, asyncio.sleep])
async def test_what_is_no_frame_is_refused_at_the_call(member: Any) -> None:
    """The coroutines beside it are not begun."""
    registry, runs = Registry(), Runs()

    async def branch() -> None:
        runs["branch"] += 1

    @registry.workflow("w", version="1")
    async def bad(ctx: Context) -> None:
        with pytest.raises(InvalidArgument, match="argument 2 of"):
            ctx.gather(branch(), member)
        await ctx.step(give, 1)

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(bad)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS FS give#0/1 FC give#0 XC"
    assert not runs
