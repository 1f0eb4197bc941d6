"""Does a patch send each execution down the branch that is its own? The old one, or the new one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from perdure import Context, ForeignFrame, InvalidName, NondeterminismError, Registry, StepFailed
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import cluster
from tests.engine.support import Runs, appends, trace_of

Body = Callable[[Context], Awaitable[Any]]
runs = Runs()


@pytest.fixture(autouse=True)
def _forget_runs() -> None:
    runs.clear()


class Deployment:
    """A workflow whose code can be exchanged under a live execution."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.registry = Registry()

        @self.registry.workflow("w", version="1")
        async def deployed(ctx: Context, *_more: Any) -> Any:
            return await self.body(ctx)


async def work(name: str) -> str:
    runs[name] += 1
    return name


async def go(ctx: Context) -> Any:
    message = await ctx.receive("go")
    return message.payload if message else None


def old(ctx: Context) -> Awaitable[str]:
    return ctx.step(work, "old")


def new(ctx: Context) -> Awaitable[str]:
    return ctx.step(work, "new")


async def before(ctx: Context) -> list[Any]:
    """Wait, take the branch that will be the old one, and wait again."""
    return [await go(ctx), await old(ctx), await go(ctx)]


async def patched(ctx: Context) -> list[Any]:
    return [await go(ctx), await (new(ctx) if ctx.patched("p") else old(ctx)), await go(ctx)]


async def deprecated(ctx: Context) -> list[Any]:
    first = await go(ctx)
    ctx.deprecate_patch("p")
    return [first, await new(ctx), await go(ctx)]


async def removed(ctx: Context) -> list[Any]:
    return [await go(ctx), await new(ctx), await go(ctx)]


async def restart(under: EngineUnderTest) -> None:
    """Let the next resumption be a replay."""
    await under.kill_worker()
    await under.start_worker()


async def start(under: EngineUnderTest, signals: int) -> UUID:
    """Start the workflow, and let it pass some of its waits."""
    eid = await under.engine.start("w")
    await under.run_until_idle()
    for _ in range(signals):
        await tell(under, eid)
    return eid


async def tell(under: EngineUnderTest, eid: UUID) -> None:
    """Let it pass one wait."""
    await under.engine.signal(eid, "go", 1)
    await under.run_until_idle()


async def test_a_patch_is_true_for_those_that_have_not_passed_it(url: str) -> None:
    deployment = Deployment(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        passed = await start(under, 1)
        waiting = await start(under, 0)
        await restart(under)
        deployment.body = patched
        fresh = await start(under, 0)
        for eid in (waiting, fresh, waiting, fresh, passed):
            await tell(under, eid)
            await restart(under)
        result = under.engine.result
        assert await result(passed) == [1, "old", 1]
        assert await result(waiting) == [1, "new", 1]
        assert await result(fresh) == [1, "new", 1]
        assert runs == {"old": 1, "new": 2}
        asked = "FS patched:p/1 FC patched:p"
        assert f"XR(3,message) {asked} CL receive#1 XC" in await trace_of(under, passed)
        assert f"CL receive#0 {asked} FS work#0/1" in await trace_of(under, waiting)


async def test_the_answer_is_a_frame_and_the_same_in_a_loop(url: str) -> None:
    async def loop(ctx: Context) -> list[bool]:
        seen = []
        for _ in range(3):
            seen.append(ctx.patched("each"))
            await go(ctx)
            ctx.deprecate_patch("each")
        return seen

    deployment = Deployment(loop)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start(under, 2)
        (frame,) = [f for f in (await under.engine.frames(eid)).children if f.name == "patched"]
        assert (frame.fid, frame.kind, frame.value) == ("root/patched:each", "step", True)
        await tell(under, eid)
        assert await under.engine.result(eid) == [True] * 3


@pytest.mark.cold  # a replay is what tells that the place was passed
async def test_what_was_passed_is_told_by_an_outcome_or_by_a_frame_that_waits(url: str) -> None:
    async def waits(ctx: Context) -> Any:
        await ctx.step(work, "first")
        return await go(ctx)

    async def patched_before_the_wait(ctx: Context) -> Any:
        await ctx.step(work, "first")
        return [ctx.patched("p"), await go(ctx)]

    deployment = Deployment(waits)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start(under, 0)
        deployment.body = patched_before_the_wait
        await tell(under, eid)
        assert await under.engine.result(eid) == [False, 1]


async def test_in_a_branch_others_that_are_ahead_count(url: str) -> None:
    """False is the safe answer: with it runs what ran before."""

    async def one(ctx: Context, name: str, *, asks: bool) -> list[Any]:
        await ctx.step(work, name, key=name)
        return [ctx.patched("p") if asks else None, await ctx.receive(name, key=name)]

    def program(*, asks: bool) -> Body:
        async def body(ctx: Context) -> Any:
            found = await ctx.gather(one(ctx, "a", asks=asks), one(ctx, "b", asks=False))
            return found[0][0]

        return body

    deployment = Deployment(program(asks=False))
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start(under, 0)
        await restart(under)
        deployment.body = program(asks=True)
        fresh = await under.engine.start("w")
        for one_of_them in (eid, fresh):
            for channel in "ab":
                await under.engine.signal(one_of_them, channel, None)
        await under.run_until_idle()
        assert await under.engine.result(eid) is False
        assert await under.engine.result(fresh) is True


def beside(*, asks: bool) -> Body:
    """Give code with a patch in a branch, beside another one, and nothing behind them."""

    async def branch(ctx: Context) -> Any:
        await ctx.step(work, "a")
        taken = asks and ctx.patched("p")
        return [taken, await (new(ctx) if taken else old(ctx))] if asks else None

    async def other(ctx: Context) -> None:
        await ctx.step(work, "b", key="b")

    async def body(ctx: Context) -> Any:
        return (await ctx.gather(branch(ctx), other(ctx)))[0]

    return body


async def test_an_outcome_that_is_ahead_counts_though_its_frame_is_open(url: str) -> None:
    """The branch had passed the place and left nothing behind it; another one had gone on."""
    async with cluster(Registry(), url) as machines:
        deployment = Deployment(beside(asks=False))
        process = await machines.boot(registry=deployment.registry)
        eid = await process.engine.start("w")
        await process.run_to_death(appends("frame.completed", "root/work:b"), after=True)
        assert (await trace_of(process, eid)).endswith("FC work:b")
        deployment.body = beside(asks=True)
        process = await machines.boot(registry=deployment.registry)
        await process.advance(60)
        assert await process.engine.result(eid) == [False, "old"]


async def test_no_branch_is_begun_before_the_answer_is_durable(url: str) -> None:
    """Else a replay, for which more lies ahead, could begin the other one as well."""
    async with cluster(Registry(), url) as machines:
        deployment = Deployment(beside(asks=True))
        process = await machines.boot(registry=deployment.registry)
        eid = await process.engine.start("w")
        await process.run_to_death(appends("frame.completed", "root/patched:p"), after=False)
        assert runs == {"a": 1, "b": 1}
        process = await machines.boot(registry=deployment.registry)
        await process.advance(60)
        assert await process.engine.result(eid) == [False, "old"]
        assert runs == {"a": 1, "b": 1, "old": 1}


async def test_two_patches_and_one_that_was_removed(url: str) -> None:
    """The memo of a patch that the code does not ask for any more hides nothing."""

    async def second(ctx: Context) -> list[Any]:
        first = await go(ctx)
        here = ctx.patched("q")
        return [first, await new(ctx), ctx.patched("r"), await go(ctx), here]

    deployment = Deployment(patched)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start(under, 1)
        early = await start(under, 0)
        await restart(under)
        deployment.body = second
        await tell(under, eid)
        assert await under.engine.result(eid) == [1, "new", False, 1, False]
        await tell(under, early)
        await tell(under, early)
        assert await under.engine.result(early) == [1, "new", True, 1, True]


async def test_a_memo_that_nothing_asks_for_is_not_ahead(url: str) -> None:
    async def ends_with_it(ctx: Context) -> Any:
        ctx.patched("gone")
        return await ctx.step(work, "only")

    async def without(ctx: Context) -> Any:
        await ctx.step(work, "only")
        return ctx.patched("q")

    deployment = Deployment(ends_with_it)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        deployment.body = without
        copy = await under.engine.fork(eid, "root/work#0", overrides={"root/work#0": "given"})
        await under.run_until_idle()
        assert await under.engine.result(copy) is True
        assert "patched:gone" in await trace_of(under, copy)


# -- when the old branch is gone -------------------------------------------------------------


async def test_a_deprecated_patch_lets_those_pass_that_took_the_new_branch(url: str) -> None:
    deployment = Deployment(patched)
    async with engine_under_test(deployment.registry, url=url) as under:
        took_it = await start(under, 1)
        await restart(under)
        deployment.body = deprecated
        waiting = await start(under, 0)
        await tell(under, took_it)
        await tell(under, waiting)
        await restart(under)
        await tell(under, waiting)
        for eid in (took_it, waiting):
            assert await under.engine.result(eid) == [1, "new", 1]
            assert (await trace_of(under, eid)).count("FC patched:p") == 1


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.cold
async def test_a_deprecated_patch_blocks_those_that_need_the_old_branch(
    url: str, *, recorded: bool
) -> None:
    deployment = Deployment(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start(under, 1)
        if recorded:
            deployment.body = patched
            await under.engine.resume(eid)
            await under.run_until_idle()
            assert "FC patched:p" in await trace_of(under, eid)
        deployment.body = deprecated
        await tell(under, eid)
        row = await under.engine.execution(eid)
        assert row.status == "suspended"
        assert row.blocked is not None
        assert "root/patched:p: the execution is on the old branch" in row.blocked
        assert "bring it back under ctx.patched('p') and resume" in row.blocked
        assert "migrate it" in row.blocked
        assert (await trace_of(under, eid)).count("FS patched:p/1") == recorded
        assert runs == {"old": 1}

        deployment.body = patched
        await under.engine.resume(eid)
        await under.run_until_idle()
        assert await under.engine.result(eid) == [1, "old", 1]


@pytest.mark.cold
async def test_code_that_catches_everything_runs_nothing_behind_a_gone_branch(url: str) -> None:
    async def stubborn(ctx: Context) -> Any:
        try:
            return await deprecated(ctx)
        except BaseException:  # noqa: BLE001 - what a careless function would do
            return await new(ctx)

    deployment = Deployment(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start(under, 1)
        deployment.body = stubborn
        await tell(under, eid)
        assert (await under.engine.execution(eid)).blocked is not None
        assert runs == {"old": 1}


@pytest.mark.parametrize("asking", [patched, deprecated], ids=["patched", "deprecated"])
async def test_both_calls_can_be_removed_from_the_code(url: str, asking: Body) -> None:
    deployment = Deployment(asking)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start(under, 1)
        await restart(under)
        deployment.body = removed
        await tell(under, eid)
        assert await under.engine.result(eid) == [1, "new", 1]
        assert runs == {"new": 1}


async def test_a_migration_to_the_version_with_the_old_branch_helps(url: str) -> None:
    deployment = Deployment(before)
    deployment.registry.workflow("w", version="0")(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await under.engine.start("w", version="1")
        await under.run_until_idle()
        await tell(under, eid)
        await restart(under)
        deployment.body = deprecated
        await under.engine.resume(eid)
        await under.run_until_idle()
        assert (await under.engine.execution(eid)).blocked is not None
        await under.engine.migrate(eid, "0")
        await tell(under, eid)
        assert await under.engine.result(eid) == [1, "old", 1]


# -- copies and successors -------------------------------------------------------------------


async def test_a_fork_keeps_the_answer_and_a_successor_starts_afresh(url: str) -> None:
    async def looping(ctx: Context) -> Any:
        await go(ctx)
        taken = ctx.patched("p")
        await ctx.step(work, "one")
        if (await go(ctx)) == "again":
            ctx.continue_as("again")
        return taken

    async def unpatched(ctx: Context) -> Any:
        await go(ctx)
        await ctx.step(work, "one")
        return await go(ctx)

    deployment = Deployment(unpatched)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await start(under, 1)
        await restart(under)
        deployment.body = looping
        await under.engine.resume(eid)
        await under.run_until_idle()
        assert "FC patched:p" in await trace_of(under, eid)

        copy = await under.engine.fork(eid, "root/receive#1")
        beginning = await under.engine.fork(eid, "root")
        await under.run_until_idle()
        await tell(under, copy)
        await tell(under, beginning)
        await tell(under, beginning)
        assert await under.engine.result(copy) is False
        assert await under.engine.result(beginning) is True

        await under.engine.signal(eid, "go", "again")
        await under.run_until_idle()
        await tell(under, eid)
        await tell(under, eid)
        assert await under.engine.result(eid) is True


async def test_a_retry_keeps_the_answer(url: str) -> None:
    async def fails(ctx: Context) -> Any:
        taken = ctx.patched("p")
        return [taken, await ctx.step(hesitate)]

    async def hesitate() -> str:
        runs["hesitate"] += 1
        if runs["hesitate"] == 1:
            raise ValueError("not yet")
        return "done"

    deployment = Deployment(fails)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        copy = await under.engine.retry_failed(eid)
        await under.run_until_idle()
        assert await under.engine.result(copy) == [True, "done"]
        assert (await trace_of(under, copy)).count("patched:p") == 2


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", "two words", "a/b", "x" * 257, None, 7])
@pytest.mark.parametrize("method", ["patched", "deprecate_patch"])
async def test_a_name_out_of_the_grammar_is_refused(method: str, bad: Any) -> None:
    async def body(ctx: Context) -> str:
        with pytest.raises(InvalidName, match="patch id"):
            getattr(ctx, method)(bad)
        return "refused"

    deployment = Deployment(body)
    async with engine_under_test(deployment.registry) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await under.engine.result(eid) == "refused"
        assert await trace_of(under, eid) == "XS XC"


@pytest.mark.parametrize("method", ["patched", "deprecate_patch"])
async def test_a_step_cannot_ask(method: str) -> None:
    async def body(ctx: Context) -> Any:
        ctx.patched("p")  # that it is known already makes no difference

        async def asks() -> None:
            getattr(ctx, method)("p")

        try:
            await ctx.step(asks)
        except StepFailed as failed:
            return failed.error_type, method in failed.message

    deployment = Deployment(body)
    async with engine_under_test(deployment.registry) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await under.engine.result(eid) == [ForeignFrame.__name__, True]


def test_the_error_says_what_to_do_instead_of_the_general_advice() -> None:
    error = NondeterminismError("root/patched:p", "it was passed", "bring it back")
    assert str(error) == "frame root/patched:p: it was passed; bring it back"
