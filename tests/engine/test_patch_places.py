"""What lies ahead when a patch is met? Outcomes and frames that only a replay knows of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import Cancelled, Context, Registry
from perdure.testing import engine_under_test
from tests.engine.cluster import cluster
from tests.engine.support import appends

Body = Callable[[Context], Awaitable[Any]]


class Deployment:
    """A workflow whose code can be exchanged under a live execution."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.registry = Registry()

        @self.registry.workflow("w", version="1")
        async def deployed(ctx: Context, *_more: Any) -> Any:
            return await self.body(ctx)


async def work(name: str) -> str:
    return name


@pytest.mark.cold
async def test_a_cancel_that_is_ahead_counts(url: str) -> None:
    """The branch had passed the place; all that the journal holds behind it is the cancel."""

    def code(*, asks: bool) -> Body:
        async def branch(ctx: Context) -> Any:
            await ctx.step(work, "a")
            return ctx.patched("p") if asks else None

        async def other(ctx: Context) -> None:
            try:
                await ctx.sleep(3600)
            except Cancelled:
                async with ctx.shield():
                    await ctx.receive("go")

        async def body(ctx: Context) -> Any:
            taken, _ = await ctx.gather(branch(ctx), other(ctx))
            async with ctx.shield():
                await ctx.announce("taken", taken)

        return body

    async with cluster(Registry(), url) as machines:
        deployment = Deployment(code(asks=False))
        process = await machines.boot(registry=deployment.registry)
        eid = await process.engine.start("w")
        await process.run_until_idle()
        await process.engine.cancel(eid)
        await process.run_to_death(appends("execution.cancelling"), after=True)
        deployment.body = code(asks=True)
        process = await machines.boot(registry=deployment.registry)
        await process.advance(60)
        await process.engine.signal(eid, "go", None)
        await process.run_until_idle()
        (told,) = [e for e in await machines.store.control() if e.type == "announce.taken"]
        assert b"false" in told.body


async def test_a_frame_that_the_code_makes_no_more_is_not_ahead(url: str) -> None:
    async def before(ctx: Context) -> str:
        ctx.now()
        return await ctx.step(work, "only")

    async def after(ctx: Context) -> bool:
        await ctx.step(work, "only")
        return ctx.patched("q")

    deployment = Deployment(before)
    async with engine_under_test(deployment.registry, url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        deployment.body = after
        copy = await under.engine.fork(eid, "root/work#0", overrides={"root/work#0": "given"})
        await under.run_until_idle()
        assert await under.engine.result(copy) is True
