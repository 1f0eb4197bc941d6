"""What if the code changed under a live execution? It is blocked, and nothing it does counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import Context, NondeterminismError, Registry
from perdure.ports.commands import Command, Suspend
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import cluster, holds, running
from tests.engine.support import Runs, result_of, trace_of

pytestmark = pytest.mark.cold  # only a replay finds out that code has changed

Body = Callable[[Context], Awaitable[Any]]
SOON = datetime.fromisoformat("2030-01-01T01:00:00+00:00")


class Deployment:
    """A workflow whose code can be exchanged under a live execution."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.registry = Registry()

        @self.registry.workflow("w", version="1")
        async def deployed(ctx: Context) -> Any:
            return await self.body(ctx)


runs = Runs()


@pytest.fixture(autouse=True)
def _forget_runs() -> None:
    runs.clear()


async def f(value: float = 0, *, scale: int = 1) -> float:
    runs["f"] += 1
    return value * scale


async def g() -> None:
    runs["g"] += 1


async def received(ctx: Context) -> Any:
    message = await ctx.receive("go")
    return message.payload if message else None


def restored(value: int) -> Body:
    async def body(ctx: Context) -> Any:
        await ctx.step(f, value)
        payload = await received(ctx)
        await ctx.step(g)
        return payload

    return body


async def start_and_suspend(under: EngineUnderTest) -> UUID:
    eid = await under.engine.start("w")
    await under.run_until_idle()
    assert await under.engine.status(eid) == "suspended"
    return eid


async def resume(under: EngineUnderTest, eid: UUID, payload: Any = None) -> None:
    await under.engine.signal(eid, "go", payload)
    await under.run_until_idle()


BLOCKED = "XS FS f#0/1 FC f#0 FS receive#0/1 FU receive#0 XU[channel] | XR(2,message) XU[operator]"


async def test_changed_arguments_block_the_execution_until_the_code_is_restored(url: str) -> None:
    """Each further message is one more look at the code; the first one is what is received."""
    deployment = Deployment(restored(1))
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start_and_suspend(under)
        deployment.body = restored(2)
        await resume(under, eid, "first")
        assert await trace_of(under, eid) == BLOCKED
        row = await under.engine.execution(eid)
        assert (row.status, row.suspended_on) == ("suspended", ("operator",))
        assert row.blocked is not None
        assert "root/f#0" in row.blocked
        assert "other arguments" in row.blocked
        for index in range(3):
            await resume(under, eid, f"further {index}")
            again = " ".join(f"| XR({epoch},message) XU[operator]" for epoch in range(3, index + 4))
            assert await trace_of(under, eid) == f"{BLOCKED} {again}"
        deployment.body = restored(1)
        await resume(under, eid, "last")
        assert await result_of(under, eid) == "first"
        row = await under.engine.execution(eid)
        assert (row.status, row.blocked) == ("completed", None)
    assert runs == {"f": 1, "g": 1}


async def test_a_blocked_execution_survives_its_worker(url: str) -> None:
    deployment = Deployment(restored(1))
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start_and_suspend(under)
        deployment.body = restored(2)
        await resume(under, eid)
        await under.kill_worker()
        await under.start_worker()
        await under.advance(timedelta(days=1))
        assert await trace_of(under, eid) == BLOCKED, "nothing but an operator resumes it"


Change = Callable[[Context], Awaitable[Any]]


def in_database(connection: Any, number: int) -> int:
    (found,) = connection.execute("SELECT ?", (number,)).fetchone()
    return int(found)


CHANGES: dict[str, tuple[str, Change, Change]] = {
    "the timeout of a receive": (
        "receive#0",
        lambda ctx: ctx.receive("c", timeout=60),
        lambda ctx: ctx.receive("c", timeout=61),
    ),
    "a timeout where none was": (
        "receive#0",
        lambda ctx: ctx.receive("c"),
        lambda ctx: ctx.receive("c", timeout=timedelta(0)),
    ),
    "the channel of a receive": (
        "receive#0",
        lambda ctx: ctx.receive("c"),
        lambda ctx: ctx.receive("d"),
    ),
    "the duration of a sleep": ("sleep#0", lambda ctx: ctx.sleep(1), lambda ctx: ctx.sleep(2)),
    "the instant of a sleep": (
        "sleep_until#0",
        lambda ctx: ctx.sleep_until(SOON),
        lambda ctx: ctx.sleep_until(SOON + timedelta(microseconds=1)),
    ),
    "a positional argument": ("f#0", lambda ctx: ctx.step(f, 1), lambda ctx: ctx.step(f, 2)),
    "the type of an argument": ("f#0", lambda ctx: ctx.step(f, 1), lambda ctx: ctx.step(f, 1.5)),
    "a keyword argument": (
        "f#0",
        lambda ctx: ctx.step(f, 1, scale=1),
        lambda ctx: ctx.step(f, 1, scale=2),
    ),
    "one more argument": ("f#0", lambda ctx: ctx.step(f), lambda ctx: ctx.step(f, 0)),
    "a step where a receive was": (
        "x#0",
        lambda ctx: ctx.receive("c", name="x"),
        lambda ctx: ctx.step(f, name="x"),
    ),
    "a receive where a step was": (
        "x#0",
        lambda ctx: ctx.step(f, name="x"),
        lambda ctx: ctx.receive("c", name="x"),
    ),
    "the payload of a send": (
        "send#0",
        lambda ctx: ctx.send("own", 1),
        lambda ctx: ctx.send("own", 2),
    ),
    "the payload of an announcement": (
        "announce#0",
        lambda ctx: ctx.announce("a", 1),
        lambda ctx: ctx.announce("a", 2),
    ),
    "the queue of an enqueue": (
        "enqueue#0",
        lambda ctx: ctx.enqueue("q", 1),
        lambda ctx: ctx.enqueue("r", 1),
    ),
    "the payload of an enqueue": (
        "enqueue#0",
        lambda ctx: ctx.enqueue("q", 1),
        lambda ctx: ctx.enqueue("q", 2),
    ),
    "the id of a withdraw": (
        "withdraw#0",
        lambda ctx: ctx.withdraw("q", f"delegate:{ctx.eid}:a"),
        lambda ctx: ctx.withdraw("q", f"delegate:{ctx.eid}:b"),
    ),
    "the value of an item": (
        "publish#0",
        lambda ctx: ctx.publish("s", 1),
        lambda ctx: ctx.publish("s", 2),
    ),
    "the value of a claim": (
        "claim#0",
        lambda ctx: ctx.claim("k", 1),
        lambda ctx: ctx.claim("k", 2),
    ),
    "the argument of a transaction": (
        "in_database#0",
        lambda ctx: ctx.transaction(in_database, 1),
        lambda ctx: ctx.transaction(in_database, 2),
    ),
    "a sleep where a receive was": (
        "x:k",
        lambda ctx: ctx.receive("c", name="x", key="k"),
        lambda ctx: ctx.sleep(1, name="x", key="k"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_blocks_an_execution(url: str, change: str) -> None:
    """The reason names the frame; no step runs under the changed code."""
    fid, before, after = CHANGES[change]

    def body(first: Change) -> Body:
        async def run(ctx: Context) -> Any:
            first(ctx)
            await received(ctx)
            await ctx.step(g)

        return run

    deployment = Deployment(body(before))
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start_and_suspend(under)
        deployment.body = body(after)
        count = runs["f"]
        await resume(under, eid)
        row = await under.engine.execution(eid)
        assert row.suspended_on == ("operator",)
        assert f"frame root/{fid}:" in (row.blocked or "")
        assert runs["f"] == count
        deployment.body = body(before)
        await resume(under, eid)
        assert await under.engine.status(eid) in ("completed", "suspended")
        assert (await under.engine.execution(eid)).blocked is None
        assert runs["g"] == 1


async def test_what_does_not_block_an_execution(url: str) -> None:
    """A memo that the code asks for no more is ignored, and so is how a step runs."""

    async def before(ctx: Context) -> Any:
        await ctx.step(f, 1, name="gone")
        await ctx.step(f, 2, key="kept")
        return await received(ctx)

    async def after(ctx: Context) -> Any:
        await ctx.step(g, name="new")
        value = await ctx.step(f, 2, name="f", key="kept", timeout=10)
        return [value, await received(ctx)]

    deployment = Deployment(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start_and_suspend(under)
        deployment.body = after
        await resume(under, eid, "here")
        assert await result_of(under, eid) == [2, "here"]
    assert runs == {"f": 2, "g": 1}


@pytest.mark.parametrize("caught", [NondeterminismError, Exception, BaseException])
async def test_the_function_cannot_catch_the_block(url: str, caught: type[BaseException]) -> None:
    """It is no error of the function: no handler sees it, and what it returns is no result."""

    async def before(ctx: Context) -> Any:
        await ctx.step(f, 1)
        return await received(ctx)

    async def after(ctx: Context) -> Any:
        try:
            await ctx.step(f, 2)
        except caught:
            runs["caught"] += 1
            await ctx.step(g)
            return "swallowed"
        return await received(ctx)

    deployment = Deployment(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start_and_suspend(under)
        deployment.body = after
        await resume(under, eid)
        assert await trace_of(under, eid) == BLOCKED
    assert runs["g"] == 0
    assert runs["caught"] == (caught is BaseException), "only what closes it reaches it"


async def test_what_the_function_does_after_a_changed_call_does_not_count(url: str) -> None:
    async def before(ctx: Context) -> Any:
        await ctx.step(f, 1)
        return await received(ctx)

    async def after(ctx: Context) -> Any:
        ctx.step(f, 2)
        ctx.step(g)
        ctx.receive("go", name="other")
        return "ended"

    deployment = Deployment(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start_and_suspend(under)
        deployment.body = after
        await resume(under, eid)
        assert await trace_of(under, eid) == BLOCKED
        deployment.body = before
        await resume(under, eid)
        assert await under.engine.status(eid) == "completed"


async def test_other_executions_go_on(url: str) -> None:
    deployment = Deployment(restored(1))
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start_and_suspend(under)
        deployment.body = restored(2)
        other = await start_and_suspend(under)
        await resume(under, eid)
        await resume(under, other, "other")
        assert await result_of(under, other) == "other"
        assert (await under.engine.execution(eid)).suspended_on == ("operator",)


async def test_a_memo_that_does_not_fit_its_type_any_more_blocks(url: str) -> None:
    async def text() -> str:
        return "2030-01-01 or so"

    async def instant() -> datetime:
        return SOON

    async def before(ctx: Context) -> Any:
        await ctx.step(text, name="read")
        return await received(ctx)

    async def after(ctx: Context) -> Any:
        await ctx.step(instant, name="read")
        return await received(ctx)

    deployment = Deployment(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start_and_suspend(under)
        deployment.body = after
        await resume(under, eid)
        blocked = (await under.engine.execution(eid)).blocked or ""
        assert "root/read#0" in blocked
        assert "does not fit the annotated type" in blocked


async def test_a_signature_that_does_not_fit_the_stored_arguments_blocks(url: str) -> None:
    def registry(*, changed: bool) -> Registry:
        made = Registry()

        async def before(ctx: Context, number: int) -> Any:
            return [number, await received(ctx)]

        async def after(ctx: Context, number: int, other: int) -> Any:
            return [number, other, await received(ctx)]

        made.workflow("w", version="1")(after if changed else before)
        return made

    async with cluster(registry(changed=False), url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("w", 1)
        await first.run_until_idle()
        await first.die()
        second = await machines.boot(registry=registry(changed=True))
        await resume(second, eid, "kept")
        assert "'w' takes (number: " in ((await second.engine.execution(eid)).blocked or "")
        await second.die()
        third = await machines.boot()
        await resume(third, eid)
        assert await result_of(third, eid) == [1, "kept"]


async def test_a_worker_that_lost_the_execution_does_not_block_it(url: str) -> None:
    """The block of the first worker is refused; the new owner finds the change itself, once."""
    deployment = Deployment(restored(1))
    async with cluster(deployment.registry, url) as machines:
        first, second = await machines.boot(), await machines.boot()
        eid = await start_and_suspend(first)
        deployment.body = restored(2)
        await first.engine.signal(eid, "go", None)
        paused = asyncio.Event()

        async def pause(commands: list[Command]) -> None:
            if holds(commands, Suspend, eid):
                first.wire.before_commit = None
                first.wire.passing.clear()
                paused.set()

        first.wire.before_commit = pause
        async with running(first) as task:
            await paused.wait()
            assert await second.engine.status(eid) == "running"
            await second.advance(timedelta(minutes=5))
            first.wire.passing.set()
            await task
        assert (await trace_of(second, eid)).removeprefix(
            BLOCKED.partition(" XU[operator]")[0]
        ) == (" | XR(3,recovery) XU[operator]")
