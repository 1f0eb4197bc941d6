"""What does the function notice of its suspension? Nothing; and what is closed opens no frame."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from perdure import Context, ForeignAwait, Registry
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.support import Runs, result_of, trace_of

WAITING = "XS FS receive#0/1 FU receive#0 XU[channel]"

spoken: ContextVar[str] = ContextVar("spoken", default="nothing")


async def note(name: str) -> str:
    return name


async def suspend_and_go_on(under: EngineUnderTest) -> Any:
    """Run the workflow ``w`` until it waits for a message, then to its end; give its result."""
    eid = await under.engine.start("w")
    await under.run_until_idle()
    assert await trace_of(under, eid) == WAITING
    await under.engine.signal(eid, "c", "here")
    await under.run_until_idle()
    row = await under.engine.execution(eid)
    assert row.status == "completed", (row.blocked, row.error)
    return row.result


async def test_error_handling_does_not_see_a_suspension(url: str) -> None:
    """Neither ``except`` nor the steps of a ``finally`` run while the function only waits."""
    registry, runs = Registry(), Runs()

    async def fallback() -> None:
        runs["fallback"] += 1

    async def cleanup() -> None:
        runs["cleanup"] += 1

    @registry.workflow("w", version="1")
    async def waits(ctx: Context) -> str:
        try:
            message = await ctx.receive("c")
        except Exception:  # noqa: BLE001 - what is tested
            await ctx.step(fallback)
            return "fallback"
        finally:
            await ctx.step(cleanup)
        return str(message.payload) if message else ""

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(waits)
        await under.run_until_idle()
        assert await trace_of(under, eid) == WAITING
        assert runs == {}
        await under.engine.signal(eid, "c", "here")
        await under.run_until_idle()
        assert await result_of(under, eid) == "here"
        assert (await trace_of(under, eid)).endswith("CL receive#0 FS cleanup#0/1 FC cleanup#0 XC")
    assert runs == {"cleanup": 1}


@pytest.mark.cold
async def test_a_function_that_swallows_everything_has_not_ended(url: str) -> None:
    """What a closed function returns, or opens, counts for nothing."""
    registry, runs = Registry(), Runs()

    @registry.workflow("w", version="1")
    async def swallows(ctx: Context) -> str:
        try:
            message = await ctx.receive("c")
        except BaseException:  # noqa: BLE001 - what is tested
            for opens in (lambda: ctx.step(note, "closed"), ctx.now, ctx.gather):
                try:
                    opens()
                except Exception:  # noqa: BLE001 - what is tested
                    runs["an error that a broad handler could take for its own"] += 1
                except BaseException:  # noqa: BLE001 - what is tested
                    runs["refused"] += 1
            return "swallowed"
        return str(message.payload) if message else ""

    async with engine_under_test(registry, url=url) as under:
        assert await suspend_and_go_on(under) == "here"
    assert runs == {"refused": 3}


async def test_a_function_that_waits_on_while_it_is_closed_is_left(url: str) -> None:
    registry = Registry()

    @registry.workflow("w", version="1")
    async def waits_on(ctx: Context) -> str:
        frame = ctx.receive("c")
        try:
            message = await frame
        except BaseException:  # noqa: BLE001 - what is tested
            message = await frame
        return str(message.payload) if message else ""

    async with engine_under_test(registry, url=url) as under:
        assert await suspend_and_go_on(under) == "here"


@pytest.mark.cold
async def test_context_managers_may_clean_up_locally(url: str) -> None:
    registry = Registry()
    left: list[str] = []

    @contextmanager
    def local() -> Iterator[None]:
        try:
            yield
        finally:
            left.append("local")

    @asynccontextmanager
    async def durable(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        finally:
            left.append("durable begins")
            await ctx.step(note, "undone")
            left.append("durable ends")

    @registry.workflow("w", version="1")
    async def managed(ctx: Context) -> str:
        with local():
            async with durable(ctx):
                message = await ctx.receive("c")
        return str(message.payload) if message else ""

    async with engine_under_test(registry, url=url) as under:
        assert await suspend_and_go_on(under) == "here"
    assert left == ["durable begins", "local", "durable begins", "durable ends", "local"]


async def test_asynchronous_generators_are_closed_with_the_function(url: str) -> None:
    registry, runs = Registry(), Runs()

    async def messages(ctx: Context) -> AsyncGenerator[Any, None]:
        try:
            while True:
                message = await ctx.receive("c")
                yield message.payload if message else None
        finally:
            runs["closed"] += 1
            await ctx.step(note, "closed")
            runs["noted"] += 1

    @registry.workflow("w", version="1")
    async def reads(ctx: Context) -> Any:
        async for payload in messages(ctx):
            if payload == "here":
                await ctx.step(note, "found")
                return payload
        return None

    async with engine_under_test(registry, url=url) as under:
        assert await suspend_and_go_on(under) == "here"
    # Python 3.11 closes a generator that is awaited without running its ``finally``.
    assert runs["closed"] in (1, 2)
    assert "noted" not in runs, "a generator that the function forgot opens no frame"


async def test_a_generator_that_the_function_closes_may_open_frames(url: str) -> None:
    registry, runs = Registry(), Runs()

    async def messages(ctx: Context) -> AsyncGenerator[Any, None]:
        try:
            message = await ctx.receive("c")
            yield message.payload if message else None
        finally:
            await ctx.step(note, "closed")
            runs["noted"] += 1

    @registry.workflow("w", version="1")
    async def reads(ctx: Context) -> Any:
        generator = messages(ctx)
        payload = await anext(generator)
        await generator.aclose()
        return payload

    async with engine_under_test(registry, url=url) as under:
        assert await suspend_and_go_on(under) == "here"
    assert runs == {"noted": 1}


@pytest.mark.cold
async def test_branches_are_closed_with_the_function(url: str) -> None:
    registry, runs = Registry(), Runs()

    async def branch(ctx: Context, name: str) -> str:
        try:
            message = await ctx.receive("c", name="receive", key=name)
        except Exception:
            runs["excepted"] += 1
            raise
        finally:
            runs[f"left {name}"] += 1
        return str(message.payload) if message else ""

    @registry.workflow("w", version="1")
    async def branches(ctx: Context) -> list[str]:
        return list(await ctx.gather(branch(ctx, "a"), branch(ctx, "b")))

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(branches)
        await under.run_until_idle()
        for payload in (1, 2):
            await under.engine.signal(eid, "c", payload)
        await under.run_until_idle()
        assert await result_of(under, eid) == ["1", "2"]
    assert runs == {"left a": 2, "left b": 2}


async def test_what_the_function_sets_in_its_context_stays_there(url: str) -> None:
    registry = Registry()
    heard: list[str] = []

    def hear() -> None:
        heard.append(spoken.get())

    async def hear_async() -> None:
        heard.append(spoken.get())

    @registry.workflow("w", version="1")
    async def speaks(ctx: Context) -> str:
        spoken.set("in the function")
        await ctx.receive("c")
        said = spoken.get()
        await ctx.step(hear)
        await ctx.step(hear_async)
        return said

    async with engine_under_test(registry, url=url) as under:
        assert await suspend_and_go_on(under) == "in the function"
    assert spoken.get() == "nothing"
    assert heard == ["nothing", "nothing"], "steps have contexts of their own"


async def test_branches_in_a_finally_are_not_begun_while_the_function_is_closed(url: str) -> None:
    registry, runs = Registry(), Runs()

    async def undo(ctx: Context, name: str) -> None:
        await ctx.step(note, name)
        runs[name] += 1

    @registry.workflow("w", version="1")
    async def undoes(ctx: Context) -> str:
        try:
            message = await ctx.receive("c")
        finally:
            await ctx.gather(undo(ctx, "a"), undo(ctx, "b"))
        return str(message.payload) if message else ""

    async with engine_under_test(registry, url=url) as under:
        assert await suspend_and_go_on(under) == "here"
    assert runs == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("step", (note, "x")),
        ("receive", ("c",)),
        ("sleep", (1,)),
        ("gather", ()),
        ("now", ()),
        ("random", ()),
    ],
)
async def test_a_kept_context_is_of_no_use_afterwards(
    method: str, arguments: tuple[Any, ...]
) -> None:
    registry = Registry()
    kept: list[Context] = []

    @registry.workflow("w", version="1")
    async def leaks(ctx: Context) -> None:
        kept.append(ctx)
        await ctx.receive("c")

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(leaks)
        await under.run_until_idle()
        with pytest.raises(ForeignAwait, match=f"ctx.{method}"):
            getattr(kept[0], method)(*arguments)
        await under.run_until_idle()
        assert await trace_of(under, eid) == WAITING
