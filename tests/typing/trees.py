"""Which types do children, effects and operators give and take? Checked by mypy, never run."""

from __future__ import annotations

from typing import Any, assert_type
from uuid import UUID

from perdure import Context, Engine, Registry, StartOptions

registry = Registry()


@registry.workflow("ship", version="1")
async def ship(ctx: Context, order: str, *, fast: bool = False) -> int:
    """Be a workflow."""
    ctx.random()
    return len(order) + fast


async def right_children(ctx: Context) -> None:
    """Start children as they are meant to be started."""
    options = StartOptions(priority=1)
    assert_type(await ctx.child(ship, "A-1"), int)
    assert_type(await ctx.child(ship, "A-1", fast=True), int)
    assert_type(await ctx.child(ship, "A-1", key="one"), int)
    assert_type(await ctx.child(ship, "A-1", name="other", key="one"), int)
    assert_type(await ctx.child(ship, "A-1", queue="slow"), int)
    assert_type(await ctx.child(ship, "A-1", options=options), int)
    assert_type(await ctx.child(ship, "A-1", on_parent_cancel="abandon"), int)
    assert_type(await ctx.child("ship", "A-1", key="one"), Any)
    assert_type(await ctx.gather(ctx.child(ship, "A-1"), ctx.child(ship, "A-2")), tuple[int, int])


async def wrong_children(ctx: Context) -> None:
    """Start children wrongly."""
    await ctx.child(ship)  # type: ignore[call-overload]
    await ctx.child(ship, 1)  # type: ignore[call-overload]
    await ctx.child(ship, "A-1", "A-2")  # type: ignore[call-overload]
    await ctx.child(ship, "A-1", slow=True)  # type: ignore[call-arg]
    await ctx.child(ship, "A-1", fast="yes")  # type: ignore[arg-type]
    await ctx.child(7)  # type: ignore[call-overload]
    await ctx.child(ship, "A-1", on_parent_cancel="forget")  # type: ignore[call-arg]


async def right_effects(ctx: Context) -> None:
    """Have effects as they are meant to be had."""
    assert_type(await ctx.send("x", {"any": "json"}), int)
    assert_type(await ctx.send("x", 1, to=ctx.eid, key="one"), int)
    assert_type(await ctx.send("x", 1, scope="global"), int)
    assert_type(await ctx.announce("paid"), int)
    assert_type(await ctx.claim("key", 1), tuple[bool, Any])
    assert_type(ctx.cancel_requested, bool)
    async with ctx.shield():
        await ctx.sleep(1)


async def wrong_effects(ctx: Context) -> None:
    """Have effects wrongly."""
    await ctx.send(7, 1)  # type: ignore[arg-type]
    await ctx.send("x")  # type: ignore[call-arg]
    await ctx.send("x", 1, scope="everywhere")  # type: ignore[arg-type]
    await ctx.receive("x", scope="everywhere")  # type: ignore[arg-type]
    await ctx.claim("key")  # type: ignore[call-arg]
    await ctx.announce(7)  # type: ignore[arg-type]
    await ctx.shield()  # type: ignore[misc]


async def right_operators(engine: Engine, eid: UUID) -> None:
    """Steer executions as they are meant to be steered."""
    await engine.cancel(eid, reason="why")
    await engine.terminate(str(eid))
    await engine.resume(eid)
    assert_type(await engine.migrate(eid, "2"), str)
    assert_type(await engine.retry_failed(eid), UUID)
    assert_type(await engine.fork(eid, "root", overrides={"root/f#0": 1}), UUID)
    assert_type(await engine.broadcast("news", 1), int)
    assert_type(await engine.cancel_many(workflow="ship", status="suspended"), int)
    assert_type(await engine.migrate_many("2", tags={"a": "b"}), int)


async def wrong_operators(engine: Engine, eid: UUID) -> None:
    """Steer executions wrongly."""
    await engine.cancel(7)  # type: ignore[arg-type]
    await engine.migrate(eid)  # type: ignore[call-arg]
    await engine.migrate(eid, 2)  # type: ignore[arg-type]
    await engine.cancel_many(colour="red")  # type: ignore[call-arg]
    await engine.cancel_many(workflow=7)  # type: ignore[arg-type]
    await engine.resume_many(reason="why")  # type: ignore[call-arg]
    await engine.cancel_many("ship")  # type: ignore[call-arg]
    await engine.fork(eid)  # type: ignore[call-arg]
