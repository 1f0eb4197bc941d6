"""Which types do effects, pools and patterns give and take? Checked by mypy, never run."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from perdure import Context, Decision, Engine, Message, Registry, RetryPolicy
from perdure.patterns import delegate, fan_out, on_tick, review, saga

registry = Registry()


@registry.step()
def render(path: str, *, scale: int = 1) -> bytes:
    """Run in another pool."""
    return path.encode() * scale


@registry.workflow("square", version="1")
async def square(ctx: Context, number: int) -> int:
    """Run as a child."""
    return number * len(str(ctx.eid)[:1])


@registry.workflow("scale", version="1")
async def scale(ctx: Context, number: int, unit: str = "m") -> str:
    """Run as a child, with an argument that may be left out."""
    return f"{ctx.random() * number} {unit}"


@registry.workflow("both", version="1")
async def both(ctx: Context, one: int, two: int) -> float:
    """Take more than an item."""
    return ctx.random() * one * two


def book(connection: sqlite3.Connection, account: str, amount: int = 1) -> float:
    """Run in a transaction."""
    connection.execute("SELECT ?", (account,))
    return float(amount)


async def right(ctx: Context) -> None:
    """Use them as they are meant."""
    assert_type(render("a", scale=2), bytes)  # the decorator leaves the function as it is
    assert_type(await ctx.step(render, "a", queue="gpu"), bytes)
    assert_type(await ctx.transaction(book, "a", amount=2), float)
    assert_type(await ctx.transaction(book, "a", timeout=timedelta(seconds=2)), float)
    assert_type(await ctx.enqueue("q", {"a": 1}), str)
    assert_type(await ctx.withdraw("q", "delegate:x"), bool)
    assert_type(await ctx.publish("s", [1]), int)
    assert_type(ctx.patched("p"), bool)
    assert_type(await delegate(ctx, "q", 1, timeout=5), Message | None)
    assert_type(await review(ctx, "q", 1), Decision | None)
    assert_type(await fan_out(ctx, square, [1, 2], limit=3), list[int])
    assert_type(await fan_out(ctx, square, iter((1, 2)), name="n", queue="q"), list[int])
    assert_type(await fan_out(ctx, scale, [1, 2]), list[str])
    assert_type(await fan_out(ctx, "square", [1, "two"]), list[Any])
    assert_type(
        await ctx.gather(fan_out(ctx, square, [1]), fan_out(ctx, scale, [1])),
        tuple[list[int], list[str]],
    )
    pairs = [(lambda: 1, lambda given: given), (lambda: 2, None)]
    assert_type(await saga(ctx, pairs, act_retry=RetryPolicy(max_attempts=2)), list[Any])


async def right_ticks(engine: Engine) -> None:
    """Start what belongs to a tick."""
    tick = datetime(2030, 1, 1, tzinfo=UTC)
    assert_type(await on_tick(engine, square, "n", tick, 1, queue="q"), UUID)
    assert_type(await on_tick(engine, "square", "n", tick, number=1), UUID)


async def wrong(ctx: Context) -> None:
    """Use them wrongly."""
    await ctx.step(render, "a", queue=7)  # type: ignore[call-arg, arg-type]
    await ctx.transaction(book, 7)  # type: ignore[call-overload]
    await ctx.transaction(book)  # type: ignore[call-overload]
    await ctx.enqueue(7, 1)  # type: ignore[arg-type]
    await ctx.withdraw("q")  # type: ignore[call-arg]
    await review(ctx, "q", timeout="soon")  # type: ignore[arg-type]
    await saga(ctx, [(1, 2)])  # type: ignore[list-item]
    await saga(ctx, [(lambda: 1, None)], act_retry=3)  # type: ignore[arg-type]
    await fan_out(ctx, square, ["one"])  # type: ignore[arg-type]
    await fan_out(ctx, square, 7)  # type: ignore[call-overload]
    await fan_out(ctx, both, [1])  # type: ignore[arg-type]
    await fan_out(ctx, square, [1], limit="2")  # type: ignore[call-overload]


async def wrong_ticks(engine: Engine) -> None:
    """Start what belongs to no tick."""
    await on_tick(engine, square, "n", "2030-01-01")  # type: ignore[arg-type]
    await on_tick(engine, 7, "n", datetime(2030, 1, 1, tzinfo=UTC))  # type: ignore[arg-type]
