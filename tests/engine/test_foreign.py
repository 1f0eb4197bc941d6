"""What if the function awaits what is no frame of its own? It is stopped there, and says why."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

import pytest

from perdure import Context, ForeignAwait, ForeignFrame, Registry, StepFailed
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import Gate, running
from tests.engine.support import Runs, result_of, trace_of

runs = Runs()


@pytest.fixture(autouse=True)
def _forget_runs() -> None:
    runs.clear()


async def work() -> str:
    runs["work"] += 1
    return "worked"


async def branch(ctx: Context) -> str:
    return await ctx.step(work)


class Odd:
    """An awaitable of somebody else's scheduler."""

    def __await__(self) -> Generator[str, None, None]:
        yield "a signal for another scheduler"


async def await_future() -> None:
    await asyncio.get_running_loop().create_future()


async def await_lock() -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    await lock.acquire()


async def await_timeout(ctx: Context) -> None:
    async with asyncio.timeout(1):
        await ctx.step(work)


async def await_task_group(ctx: Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(branch(ctx))


async def await_wait_for(ctx: Context) -> None:
    await asyncio.wait_for(ctx.step(work), 1)


async def await_first(ctx: Context) -> None:
    for first in asyncio.as_completed([branch(ctx), branch(ctx)]):
        await first


async def await_task(ctx: Context) -> None:
    task = asyncio.create_task(branch(ctx), name="my task")
    await task


async def await_generator() -> None:
    async def ticks() -> Any:
        for tick in range(3):
            await asyncio.sleep(0)
            yield tick

    async for _ in ticks():
        pass


FOREIGN: dict[str, tuple[Callable[[Context], Awaitable[Any]], str]] = {
    "sleep": (lambda _: partial(asyncio.sleep, 60)(), "Future"),
    "sleep zero": (lambda _: asyncio.sleep(0), "such as asyncio.sleep(0)"),
    "future": (lambda _: await_future(), "Future"),
    "event": (lambda _: asyncio.Event().wait(), "Future"),
    "lock": (lambda _: await_lock(), "Future"),
    "thread": (lambda _: asyncio.to_thread(threading.get_ident), "Future"),
    "gather of frames": (lambda ctx: asyncio.gather(ctx.step(work), ctx.sleep(1)), "Gathering"),
    "gather of branches": (lambda ctx: asyncio.gather(branch(ctx), branch(ctx)), "Gathering"),
    "shield": (lambda ctx: asyncio.shield(branch(ctx)), "Future"),
    "as_completed": (await_first, "Future"),
    "wait_for": (await_wait_for, ""),
    "timeout": (await_timeout, "asyncio"),
    "task group": (await_task_group, "asyncio"),
    "task": (await_task, "the asyncio task 'my task'"),
    "asynchronous generator": (lambda _: await_generator(), "such as asyncio.sleep(0)"),
    "another scheduler": (lambda _: Odd(), "'a signal for another scheduler'"),
}


async def blocked(under: EngineUnderTest, eid: Any) -> str:
    """Check that an execution waits for an operator, and say why it does."""
    await under.run_until_idle()
    row = await under.engine.execution(eid)
    assert (row.status, row.suspended_on) == ("suspended", ("operator",)), row.error
    assert row.blocked is not None
    return row.blocked


@pytest.mark.parametrize("place", ["function", "branch"])
@pytest.mark.parametrize("form", FOREIGN)
async def test_a_foreign_await_stops_the_function(form: str, place: str) -> None:
    """The reason names what was awaited; after a fix the execution goes on where it was."""
    make, named = FOREIGN[form]
    registry, fixed = Registry(), asyncio.Event()

    async def foreign(ctx: Context) -> None:
        if not fixed.is_set():
            await make(ctx)
            runs["went on"] += 1

    @registry.workflow("w", version="1")
    async def awaits(ctx: Context) -> str:
        await ctx.step(work, key="before")
        await (foreign(ctx) if place == "function" else ctx.gather(foreign(ctx)))
        return await ctx.step(work, key="after")

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(awaits)
        reason = await blocked(under, eid)
        assert reason.startswith("the workflow function awaited")
        assert named in reason
        assert "await ctx.step(function" in reason
        assert await trace_of(under, eid) == "XS FS work:before/1 FC work:before XU[operator]"
        fixed.set()
        await under.engine.signal(eid, "operator", "deployed a fix")
        await under.run_until_idle()
        assert await result_of(under, eid) == "worked"
    assert runs == {"work": 2}


@pytest.mark.parametrize("form", ["gather", "task"])
async def test_tasks_that_the_function_awaits_are_cancelled(form: str) -> None:
    registry = Registry()

    async def beside() -> None:
        runs["beside"] += 1

    @registry.workflow("w", version="1")
    async def awaits(ctx: Context) -> None:
        ctx.random()
        if form == "gather":
            await asyncio.gather(beside(), beside())
        await asyncio.get_running_loop().create_task(beside())

    async with engine_under_test(registry) as under:
        await blocked(under, await under.engine.start(awaits))
    assert not runs


@pytest.mark.parametrize("caught", [Exception, BaseException])
@pytest.mark.parametrize("form", ["sleep", "sleep zero", "future", "gather of branches", "task"])
async def test_the_function_cannot_catch_it(
    url: str, form: str, caught: type[BaseException]
) -> None:
    """What it does in its handler is not seen by anybody."""
    registry = Registry()

    @registry.workflow("w", version="1")
    async def swallows(ctx: Context) -> str:
        try:
            await FOREIGN[form][0](ctx)
        except caught:
            await ctx.step(work)
        finally:
            runs["finally"] += 1
        return "swallowed"

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(swallows)
        await blocked(under, eid)
        assert await trace_of(under, eid) == "XS XU[operator]"
    assert runs == {"finally": 1}


async def test_what_runs_already_ends_and_what_was_opened_does_not_begin(url: str) -> None:
    """The outcome of a step that was running is kept: it does not run again after the fix."""
    registry, gate, fixed = Registry(), Gate(), asyncio.Event()

    async def wait() -> str:
        runs["wait"] += 1
        return str(await gate.wait("waited"))

    async def foreign(ctx: Context) -> Any:
        await ctx.sleep(0)
        opened = ctx.step(work)
        if not fixed.is_set():
            await asyncio.sleep(0)
        return await opened

    @registry.workflow("w", version="1")
    async def both(ctx: Context) -> list[Any]:
        return list(await ctx.gather(ctx.step(wait), foreign(ctx)))

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(both)
        async with running(under) as task:
            await gate.entered.wait()
            await under.engine.committer.idle()
            assert await trace_of(under, eid) == "XS FS wait#0/1 FS sleep#0/1 CL sleep#0"
            gate.opened.set()
            await task
        await blocked(under, eid)
        assert (await trace_of(under, eid)).endswith("CL sleep#0 FC wait#0 XU[operator]")
        fixed.set()
        await under.engine.signal(eid, "operator", None)
        await under.run_until_idle()
        assert await result_of(under, eid) == ["waited", "worked"]
    assert runs == {"wait": 1, "work": 1}


async def test_a_task_of_the_function_cannot_open_frames(url: str) -> None:
    """Although nobody awaits it: it gets the error, and the execution is blocked."""
    registry, gate = Registry(), Gate()
    tasks: list[asyncio.Task[str]] = []

    @registry.workflow("w", version="1")
    async def spawns(ctx: Context) -> None:
        tasks.append(asyncio.get_running_loop().create_task(branch(ctx)))
        await ctx.step(gate.wait)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(spawns)
        async with running(under) as task:
            await gate.entered.wait()
            with pytest.raises(ForeignAwait, match=r"calls ctx\.step outside the function"):
                await tasks[0]
            gate.opened.set()
            await task
        assert "ctx.step outside the function" in await blocked(under, eid)
        assert await trace_of(under, eid) == "XS FS wait#0/1 FC wait#0 XU[operator]"


async def use_in_loop(ctx: Context) -> None:
    ctx.now()


async def use_in_thread(ctx: Context) -> None:
    await asyncio.to_thread(ctx.now)


@pytest.mark.parametrize("use", [use_in_loop, use_in_thread])
async def test_a_context_that_is_used_from_outside_blocks(
    url: str, use: Callable[[Context], Awaitable[None]]
) -> None:
    registry, gate = Registry(), Gate()
    contexts: list[Context] = []

    @registry.workflow("w", version="1")
    async def lends(ctx: Context) -> None:
        contexts.append(ctx)
        await ctx.step(gate.wait)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(lends)
        async with running(under) as task:
            await gate.entered.wait()
            with pytest.raises(ForeignAwait, match=r"calls ctx\.now outside the function"):
                await use(contexts[0])
            gate.opened.set()
            await task
        assert "ctx.now outside the function" in await blocked(under, eid)
        assert await trace_of(under, eid) == "XS FS wait#0/1 FC wait#0 XU[operator]"


METHODS: dict[str, Callable[[Context], Any]] = {
    "step": lambda ctx: ctx.step(work),
    "receive": lambda ctx: ctx.receive("c"),
    "sleep": lambda ctx: ctx.sleep(1),
    "sleep_until": lambda ctx: ctx.sleep_until(ctx.now()),
    "gather": lambda ctx: ctx.gather(branch(ctx), branch(ctx)),
    "now": lambda ctx: ctx.now(),
    "random": lambda ctx: ctx.random(),
    "uuid": lambda ctx: ctx.uuid(),
}


@pytest.mark.parametrize("kind", ["async", "thread", "thread of an async step"])
@pytest.mark.parametrize("method", METHODS)
async def test_a_step_cannot_open_frames(method: str, kind: str) -> None:
    """It fails; the execution can handle that, and is not blocked."""
    registry = Registry()

    @registry.workflow("w", version="1")
    async def opens(ctx: Context) -> list[str]:
        def in_thread() -> None:
            METHODS[method](ctx)

        async def in_step() -> None:
            METHODS[method](ctx)

        async def in_thread_of_step() -> None:
            await asyncio.to_thread(METHODS[method], ctx)

        kinds: dict[str, Callable[[], Any]] = {"async": in_step, "thread": in_thread}
        try:
            await ctx.step(kinds.get(kind, in_thread_of_step), name="opens")
        except StepFailed as failed:
            return [failed.error_type, failed.message, type(failed.__cause__).__name__]
        return []

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(opens)
        await under.run_until_idle()
        error_type, message, cause = await result_of(under, eid)
        assert error_type == cause == ForeignFrame.__name__
        called = "now" if method == "sleep_until" else method
        assert f"ctx.{called} was called inside a step" in message
        assert await trace_of(under, eid) == "XS FS opens#0/1 FF opens#0/1 XC"
    assert not runs


async def test_a_step_that_begins_during_a_drive_cannot_open_frames(url: str) -> None:
    """An abandoned step gives its place to another one while the function is driven."""
    registry = Registry()
    one, first_probe, forever = Gate(), Gate(), Gate()

    async def fails(ctx: Context) -> None:
        await ctx.step(one.wait, name="one")
        message = "the branch fails"
        raise RuntimeError(message)

    async def probes(ctx: Context) -> Any:
        async def probe() -> float:
            return ctx.random()

        return await ctx.gather(
            ctx.step(first_probe.wait, name="first_probe"),
            ctx.step(probe),
            return_exceptions=True,
        )

    @registry.workflow("w", version="1")
    async def drives(ctx: Context) -> str:
        failing = ctx.gather(ctx.step(forever.wait, name="forever"), fails(ctx))
        probing = ctx.gather(probes(ctx))
        with pytest.raises(RuntimeError, match="the branch fails"):
            await failing
        first_probe.opened.set()
        _, probed = (await probing)[0]
        return str(probed.error_type)

    async with engine_under_test(registry, url=url, max_steps=2) as under:
        eid = await under.engine.start(drives)
        async with running(under) as task:
            await one.entered.wait()
            await forever.entered.wait()
            one.opened.set()
            await task
        assert await result_of(under, eid) == "ForeignFrame"
        assert "random" not in await trace_of(under, eid)
