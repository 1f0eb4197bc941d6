"""What arrives between the last look of an owner and its suspension? Nothing of it is missed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from perdure import Context, Registry
from perdure.ports.commands import Suspend
from perdure.runtime.engine import Engine
from tests.engine.cluster import cluster, holds
from tests.engine.support import trace_of

Cause = Callable[[Engine, UUID], Awaitable[object]]


def waiting() -> Registry:
    """Give a workflow, ``wait``, that waits for a child and a message."""
    registry = Registry()

    @registry.workflow("kid", version="1")
    async def kid(ctx: Context) -> str:
        await ctx.receive("x")
        return "grown"

    async def wait(ctx: Context) -> Any:
        child = ctx.child(kid)
        await ctx.receive("begin")
        place, value = await ctx.select(child, ctx.receive("x"), ctx.sleep(3600))
        return [place, value if isinstance(value, str) else None]

    registry.workflow("wait", version="1")(wait)
    registry.workflow("wait", version="2")(wait)
    return registry


async def end_child(engine: Engine, eid: UUID) -> None:
    """End the child with a failure of its parent."""
    (row,) = (await engine.executions(parent=eid)).items
    await engine.terminate(row.eid)


CAUSES: dict[str, tuple[Cause, str]] = {
    "a message": (lambda engine, eid: engine.signal(eid, "x", 1), "CL receive#1"),
    "a cancel": (lambda engine, eid: engine.cancel(eid), "XX?"),
    "a resume": (lambda engine, eid: engine.resume(eid), "FU"),
    "a migration": (lambda engine, eid: engine.migrate(eid, "2"), "FU"),
    "the end of a child": (end_child, "CL kid#0"),
    "a terminate": (lambda engine, eid: engine.terminate(eid), "XT"),
}


@pytest.mark.parametrize("busy", [False, True], ids=["alone", "behind another"])
@pytest.mark.parametrize("cause", CAUSES)
async def test_late_news_are_seen_without_a_sweep(url: str, cause: str, *, busy: bool) -> None:
    act, seen = CAUSES[cause]
    async with cluster(waiting(), url) as machines:
        process, other = await machines.boot(), await machines.boot(worker=False)
        eid = await process.engine.start("wait", version="1")
        await process.run_until_idle()

        async def meanwhile(commands: list[Any]) -> None:
            if holds(commands, Suspend, eid):
                process.wire.before_commit = None
                await act(other.engine, eid)
                if busy:
                    await other.engine.start("wait")

        process.wire.before_commit = meanwhile
        before = len(await process.engine.journal(eid))
        await process.engine.signal(eid, "begin", None)
        await process.run_until_idle()
        assert process.wire.before_commit is None
        line = await trace_of(process, eid)
        after = line.split(" | ", 1)[1] if " | " in line else line
        assert seen in after, line
        assert len(await process.engine.journal(eid)) > before
        status = str(await process.engine.status(eid))
        ends = {
            "a message": "completed",
            "a cancel": "cancelled",
            "the end of a child": "failed",
            "a terminate": "terminated",
        }
        assert status == ends.get(cause, "suspended")
        if cause == "a migration":
            assert (await process.engine.execution(eid)).version == "2"
