"""How does one follow an execution? Entry by entry as they commit, until it has ended."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import Context, Registry
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import Gate, running, turns


def gated(gate: Gate) -> Registry:
    """Give a workflow whose step waits at a gate."""
    registry = Registry()

    @registry.workflow("gated", version="1")
    async def run(ctx: Context) -> Any:
        return await ctx.step(gate.wait, "done", key="k")

    return registry


async def collect(under: EngineUnderTest, eid: Any, seen: asyncio.Queue[str]) -> None:
    async for entry in under.engine.watch(eid):
        seen.put_nowait(entry.type)


async def test_watch_gives_entries_as_they_commit(url: str) -> None:
    gate = Gate()
    async with engine_under_test(gated(gate), url=url) as under:
        eid = await under.engine.start("gated")
        seen: asyncio.Queue[str] = asyncio.Queue()
        watching = asyncio.create_task(collect(under, eid, seen))
        async with running(under) as task:
            assert await seen.get() == "execution.started"
            assert await seen.get() == "frame.started"
            assert seen.empty()
            gate.opened.set()
            await task
        await watching
        assert [seen.get_nowait(), seen.get_nowait()] == ["frame.completed", "execution.completed"]


async def test_watch_shows_that_an_execution_was_acquired_before_it_does_anything(
    url: str,
) -> None:
    """Its first step waits for a place; nothing is committed meanwhile."""
    gate = Gate()
    async with engine_under_test(gated(gate), url=url, max_steps=1) as under:
        await under.engine.start("gated")
        async with running(under) as task:
            await gate.entered.wait()
            await under.engine.committer.idle()
            eid = await under.engine.start("gated")
            seen: asyncio.Queue[str] = asyncio.Queue()
            watching = asyncio.create_task(collect(under, eid, seen))
            await turns()
            assert under.worker is not None
            assert await under.worker.run_once() == 1
            assert await seen.get() == "execution.started"
            gate.opened.set()
            await task
        await watching


async def test_watch_of_an_execution_that_has_ended_gives_all_and_ends(url: str) -> None:
    gate = Gate()
    gate.opened.set()
    async with engine_under_test(gated(gate), url=url) as under:
        eid = await under.engine.start("gated")
        await under.run_until_idle()
        journal = await under.engine.journal(eid)
        assert len(journal) == 4
        assert [entry async for entry in under.engine.watch(eid)] == journal
        later = [entry async for entry in under.engine.watch(eid, after=2)]
        assert later == journal[2:]
        assert later[0].provenance.code == journal[1].provenance.code
        assert [entry async for entry in under.engine.watch(eid, after=4)] == []
