"""Streams: items once from the function, in order from a step, to readers meanwhile and after."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from perdure import (
    Context,
    InvalidArgument,
    InvalidName,
    NotSerializable,
    Registry,
    RetryPolicy,
    UnknownExecution,
    step_info,
)
from perdure.ports.commands import Command, Publish
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, holds, nothing_left, retrying, running
from tests.engine.support import Machine, result_of, trace_of


class Talk:
    """Workflows that publish."""

    def __init__(self) -> None:  # noqa: C901 - a list of small functions
        self.gate = Gate()
        self.failures = 0
        self.errors: list[str] = []
        self.registry = Registry()

        def speak(count: int) -> str:
            for n in range(count):
                step_info().publish("words", n)
            if step_info().attempt <= self.failures:
                raise ValueError("again")
            return "spoken"

        async def speak_async(count: int) -> str:
            for n in range(count):
                step_info().publish("words", n)
            await self.gate.wait()
            step_info().publish("words", "end")
            return "spoken"

        def wrong() -> None:
            for stream, value in (("No Name", 1), ("words", object())):
                try:
                    step_info().publish(stream, value)
                except (InvalidName, NotSerializable) as error:
                    self.errors.append(type(error).__name__)

        self.registry.step()(speak)
        self.registry.step()(speak_async)

        @self.registry.workflow("tell", version="1")
        async def tell(ctx: Context, count: int) -> Any:
            numbers = [await ctx.publish("news", {"n": n}) for n in range(count)]
            await ctx.receive("x")
            ctx.publish("news", "unawaited")
            return numbers

        @self.registry.workflow("steps", version="1")
        async def steps(ctx: Context, count: int, queue: str | None = None) -> Any:
            retry = RetryPolicy(max_attempts=3)
            if queue is None:
                return await ctx.step(speak, count, retry=retry)
            return await ctx.step(speak, count, retry=retry, queue=queue)

        @self.registry.workflow("slow", version="1")
        async def slow(ctx: Context, queue: str | None = None) -> Any:
            if queue is None:
                return await ctx.step(speak_async, 2)
            return await ctx.step(speak_async, 2, queue=queue)

        @self.registry.workflow("loses", version="1")
        async def loses(ctx: Context) -> Any:
            await ctx.select(ctx.step(speak_async, 1), ctx.receive("x"))
            await ctx.receive("y")

        @self.registry.workflow("again", version="1")
        async def again(ctx: Context, count: int) -> Any:
            await ctx.publish("news", count)
            if count:
                ctx.continue_as(count - 1)

        @self.registry.workflow("bad", version="1")
        async def bad(ctx: Context, stream: str, value: Any) -> Any:
            await ctx.step(wrong)
            await ctx.publish(stream, value)


async def read(engine: Any, eid: Any, name: str, after: int = 0) -> list[Any]:
    """Read a stream to its end."""
    return [value async for value in engine.stream(eid, name, after=after)]


async def test_the_function_publishes_exactly_once(url: str) -> None:
    talk = Talk()
    async with engine_under_test(talk.registry, url=url) as under:
        eid = await under.engine.start("tell", 3)
        await under.run_until_idle()
        reading = asyncio.ensure_future(read(under.engine, eid, "news"))
        await under.engine.signal(eid, "x", None)
        await under.run_until_idle()
        assert await result_of(under, eid) == [1, 2, 3]
        expected = [{"n": 0}, {"n": 1}, {"n": 2}, "unawaited"]
        assert await reading == expected
        assert await read(under.engine, eid, "news", after=2) == expected[2:]
        assert await read(under.engine, eid, "news", after=9) == []
        assert await read(under.engine, eid, "nothing") == []
        assert (await trace_of(under, eid)).startswith(
            "XS FS publish#0/1 FC publish#0 FS publish#1"
        )


async def test_a_stream_is_no_mail(url: str) -> None:
    """It wakes nobody, is nothing unread, and stays with its execution."""
    talk = Talk()
    async with cluster(talk.registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("tell", 2)
        await process.run_until_idle()
        mail = await machines.store.mail(eid)
        assert mail is not None
        assert (mail.wake, mail.messages) == (0, ())
        chain = await process.engine.start("again", 2)
        await process.run_until_idle()
        assert await read(process.engine, chain, "news") == [2]
        last = (await process.engine.execution(chain)).eid
        assert await read(process.engine, last, "news") == [0]


@pytest.mark.parametrize("queue", [None, "gpu"], ids=["here", "detached"])
async def test_a_step_publishes_in_order_before_its_outcome(url: str, queue: str | None) -> None:
    talk = Talk()
    async with engine_under_test(talk.registry, url=url, queues=("default", "gpu")) as under:
        eid = await under.engine.start("steps", 100, queue)
        await under.run_until_idle()
        assert await result_of(under, eid) == "spoken"
        assert await read(under.engine, eid, "words") == list(range(100))
        talk.failures = 2
        second = await under.engine.start("steps", 3, queue)
        await under.run_until_idle()
        assert await read(under.engine, second, "words") == [0, 1, 2] * 3  # at least once
        assert await nothing_left(under.engine.store)


@pytest.mark.parametrize("queue", [None, "gpu"], ids=["here", "detached"])
async def test_items_are_there_while_the_step_runs(url: str, queue: str | None) -> None:
    talk = Talk()
    async with engine_under_test(talk.registry, url=url, queues=("default", "gpu")) as under:
        eid = await under.engine.start("slow", queue)
        async with running(under) as run:
            stream = under.engine.stream(eid, "words")
            assert [await anext(stream), await anext(stream)] == [0, 1]
            talk.gate.opened.set()
            assert await anext(stream) == "end"
            await run
            assert [value async for value in stream] == []


async def test_a_step_that_is_abandoned_publishes_nothing_more(url: str) -> None:
    talk = Talk()
    async with engine_under_test(talk.registry, url=url) as under:
        eid = await under.engine.start("loses")
        async with running(under):
            await talk.gate.entered.wait()
            await under.engine.signal(eid, "x", None)
            await under.run_until_idle()
        talk.gate.opened.set()
        await under.engine.signal(eid, "y", None)
        await under.run_until_idle()
        assert await read(under.engine, eid, "words") == [0]


@pytest.mark.parametrize("queue", [None, "gpu"], ids=["here", "detached"])
@pytest.mark.parametrize("lost", ["never applied", "answer lost"])
async def test_no_trouble_with_the_store_loses_an_item(
    url: str, lost: str, queue: str | None
) -> None:
    talk = Talk()
    async with cluster(talk.registry, url) as machines:
        process = await machines.boot(queues=("default", "gpu"))
        eid = await process.engine.start("steps", 5, queue)
        hit = asyncio.Event()

        async def cut(commands: list[Command]) -> None:
            if not hit.is_set() and holds(commands, Publish):
                hit.set()
                if lost == "never applied":
                    process.wire.down = True
                else:
                    process.wire.answers_lost = 1

        process.wire.before_commit = cut
        async with retrying(machines.clock), running(process) as run:
            await hit.wait()
            process.wire.down = False
            await run
        assert await read(process.engine, eid, "words") == list(range(5))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_crash_at_any_commit_doubles_nothing_of_the_function(
    url: str, *, before: bool
) -> None:
    crash_at, died = 0, True
    while died:
        crash_at += 1
        machine = await Machine.open(Talk().registry, url)
        under = await machine.boot(crash_at=crash_at, before=before)
        eids: list[Any] = []

        async def work(under: Any, eids: list[Any] = eids) -> None:
            if not eids:
                eids.append(await under.engine.start("tell", 3))
                await under.engine.signal(eids[0], "x", None)
            await under.advance(100)

        died = await machine.until_death(work(under))
        if died:
            await machine.bury()
            under = await machine.boot()
            await work(under)
            if not (await under.engine.status(eids[0])).terminal:
                await under.engine.signal(eids[0], "x", None)
                await under.run_until_idle()
        expected = [{"n": 0}, {"n": 1}, {"n": 2}, "unawaited"]
        assert await read(under.engine, eids[0], "news") == expected
        await machine.bury()
        await machine.store.close()
    assert crash_at > 4


async def test_bad_input_is_refused(url: str) -> None:
    talk = Talk()
    async with engine_under_test(talk.registry, url=url) as under:
        stream: Any = under.engine.stream
        with pytest.raises(UnknownExecution):
            await anext(stream(uuid4(), "words"))
        eid = await under.engine.start("bad", "No Name", 1)
        for after in (-1, True, "1", 1.5, None):
            with pytest.raises(InvalidArgument):
                stream(eid, "words", after=after)
        with pytest.raises(InvalidName):
            stream(eid, "No Name")
        with pytest.raises(InvalidArgument):
            stream("no id", "words")
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == "InvalidName"
        assert talk.errors == ["InvalidName", "NotSerializable"]
