"""Patches: who had passed a point takes the old branch, who had not takes the new one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Context, InvalidName, Registry
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import Cluster, cluster
from tests.engine.support import Runs, result_of, trace_of


def code(version: str, runs: Runs) -> Registry:  # noqa: C901 - a list of small functions
    """Give the workflow ``w`` as of a deploy: ``old``, ``patched``, ``deprecated`` or ``new``."""
    registry = Registry()

    def do(what: str) -> str:
        runs[what] += 1
        return what

    @registry.workflow("w", version="1")
    async def run(ctx: Context) -> list[Any]:
        seen: list[Any] = [await ctx.step(do, "first")]
        await ctx.receive("a")
        if version == "old":
            seen.append(await ctx.step(do, "old", key="old"))
        elif version == "patched":
            if ctx.patched("p"):
                seen.append(await ctx.step(do, "new", key="new"))
            else:
                seen.append(await ctx.step(do, "old", key="old"))
        else:
            if version == "deprecated":
                ctx.deprecate_patch("p")
            seen.append(await ctx.step(do, "new", key="new"))
        await ctx.receive("b")
        if version == "patched":
            seen.append(ctx.patched("p"))
        await ctx.receive("c")
        return seen

    @registry.workflow("loop", version="1")
    async def loop(ctx: Context, count: int) -> list[bool]:
        found = []
        for n in range(count):
            if version != "old":
                found.append(ctx.patched("p"))
            await ctx.step(do, f"{n}", key=str(n))
            await ctx.receive("x")
        return found

    @registry.workflow("again", version="1")
    async def again(ctx: Context, more: bool) -> bool:
        answer = ctx.patched("p")
        await ctx.receive("x")
        if more:
            ctx.continue_as(more=False)
        return answer

    @registry.workflow("bad", version="1")
    async def bad(ctx: Context, patch_id: Any) -> bool:
        return ctx.patched(patch_id)

    return registry


async def boot(machines: Cluster, version: str, runs: Runs) -> Any:
    """Deploy a version of the code: the process before it ends."""
    for process in machines.processes:
        await process.die()
    machines.processes.clear()
    process = await machines.boot(registry=code(version, runs))
    await process.advance(120)  # the session of the one before expires
    return process


async def send(process: EngineUnderTest, eid: Any, *channels: str) -> None:
    for channel in channels:
        await process.engine.signal(eid, channel, None)
        await process.run_until_idle()


async def test_each_takes_the_branch_of_where_it_was(url: str) -> None:
    runs = Runs()
    async with cluster(code("old", runs), url) as machines:
        process = await boot(machines, "old", runs)
        before, beyond = [await process.engine.start("w") for _ in range(2)]
        await process.run_until_idle()
        await send(process, beyond, "a")
        process = await boot(machines, "patched", runs)
        fresh = await process.engine.start("w")
        await process.run_until_idle()
        await send(process, before, "a")
        await send(process, fresh, "a")
        await send(process, beyond, "b")
        process = await boot(machines, "patched", runs)  # the answers are facts of the journals
        await send(process, beyond, "c")
        for eid in (before, fresh):
            await send(process, eid, "b", "c")
            assert await result_of(process, eid) == ["first", "new", True]
        assert await result_of(process, beyond) == ["first", "old", False]
        assert runs == {"first": 3, "old": 1, "new": 2}
        (frame,) = [
            e
            for e in await process.engine.journal(beyond)
            if e.fid == "root/patched:p" and e.type == "frame.completed"
        ]
        assert frame.payload["value"] is False


async def test_a_loop_keeps_its_first_answer(url: str) -> None:
    runs = Runs()
    async with cluster(code("old", runs), url) as machines:
        process = await boot(machines, "old", runs)
        eid = await process.engine.start("loop", 4)
        await process.run_until_idle()
        await send(process, eid, "x")
        process = await boot(machines, "patched", runs)
        fresh = await process.engine.start("loop", 2)
        await process.run_until_idle()
        await send(process, eid, "x", "x", "x")
        await send(process, fresh, "x", "x")
        assert await result_of(process, eid) == [False] * 4
        assert await result_of(process, fresh) == [True] * 2
        assert all(runs[str(n)] == (2 if n < 2 else 1) for n in range(4))


async def test_a_patch_is_deprecated_then_removed(url: str) -> None:
    """Those on the new branch go on; those on the old one wait for an operator."""
    runs = Runs()
    async with cluster(code("old", runs), url) as machines:
        process = await boot(machines, "old", runs)
        old, unseen = [await process.engine.start("w") for _ in range(2)]
        await process.run_until_idle()
        await send(process, old, "a")
        await send(process, unseen, "a")
        process = await boot(machines, "patched", runs)
        new = await process.engine.start("w")
        await process.run_until_idle()
        await send(process, new, "a")
        await send(process, old, "b")
        process = await boot(machines, "deprecated", runs)
        fresh = await process.engine.start("w")
        await process.run_until_idle()
        await send(process, fresh, "a")
        for eid in (new, old, unseen, fresh):
            await send(process, eid, "b")
        for eid in (old, unseen):
            row = await process.engine.execution(eid)
            assert row.suspended_on == ("operator",)
            assert row.blocked is not None
            assert "old branch of patch 'p'" in row.blocked
        process = await boot(machines, "new", runs)
        for eid in (new, fresh):
            await send(process, eid, "c")
            assert (await process.engine.status(eid)) == "completed"
        process = await boot(machines, "patched", runs)
        for eid in (old, unseen):
            await process.engine.resume(eid)
            await process.run_until_idle()
            await send(process, eid, "b", "c")
            assert (await result_of(process, eid))[:2] == ["first", "old"]
        assert runs == {"first": 4, "old": 2, "new": 2}


async def test_a_fork_copies_it_and_a_successor_begins_afresh(url: str) -> None:
    runs = Runs()
    async with cluster(code("old", runs), url) as machines:
        process = await boot(machines, "old", runs)
        beyond = await process.engine.start("w")
        await process.run_until_idle()
        await send(process, beyond, "a")
        process = await boot(machines, "patched", runs)
        await send(process, beyond, "b", "c")
        fork = await process.engine.fork(beyond, "root/receive#2")
        await process.run_until_idle()
        await send(process, fork, "c")
        assert await result_of(process, fork) == ["first", "old", False]
        chain = await process.engine.start("again", more=True)
        await process.run_until_idle()
        await send(process, chain, "x", "x")
        assert await process.engine.result(chain) is True


@pytest.mark.parametrize("patch_id", ["", "a b", 7, None])
async def test_a_bad_id_is_refused(url: str, patch_id: Any) -> None:
    async with engine_under_test(code("new", Runs()), url=url) as under:
        eid = await under.engine.start("bad", patch_id)
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == InvalidName.__name__
        assert await trace_of(under, eid) == "XS XF(InvalidName)"


PROGRAM = st.lists(st.sampled_from(["step", "receive", "gather", "now"]), min_size=1, max_size=6)


@pytest.mark.cold
@settings(max_examples=60, deadline=None)
@given(program=PROGRAM, data=st.data())
async def test_random_programs_never_lose_their_way(
    program: list[str], data: st.DataObject
) -> None:
    """A patch comes in anywhere, at any time; every later replay takes the branch it took."""
    place = data.draw(st.integers(0, len(program)))
    deploy_after = data.draw(st.integers(0, program.count("receive") + program.count("gather")))
    registries = [_program(program, None), _program(program, place)]
    async with cluster(registries[0], "memory:") as machines:
        process = await machines.boot()
        eid = await process.engine.start("w")
        await process.run_until_idle()
        answers = set()
        for sent in range(20):
            if sent == deploy_after:
                await process.die()
                process = await machines.boot(registry=registries[1])
                await process.advance(120)
            row = await process.engine.execution(eid)
            assert row.blocked is None
            answers |= {
                e.payload["value"]
                for e in await process.engine.journal(eid)
                if e.fid == "root/patched:p" and e.type == "frame.completed"
            }
            if row.status.terminal:
                break
            await process.engine.signal(eid, "x", sent)
            await process.run_until_idle()
        assert (await process.engine.status(eid)) == "completed"
        assert len(answers) <= 1
        result = await result_of(process, eid)
        if answers:
            assert result == next(iter(answers))


def _program(program: list[str], patch_at: int | None) -> Registry:  # noqa: C901
    registry = Registry()

    def nothing(n: int) -> int:
        return n

    async def part(ctx: Context, what: str, n: int) -> None:
        if what == "step":
            await ctx.step(nothing, n)
        elif what == "receive":
            await ctx.receive("x")
        elif what == "gather":
            await ctx.gather(ctx.step(nothing, n), ctx.receive("x"), ctx.step(nothing, -n))
        else:
            ctx.now()

    @registry.workflow("w", version="1")
    async def run(ctx: Context) -> bool | None:
        answer = None
        for n, what in enumerate([*program, None]):
            if n == patch_at:
                answer = ctx.patched("p")
                if answer:
                    await ctx.step(nothing, 100, key="new")
                    continue
            if what is not None:
                await part(ctx, what, n)
        return answer

    return registry
