"""Does a reader get what an execution publishes? In order, and each item exactly once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import perdure
from perdure import (
    Context,
    InvalidArgument,
    InvalidName,
    NotSerializable,
    Registry,
    UnknownExecution,
    step_info,
)
from perdure.ports.commands import Command, EndExecution, Publish
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import cluster, holds, retrying, running
from tests.engine.support import Machine, result_of, trace, trace_of

MANY = 100


async def everything(under: EngineUnderTest, eid: UUID, name: str = "s", after: int = 0) -> Any:
    """Give all items of a stream of an execution that has ended."""
    return [value async for value in under.engine.stream(eid, name, after=after)]


def one(body: Any) -> Registry:
    """Give a registry with one workflow, ``w``."""
    registry = Registry()
    registry.workflow("w", version="1")(body)
    return registry


async def count_up(count: int) -> int:
    for number in range(count):
        step_info().publish("s", number)
    return count


def follow(applied: list[Command], first: type, then: type) -> bool:
    """Tell whether a command of one kind stands before one of another."""
    kinds = [type(command) for command in applied]
    return then in kinds[kinds.index(first) :]


# -- from the function -----------------------------------------------------------------------


async def test_a_frame_publishes_and_gives_the_number(url: str) -> None:
    async def body(ctx: Context) -> list[int]:
        return [
            await ctx.publish("s", {"n": 1}),
            await ctx.publish("s", None, key="k"),
            await ctx.publish("other", [], name="tell"),
        ]

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await under.engine.result(eid) == [1, 2, 1]
        assert await everything(under, eid) == [{"n": 1}, None]
        assert await everything(under, eid, "other") == [[]]
        assert await everything(under, eid, "silence") == []
        assert await trace_of(under, eid) == (
            "XS FS publish#0/1 FC publish#0 FS publish:k/1 FC publish:k FS tell#0/1 FC tell#0 XC"
        )


async def test_what_is_not_awaited_is_published_all_the_same(url: str) -> None:
    async def body(ctx: Context) -> str:
        for number in range(3):
            ctx.publish("s", number)
        return "done"

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await result_of(under, eid) == "done"
        assert await everything(under, eid) == [0, 1, 2]


async def chatty(ctx: Context) -> list[int]:
    """Publish from branches, before and behind a wait, and at the very end."""

    async def branch(name: str) -> list[int]:
        await ctx.step(count_up, 2, name=f"step-{name}")
        return [await ctx.publish("f", f"{name}{n}", key=f"{name}{n}") for n in range(2)]

    await ctx.publish("f", "first")
    found = await ctx.gather(branch("a"), branch("b"))
    ctx.publish("f", "beside the wait")
    await ctx.sleep(timedelta(minutes=5))
    ctx.publish("f", "last")
    return [number for numbers in found for number in numbers]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
async def test_a_crash_at_any_write_loses_and_doubles_no_item(url: str, *, before: bool) -> None:
    registry = one(chatty)
    for crash_at in range(1, MANY):
        machine = await Machine.open(registry, url if url == "memory:" else f"{url}.{crash_at}")
        under = await machine.boot()
        eid = await under.engine.start("w")
        await machine.bury()
        under = await machine.boot(crash_at=crash_at, before=before)
        died = await machine.until_death(under.advance(600))
        await machine.bury()
        under = await machine.boot()
        await under.advance(600)
        journal = trace(await under.engine.journal(eid))
        items = await everything(under, eid, "f")
        assert sorted(items) == sorted(
            ["first", "a0", "a1", "b0", "b1", "beside the wait", "last"]
        ), journal
        assert items[0] == "first"
        assert items[-2:] == ["beside the wait", "last"]
        # What the frames say of their items is true.
        assert await result_of(under, eid) == [
            items.index(item) + 1 for item in ("a0", "a1", "b0", "b1")
        ]
        steps = await everything(under, eid)
        assert steps.count(0) >= 2, "at least once from each of two steps"
        assert steps.count(1) >= 2
        await machine.bury()
        await machine.store.close()
        if not died:
            assert crash_at > 8, "the workflow makes many writes"
            return
    pytest.fail("the workflow never got through")


@pytest.mark.parametrize("lost", ["never applied", "answer lost"])
async def test_no_trouble_with_the_store_loses_or_doubles_an_item(url: str, lost: str) -> None:
    async def body(ctx: Context) -> None:
        await ctx.publish("s", 7)
        await ctx.step(count_up, 3)

    async with cluster(one(body), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("w")
        troubles: list[int] = []

        async def trouble(commands: list[Command]) -> None:
            if holds(commands, Publish) and len(troubles) < 2:
                troubles.append(1)
                if lost == "answer lost":
                    process.wire.answers_lost = 1
                else:
                    process.wire.down = True
                    asyncio.get_running_loop().call_later(0.02, up)

        def up() -> None:
            process.wire.down = False

        process.wire.before_commit = trouble
        async with retrying(machines.clock):
            await process.run_until_idle()
        assert len(troubles) == 2
        assert await everything(process, eid) == [7, 0, 1, 2]


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", "Upper", "a/b", "x" * 201, None])
async def test_a_name_out_of_the_grammar_is_refused_at_the_call(bad: Any) -> None:
    async def step() -> None:
        with pytest.raises(InvalidName, match="stream"):
            step_info().publish(bad, 1)

    async def body(ctx: Context) -> None:
        with pytest.raises(InvalidName, match="stream"):
            ctx.publish(bad, 1)
        await ctx.step(step)

    async with engine_under_test(one(body)) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS FS step#0/1 FC step#0 XC"
        with pytest.raises(InvalidName, match="stream"):
            under.engine.stream(eid, bad)


async def test_a_value_that_is_no_json_is_refused_at_the_call() -> None:
    async def step() -> None:
        with pytest.raises(NotSerializable, match="an item of stream 's'"):
            step_info().publish("s", object())

    async def body(ctx: Context) -> None:
        with pytest.raises(NotSerializable, match="root/publish#0"):
            ctx.publish("s", {"x": float("nan")})
        await ctx.step(step)

    async with engine_under_test(one(body)) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await everything(under, eid) == []
        assert await under.engine.status(eid) == "completed"


@pytest.mark.parametrize("bad", [-1, True, "2", 1.0])
async def test_a_bad_beginning_is_refused_at_the_call(bad: Any) -> None:
    async with engine_under_test(Registry()) as under:
        with pytest.raises(InvalidArgument, match="after is"):
            under.engine.stream(uuid4(), "s", after=bad)


async def test_an_unknown_execution_is_refused(url: str) -> None:
    async with engine_under_test(Registry(), url=url) as under:
        with pytest.raises(UnknownExecution):
            await anext(under.engine.stream(uuid4(), "s"))
        with pytest.raises(InvalidArgument, match="not an execution id"):
            under.engine.stream("nonsense", "s")


async def test_other_arguments_than_recorded_block(url: str) -> None:
    said = ["before"]

    async def body(ctx: Context) -> None:
        await ctx.publish("s", said[0])
        await ctx.receive("go")

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        await under.kill_worker()
        await under.start_worker()
        said[0] = "after"
        await under.engine.resume(eid)
        await under.run_until_idle()
        blocked = (await under.engine.execution(eid)).blocked
        assert blocked is not None
        assert "root/publish#0" in blocked


# -- reading ---------------------------------------------------------------------------------


async def test_a_reader_may_begin_anywhere_and_gets_many(url: str) -> None:
    async def body(ctx: Context) -> None:
        await ctx.step(count_up, 1200)

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        for after in (0, 1, 199, 700, 1199, 1200, 5000):
            assert await everything(under, eid, after=after) == list(range(after, 1200))


async def test_a_reader_in_another_process_follows_to_the_end(tmp_path: Path) -> None:
    async def body(ctx: Context) -> None:
        for _ in range(3):
            message = await ctx.receive("go")
            ctx.publish("s", message.payload if message else None)

    url = f"sqlite:///{tmp_path / 'shared.db'}"
    async with (
        engine_under_test(one(body), url=url) as under,
        perdure.open(url, Registry()) as reader,
    ):
        eid = await under.engine.start("w")
        items = reader.stream(eid, "s")
        for number in range(3):
            waiting = asyncio.ensure_future(anext(items))
            await under.engine.signal(eid, "go", number)
            await under.run_until_idle()
            assert await waiting == number
        with pytest.raises(StopAsyncIteration):
            await anext(items)


async def test_the_last_item_goes_with_the_end(url: str) -> None:
    async def body(ctx: Context) -> None:
        ctx.publish("s", 1)

    async with cluster(one(body), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("w")
        async with running(process):
            assert await anext(process.engine.stream(eid, "s")) == 1
            assert await process.engine.status(eid) == "completed"
        assert follow(process.wire.applied, EndExecution, Publish)


async def test_a_stream_is_nobodys_mail_and_stays_where_it_was_published(url: str) -> None:
    async def body(ctx: Context, generation: int = 0) -> Any:
        await ctx.publish("x", generation)
        message = await ctx.receive("x", timeout=60)
        if generation == 0:
            await ctx.publish("x", "last words")
            ctx.continue_as(1)
        return None if message is None else message.payload

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await under.engine.status(eid) == "suspended", "no item is received"
        await under.engine.signal(eid, "x", "mail")
        await under.engine.signal(eid, "x", "more mail")
        await under.run_until_idle()
        last = await under.engine.execution(eid)
        assert last.eid != eid
        assert last.result == "more mail"
        assert await everything(under, eid) == []
        assert await everything(under, eid, "x") == [0, "last words"]
        assert await everything(under, last.eid, "x") == [1]


async def test_a_copy_begins_with_an_empty_stream(url: str) -> None:
    async def body(ctx: Context) -> list[int]:
        first = await ctx.publish("s", "first")
        return [first, await ctx.publish("s", "second")]

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        copy = await under.engine.fork(eid, "root/publish#1")
        await under.run_until_idle()
        assert await result_of(under, copy) == [1, 1]
        assert await everything(under, copy) == ["second"]
        assert await everything(under, eid) == ["first", "second"]
