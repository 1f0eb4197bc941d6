"""Which types do the registry and the engine give and take? Checked by mypy, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type
from uuid import UUID

import perdure
from perdure import Context, Engine, Entry, ExecutionRow, ExecutionStatus, Registry, StartResult
from perdure.model.queue_task import QueueTask
from perdure.ports.projection import ExecutionSummary, Review

registry = Registry()


@registry.workflow("invoice", version="1")
async def invoice(ctx: Context, number: int, *, note: str = "") -> str:
    """Be a workflow."""
    ctx.random()
    return f"{number} {note}"


async def right_registrations(ctx: Context) -> None:
    """Use a registered function like any other: its type is unchanged."""
    as_it_was: Callable[[Context, int], Coroutine[Any, Any, str]] = invoice
    assert_type(await invoice(ctx, 1, note="x"), str)
    assert_type(await ctx.gather(invoice(ctx, 1)), list[str])
    registry.workflow("other", version="2", queue="slow")(as_it_was)


def wrong_registrations() -> None:
    """Register what is no workflow."""

    @registry.workflow("sync", version="1")  # type: ignore[arg-type]
    def sync(ctx: Context) -> str:
        return str(ctx.eid)

    @registry.workflow("no context", version="1")  # type: ignore[arg-type]
    async def no_context(number: int) -> str:
        return str(number)

    @registry.workflow("nothing", version="1")  # type: ignore[arg-type]
    async def nothing() -> None:
        pass

    registry.workflow("no version")  # type: ignore[call-arg]
    registry.workflow("number", version=1)  # type: ignore[arg-type]
    registry.workflow(invoice, version="1")  # type: ignore[arg-type]


async def wrong_calls(ctx: Context) -> None:
    """Call a registered function wrongly: it is checked as before."""
    await invoice(ctx, "one")  # type: ignore[arg-type]
    await invoice(1)  # type: ignore[call-arg, arg-type]
    (await invoice(ctx, 1)).payload  # type: ignore[attr-defined]  # noqa: B018


async def right_engine(engine: Engine, eid: UUID) -> None:
    """Ask an engine."""
    assert_type(await engine.start(invoice, 1, note="x", key="k"), UUID)
    assert_type(await engine.start("invoice", 1, version="1", queue="slow"), UUID)
    assert_type(await engine.start_result(invoice, 1), StartResult)
    assert_type(await engine.start_many(invoice, [[1], [2]], keys=["a", "b"]), list[UUID])
    assert_type(await engine.result(eid, timeout=timedelta(seconds=1)), Any)
    assert_type(await engine.result(str(eid), timeout=1.5), Any)
    assert_type(await engine.wait(eid), ExecutionRow)
    assert_type(await engine.status(eid), ExecutionStatus)
    assert_type(await engine.journal(eid, after=3), list[Entry])
    assert_type(engine.events(after="now"), AsyncIterator[Entry])
    assert_type((await engine.projection.executions()).items, tuple[ExecutionSummary, ...])
    assert_type(await engine.projection.review("r"), Review | None)
    assert_type(await engine.reviews.pending("finance"), list[Review])
    assert_type((await engine.reviews.decide_result("r", verdict="yes")).first, bool)
    assert_type(await engine.queues.pending("default", limit=5), list[QueueTask])
    assert_type((await engine.queues.depth("default")).leased, int)
    assert_type(await engine.signal(eid, "c", {"any": ["json"]}), int)
    async for entry in engine.watch(eid):
        assert_type(entry, Entry)
    async with engine.worker(queues=["default"], max_steps=4) as worker:
        assert_type(await worker.run_once(), int)


async def wrong_engine(engine: Engine, eid: UUID) -> None:
    """Ask an engine wrongly."""
    await engine.start(42)  # type: ignore[arg-type]
    await engine.start(invoice, 1, key=7)  # type: ignore[arg-type]
    await engine.start_many(invoice, [1, 2])  # type: ignore[list-item]
    await engine.result(42)  # type: ignore[arg-type]
    await engine.result(eid, timeout="1 s")  # type: ignore[arg-type]
    await engine.signal(eid, 7, None)  # type: ignore[arg-type]
    await engine.signal(eid, "c")  # type: ignore[call-arg]
    await engine.signal(eid, "c", None, by="ada@example.com")  # type: ignore[arg-type]
    engine.result(eid).payload  # type: ignore[attr-defined]  # noqa: B018


async def opening() -> None:
    """Open an engine."""
    async with perdure.open("memory:", registry) as engine:
        assert_type(engine, Engine)
    async with perdure.open("memory:") as engine:  # type: ignore[call-arg]
        pass
    await perdure.open("memory:", registry)  # type: ignore[misc]
