"""Which types do effects, pools and patterns give and take? Checked by mypy, never run."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import assert_type

from perdure import Context, Decision, Message, Registry
from perdure.patterns import delegate, fan_out, review, saga

registry = Registry()


@registry.step()
def render(path: str, *, scale: int = 1) -> bytes:
    """Run in another pool."""
    return path.encode() * scale


@registry.workflow("square", version="1")
async def square(ctx: Context, number: int) -> int:
    """Run as a child."""
    return number * len(str(ctx.eid)[:1])


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
    await saga(ctx, [(lambda: 1, lambda given: given), (lambda: 2, None)])


async def wrong(ctx: Context) -> None:
    """Use them wrongly."""
    await ctx.step(render, "a", queue=7)  # type: ignore[call-arg, arg-type]
    await ctx.transaction(book, 7)  # type: ignore[call-overload]
    await ctx.transaction(book)  # type: ignore[call-overload]
    await ctx.enqueue(7, 1)  # type: ignore[arg-type]
    await ctx.withdraw("q")  # type: ignore[call-arg]
    await review(ctx, "q", timeout="soon")  # type: ignore[arg-type]
    await saga(ctx, [(1, 2)])  # type: ignore[list-item]
