"""Who is first? A select takes the first by the journal and abandons the others."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, Registry, StepFailed
from perdure.testing import engine_under_test
from tests.engine.support import Runs, trace


async def test_a_timer_loses_against_a_message(url: str) -> None:
    registry = Registry()

    @registry.workflow("race", version="1")
    async def race(ctx: Context) -> list[Any]:
        place, value = await ctx.select(ctx.sleep(timedelta(hours=1)), ctx.receive("answer"))
        await ctx.receive("end")
        return [place, getattr(value, "payload", None)]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(race)
        await under.run_until_idle()
        await under.engine.signal(eid, "answer", "yes")
        await under.run_until_idle()
        journal = await under.engine.journal(eid)
        assert "CL receive#0 FA sleep#0 FS receive#1" in trace(journal)
        abandoned = next(e for e in journal if e.type == "frame.abandoned")
        assert abandoned.payload["reason"] == "another frame of its select was first"
        assert (await under.engine.execution(eid)).suspended_on == (f"channel:{eid}.end",)
        await under.kill_worker()
        await under.start_worker()
        await under.engine.signal(eid, "end", None)
        await under.run_until_idle()
        assert await under.engine.result(eid) == [1, "yes"]


async def test_the_loser_receives_nothing_any_more(url: str) -> None:
    registry = Registry()

    @registry.workflow("losers", version="1")
    async def losers(ctx: Context) -> list[Any]:
        first = await ctx.select(ctx.receive("a"), ctx.receive("b"))
        late = await ctx.receive("b")
        return [first[0], late.payload if late else None]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(losers)
        await under.run_until_idle()
        await under.engine.signal(eid, "a", 1)
        await under.run_until_idle()
        await under.engine.signal(eid, "b", 2)
        await under.run_until_idle()
        assert await under.engine.result(eid) == [0, 2]


async def test_a_running_step_that_loses_is_dropped(url: str) -> None:
    registry = Registry()
    runs = Runs()
    never = asyncio.Event()

    async def slow() -> str:
        runs["slow"] += 1
        try:
            await never.wait()
        finally:
            runs["cancelled"] += 1
        return "slow"

    async def fast() -> str:
        return "fast"

    async def branch(ctx: Context) -> str:
        await ctx.step(slow)
        return await ctx.step(fast, name="after_slow")

    @registry.workflow("steps", version="1")
    async def steps(ctx: Context) -> list[Any]:
        return list(await ctx.select(branch(ctx), ctx.step(fast)))

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(steps)
        await under.run_until_idle()
        assert await under.engine.result(eid) == [1, "fast"]
        assert runs == {"slow": 1, "cancelled": 1}
        assert "after_slow" not in trace(await under.engine.journal(eid))


async def test_the_error_of_the_first_is_raised(url: str) -> None:
    registry = Registry()

    async def boom() -> None:
        message = "boom"
        raise ValueError(message)

    @registry.workflow("fails", version="1")
    async def fails(ctx: Context) -> str:
        try:
            await ctx.select(ctx.step(boom), ctx.receive("never"))
        except StepFailed as failed:
            return failed.error_type
        return "no error"

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(fails)
        await under.run_until_idle()
        assert await under.engine.result(eid) == "ValueError"


@pytest.mark.parametrize("what", ["nothing", "no frame"])
async def test_a_select_of_nothing_is_refused(url: str, what: str) -> None:
    registry = Registry()

    @registry.workflow("bad", version="1")
    async def bad(ctx: Context) -> None:
        members: list[Any] = [] if what == "nothing" else [1]
        await ctx.select(*members)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(bad)
        await under.run_until_idle()
        error = (await under.engine.execution(eid)).error
        assert error is not None
        assert error.type == "InvalidArgument"
        assert "ctx.select" in error.message
