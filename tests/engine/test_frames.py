"""What is a frame called? Ids depend on the calls alone, never on time, order or worker."""

from __future__ import annotations

import asyncio
import functools
import random
from typing import Any
from uuid import UUID

import pytest

from perdure import Context, DuplicateFrameError, InvalidArgument, InvalidName, Registry
from perdure.testing import engine_under_test
from tests.engine.cluster import cluster, nothing_left
from tests.engine.support import Runs, result_of, trace_of


async def double(value: int) -> int:
    return value * 2


class Scale:
    """A step may be a method or an object that can be called."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    async def grow(self, value: int) -> int:
        return value * self.factor

    def shrink(self, value: int) -> float:
        return value / self.factor

    def __call__(self, value: int) -> int:
        return value + self.factor


class AsyncScale:
    async def __call__(self, value: int) -> int:
        return value + 100


def in_database(connection: Any) -> int:
    (one,) = connection.execute("SELECT 1").fetchone()
    return int(one)


async def test_default_names_are_the_function_and_the_method(url: str) -> None:
    registry = Registry()

    @registry.workflow("every.method", version="1")
    async def every_method(ctx: Context) -> None:
        await ctx.step(double, 1)
        await ctx.receive("c")
        due = await ctx.sleep(0)
        await ctx.sleep_until(due)
        ctx.now()
        ctx.random()
        ctx.uuid()
        await ctx.child(nothing_to_do)
        await ctx.send("own", 1)
        await ctx.announce("a", 1)
        await ctx.claim("k", 1)
        await ctx.publish("s", 1)
        await ctx.withdraw("q", await ctx.enqueue("q", 1))
        await ctx.transaction(in_database)
        ctx.patched("p")

    @registry.workflow("do.nothing", version="1")
    async def nothing_to_do(ctx: Context) -> None:
        ctx.now()

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(every_method)
        await under.engine.signal(eid, "c", 1)
        await under.run_until_idle()
        frames = (await under.engine.frames(eid)).children
    assert [frame.fid.removeprefix("root/") for frame in frames] == [
        "double#0",
        "receive#0",
        "sleep#0",
        "sleep_until#0",
        "now#0",
        "random#0",
        "uuid#0",
        "nothing_to_do#0",
        "send#0",
        "announce#0",
        "claim#0",
        "publish#0",
        "enqueue#0",
        "withdraw#0",
        "in_database#0",
        "patched:p",
    ]
    assert {frame.name: frame.kind for frame in frames} == {
        "double": "step",
        "receive": "receive",
        "sleep": "sleep",
        "sleep_until": "sleep",
        "now": "step",
        "random": "step",
        "uuid": "step",
        "nothing_to_do": "child",
        "send": "step",
        "announce": "step",
        "claim": "step",
        "publish": "step",
        "enqueue": "step",
        "withdraw": "step",
        "in_database": "step",
        "patched": "step",
    }


async def test_kinds_share_one_counter_per_name_which_a_key_leaves_alone(url: str) -> None:
    registry = Registry()

    @registry.workflow("shared", version="1")
    async def shared(ctx: Context) -> None:
        await ctx.step(double, 1, name="x")
        await ctx.step(double, 1, name="x", key="k")
        await ctx.receive("c", name="x")
        await ctx.sleep(0, name="x", key="k.2")
        await ctx.sleep(0, name="x")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(shared)
        await under.engine.signal(eid, "c", 1)
        await under.run_until_idle()
        assert await trace_of(under, eid) == (
            "XS FS x#0/1 FC x#0 FS x:k/1 FC x:k FS x#1/1 CL x#1 FS x:k.2/1 CL x:k.2"
            " FS x#2/1 CL x#2 XC"
        )


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (double, "double", 20),
        (Scale(3).grow, "grow", 30),
        (Scale(4).shrink, "shrink", 2.5),
        (Scale(5), "Scale", 15),
        (AsyncScale(), "AsyncScale", 110),
        (functools.partial(functools.partial(max, 7), 9), "max", 10),
        (functools.partial(double), "double", 20),
        (functools.partial(Scale(3).grow), "grow", 30),
        (str, "str", "10"),
        (abs, "abs", 10),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(value)[:12],
)
async def test_a_step_is_any_function_and_has_its_name(
    function: Any, name: str, value: object
) -> None:
    """Methods, callable objects, partial functions and built-in functions, sync and async."""
    registry = Registry()

    @registry.workflow("step", version="1")
    async def step(ctx: Context) -> Any:
        return await ctx.step(function, 10)

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(step)
        await under.run_until_idle()
        assert await result_of(under, eid) == value
        assert [f.name for f in (await under.engine.frames(eid)).children] == [name]


async def test_a_lambda_needs_a_name(url: str) -> None:
    registry = Registry()

    @registry.workflow("lambda", version="1")
    async def with_lambda(ctx: Context) -> int:
        with pytest.raises(InvalidName, match="<lambda>"):
            ctx.step(lambda: 1)
        return await ctx.step(lambda: 2, name="two")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(with_lambda)
        await under.run_until_idle()
        assert await result_of(under, eid) == 2
        assert await trace_of(under, eid) == "XS FS two#0/1 FC two#0 XC"


async def test_what_is_no_function_is_refused_at_the_call() -> None:
    registry = Registry()

    @registry.workflow("called", version="1")
    async def called(ctx: Context) -> None:
        await ctx.step(double(1))  # type: ignore[call-overload]

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(called)
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == "InvalidArgument"
        assert "ctx.step(function, argument)" in row.error.message
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"


@pytest.mark.parametrize(
    ("name", "key"), [("a b", None), ("", None), ("x" * 129, None), ("x", ""), ("x", "a/b")]
)
async def test_a_name_out_of_the_grammar_opens_no_frame(name: str, key: str | None) -> None:
    registry = Registry()

    @registry.workflow("named", version="1")
    async def named(ctx: Context) -> None:
        await ctx.sleep(0, name=name, key=key)

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(named)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS XF(InvalidName)"


async def test_a_key_is_used_once_for_each_name(url: str) -> None:
    """The second call raises and runs nothing."""
    registry, runs = Registry(), Runs()

    async def f() -> None:
        runs["f"] += 1

    async def g() -> None:
        runs["g"] += 1

    @registry.workflow("twice", version="1")
    async def twice(ctx: Context) -> None:
        await ctx.step(f, key="k")
        with pytest.raises(DuplicateFrameError) as caught:
            ctx.step(g, name="f", key="k")
        assert caught.value.fid == "root/f:k"
        await ctx.step(g, name="f", key="k")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(twice)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS FS f:k/1 FC f:k XF(DuplicateFrameError)"
        assert runs == {"f": 1}


async def test_one_key_serves_different_names(url: str) -> None:
    registry = Registry()

    @registry.workflow("names", version="1")
    async def names(ctx: Context) -> int:
        return await ctx.step(double, 1, key="k") + await ctx.step(double, 2, name="g", key="k")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(names)
        await under.run_until_idle()
        assert await result_of(under, eid) == 6
        assert await trace_of(under, eid) == "XS FS double:k/1 FC double:k FS g:k/1 FC g:k XC"


async def test_an_id_is_fixed_at_the_call(url: str) -> None:
    """Frames that are awaited in another order, or never, keep the number of their call."""
    registry, runs = Registry(), Runs()

    async def s(value: int) -> int:
        runs[f"s({value})"] += 1
        return value

    @registry.workflow("swapped", version="1")
    async def swapped(ctx: Context) -> list[int]:
        a, b = ctx.step(s, 1), ctx.step(s, 2)
        values = [await b, await a]
        await ctx.receive("go")
        return values

    @registry.workflow("forgotten", version="1")
    async def forgotten(ctx: Context) -> int:
        ctx.step(s, 3)
        value = await ctx.step(s, 4)
        await ctx.receive("go")
        return value

    async with engine_under_test(registry, url=url) as under:
        eids = [await under.engine.start(swapped), await under.engine.start(forgotten)]
        await under.run_until_idle()
        for eid in eids:
            await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert [await result_of(under, eid) for eid in eids] == [[2, 1], 4]
        for eid, values in zip(eids, ([1, 2], [3, 4]), strict=True):
            frames = {frame.fid: frame for frame in (await under.engine.frames(eid)).children}
            assert [frames["root/s#0"].value, frames["root/s#1"].value] == values
    assert runs == {"s(1)": 1, "s(2)": 1, "s(3)": 1, "s(4)": 1}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("keyed", [False, True], ids=["numbered", "keyed"])
async def test_branches_that_share_a_name_keep_their_frames(
    url: str, seed: int, *, keyed: bool
) -> None:
    """Plain coroutines interleave on replay as they did live, so each finds its own frames."""
    registry, runs = Registry(), Runs()
    chance = random.Random(seed)  # noqa: S311 - it decides delays, no secret

    async def s(flow: str, phase: int) -> str:
        runs[f"{flow}{phase}"] += 1
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        return f"{flow}{phase}"

    async def flow(ctx: Context, name: str) -> list[str]:
        if keyed:
            return [await ctx.step(s, name, phase, key=f"{name}.{phase}") for phase in (1, 2)]
        return [await ctx.step(s, name, phase) for phase in (1, 2)]

    @registry.workflow("flows", version="1")
    async def flows(ctx: Context) -> list[list[str]]:
        both = await ctx.gather(flow(ctx, "a"), flow(ctx, "b"), flow(ctx, "c"))
        await ctx.receive("go")
        return list(both)

    async with cluster(registry, url) as machines:
        first = await machines.boot()
        eid = await first.engine.start(flows)
        await first.run_until_idle()
        await first.die()
        second = await machines.boot()
        await second.engine.signal(eid, "go", None)
        await second.run_until_idle()
        assert await result_of(second, eid) == [["a1", "a2"], ["b1", "b2"], ["c1", "c2"]]
        assert await nothing_left(machines.store)
    assert set(runs.values()) == {1}
    assert len(runs) == 6


async def test_execution_ids_sort_by_start(url: str) -> None:
    registry = Registry()

    @registry.workflow("empty", version="1")
    async def empty(ctx: Context) -> None:
        """Do nothing."""

    async with engine_under_test(registry, url=url) as under:
        eids = [await under.engine.start(empty) for _ in range(50)]
        listed = (await under.engine.executions(limit=50)).items
    assert all(eid.version == 7 for eid in eids)
    texts = [str(eid) for eid in eids]
    assert texts == sorted(texts)
    assert {row.eid for row in listed} == set(eids)


@pytest.mark.parametrize("eid", ["", "xyz", str(UUID(int=0))[:35], f"{{{UUID(int=0)}}}", 7, None])
async def test_what_is_no_id_is_refused_everywhere(eid: Any) -> None:
    async with engine_under_test(Registry()) as under:
        engine = under.engine
        for call in (
            engine.result(eid),
            engine.wait(eid),
            engine.status(eid),
            engine.execution(eid),
            engine.journal(eid),
            engine.frames(eid),
            engine.lease(eid),
            engine.signal(eid, "c", 1),
            anext(engine.watch(eid)),
        ):
            with pytest.raises(InvalidArgument, match="not an execution id"):
                await call


async def test_a_function_without_a_usable_name_is_told_how_to_get_one(url: str) -> None:
    registry = Registry()

    @registry.workflow("nameless", version="1")
    async def nameless(ctx: Context) -> int:
        return await ctx.step(lambda: 1)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(nameless)
        await under.run_until_idle()
        error = (await under.engine.execution(eid)).error
        assert error is not None
        assert error.message.endswith("; give the frame another one with name=")
