"""Where does a step run, for how long, and what does it know of itself?"""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Context,
    EngineConfig,
    InvalidArgument,
    Registry,
    RetryPolicy,
    StepFailed,
    step_info,
)
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, entry_of, running
from tests.engine.support import result_of, trace_of

TWICE = RetryPolicy(max_attempts=2)
TIMED_OUT = "XS FS f#0/1 FF f#0/1 FS f#0/2 FC f#0 XC"

word: ContextVar[str] = ContextVar("word", default="unset")


async def test_a_step_knows_what_it_is(url: str) -> None:
    """So does a thread; the key is the same at each attempt and another for each other step."""
    registry = Registry()
    keys: list[str] = []

    def describe() -> list[Any]:
        info = step_info()
        keys.append(info.idempotency_key)
        if info.attempt == 1:
            raise ValueError
        return [str(info.eid), info.fid, info.attempt, info.started_at.isoformat()]

    async def describe_async() -> list[Any]:
        return describe()

    @registry.workflow("w", version="1")
    async def two(ctx: Context) -> Any:
        one = await ctx.step(describe, retry=TWICE)
        return [one, await ctx.step(describe_async, name="other", key="k", retry=TWICE)]

    async with engine_under_test(registry, url=url) as under:
        began = under.clock.now().isoformat()
        eid = await under.engine.start(two)
        await under.run_until_idle()
        assert await result_of(under, eid) == [
            [str(eid), "root/describe#0", 2, began],
            [str(eid), "root/other:k", 2, began],
        ]
    assert keys == [f"{eid}:root/describe#0"] * 2 + [f"{eid}:root/other:k"] * 2


async def test_the_context_shows_the_step_while_one_runs() -> None:
    registry = Registry()

    @registry.workflow("w", version="1")
    async def reads(ctx: Context) -> Any:
        async def read() -> list[Any]:
            return [ctx.fid, ctx.attempt]

        before = [ctx.fid, ctx.attempt]
        return [before, await ctx.step(read, key="k"), [ctx.fid, ctx.attempt, dict(ctx.baggage)]]

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(reads)
        await under.run_until_idle()
        expected = [["root", 1], ["root/read:k", 1], ["root", 1, {}]]
        assert await result_of(under, eid) == expected


async def test_outside_a_step_there_is_nothing_to_know() -> None:
    registry = Registry()

    @registry.workflow("w", version="1")
    async def asks(ctx: Context) -> None:
        ctx.random()
        step_info()

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(asks)
        await under.run_until_idle()
        assert (await trace_of(under, eid)).endswith("XF(InvalidArgument)")
    with pytest.raises(InvalidArgument, match="outside a step"):
        step_info()


async def test_sync_steps_run_beside_each_other_in_threads(url: str) -> None:
    registry = Registry()
    together = threading.Barrier(2)

    def meet(name: str) -> str:
        assert word.get() == "unset", "each attempt has a context of its own"
        word.set(name)
        together.wait()
        assert word.get() == name
        return threading.current_thread().name

    @registry.workflow("w", version="1")
    async def meets(ctx: Context) -> list[str]:
        return list(await ctx.gather(ctx.step(meet, "a"), ctx.step(meet, "b")))

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(meets)
        await under.run_until_idle()
        names = await result_of(under, eid)
    assert len(names) == 2
    assert threading.current_thread().name not in names


async def test_an_async_step_that_runs_too_long_is_cancelled(url: str) -> None:
    """It may be attempted again; what it returns after that is ignored."""
    registry, entered = Registry(), asyncio.Event()
    late, ended = asyncio.Event(), asyncio.Event()

    async def f() -> str:
        if step_info().attempt == 2:
            return "second"
        entered.set()
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            await late.wait()
        ended.set()
        return "late"

    @registry.workflow("w", version="1")
    async def timed(ctx: Context) -> str:
        return await ctx.step(f, timeout=10, retry=TWICE)

    async with engine_under_test(registry, url=url, max_steps=1) as under:
        eid = await under.engine.start(timed)
        async with running(under) as task:
            await entered.wait()
            under.clock.advance(timedelta(seconds=9.999))
            await under._let_loop_turn()  # noqa: SLF001 - nothing is to be seen
            assert await under.engine.status(eid) == "running"
            under.clock.advance(0.001)
            await task
        assert await trace_of(under, eid) == TIMED_OUT
        failed = (await under.engine.journal(eid))[2].payload
        assert failed["error_type"] == "StepTimeout"
        assert "did not finish within 10 s" in failed["message"]
        late.set()
        await ended.wait()
        await under.run_until_idle()
        assert await trace_of(under, eid) == TIMED_OUT
        assert await result_of(under, eid) == "second"


class Thing:
    """A value of which a test can see that nobody holds it any more."""


async def test_a_thread_that_runs_too_long_is_left_alone(url: str) -> None:
    """Its slot is given to the next attempt at once; what it returns later is ignored."""
    registry, go = Registry(), threading.Event()
    loop, entered, ignored = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def f() -> Any:
        if step_info().attempt == 2:
            return "second"
        loop.call_soon_threadsafe(entered.set)
        go.wait()
        late = Thing()
        weakref.finalize(late, loop.call_soon_threadsafe, ignored.set)
        return late

    @registry.workflow("w", version="1")
    async def timed(ctx: Context) -> Any:
        return await ctx.step(f, timeout=timedelta(seconds=10), retry=TWICE)

    async with engine_under_test(registry, url=url, max_steps=1) as under:
        eid = await under.engine.start(timed)
        async with running(under) as task:
            await entered.wait()
            under.clock.advance(10)
            await task
        assert await trace_of(under, eid) == TIMED_OUT
        go.set()
        await ignored.wait()
        await under.run_until_idle()
        assert await trace_of(under, eid) == TIMED_OUT
        assert await result_of(under, eid) == "second"


async def test_a_step_that_always_runs_too_long_fails(url: str) -> None:
    registry, gate = Registry(), Gate()

    @registry.workflow("w", version="1")
    async def timed(ctx: Context) -> list[Any]:
        try:
            await ctx.step(gate.wait, timeout=1)
        except StepFailed as failed:
            return [failed.error_type, failed.attempts, type(failed.__cause__).__name__]
        return []

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(timed)
        async with running(under) as task:
            await gate.entered.wait()
            under.clock.advance(1)
            await task
        assert await result_of(under, eid) == ["StepTimeout", 1, "StepTimeout"]


async def test_the_timeout_of_an_attempt_does_not_touch_the_next_one(url: str) -> None:
    """The clock of a timeout begins with its attempt."""
    registry, gate = Registry(), Gate()

    async def f() -> str:
        if step_info().attempt == 1:
            raise ValueError
        await gate.wait()
        return "second"

    @registry.workflow("w", version="1")
    async def timed(ctx: Context) -> str:
        return await ctx.step(f, timeout=10, retry=RetryPolicy(max_attempts=2, backoff=5))

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(timed)
        await under.run_until_idle()
        under.clock.advance(5)
        await under.sweep()
        async with running(under) as task:
            await gate.entered.wait()
            under.clock.advance(5)
            await under._let_loop_turn()  # noqa: SLF001 - nothing is to be seen
            gate.opened.set()
            await task
        assert await result_of(under, eid) == "second"


@pytest.mark.parametrize("timeout", [0, -1, float("inf")])
async def test_a_timeout_out_of_range_is_refused_at_the_call(timeout: float) -> None:
    registry = Registry()

    @registry.workflow("w", version="1")
    async def timed(ctx: Context) -> None:
        await ctx.step(Gate().wait, timeout=timeout)

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(timed)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"


async def test_a_drain_is_no_failure_of_what_it_stops(url: str) -> None:
    """The attempt that was cut off is made again, under the same number."""
    registry, gate = Registry(), Gate()

    @registry.workflow("w", version="1")
    async def one(ctx: Context) -> str:
        return str(await ctx.step(gate.wait, "done"))

    async with engine_under_test(registry, url=url, config=EngineConfig(drain=0)) as under:
        eid = await under.engine.start(one)
        assert under.worker is not None
        async with running(under):
            await entry_of(under.engine, eid, "frame.started", "root/wait#0")
            await under.worker.drain()
        assert await trace_of(under, eid) == "XS FS wait#0/1"
        assert (await under.engine.execution(eid)).worker_id is None
        under.worker = None
        await under.start_worker()
        gate.opened.set()
        await under.run_until_idle()
        assert await trace_of(under, eid) == (
            "XS FS wait#0/1 | XR(2,drain) FS wait#0/1 FC wait#0 XC"
        )
