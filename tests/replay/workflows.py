"""Which workflows wrote the recorded histories? They must stay as they are, for ever.

A change here that makes a replay fail would do the same to the executions of every user.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure import Cancelled, ChildFailed, Context, Registry, RetryPolicy, StepFailed, step_info

registry = Registry()


async def add(one: int, other: int) -> int:
    """Add two numbers."""
    return one + other


async def fail_first() -> str:
    """Fail at the first attempt."""
    if step_info().attempt == 1:
        message = "the first attempt fails"
        raise ValueError(message)
    return "ok"


async def fail() -> None:
    """Fail."""
    message = "it always fails"
    raise ValueError(message)


async def branch(ctx: Context, number: int) -> int:
    """Run two steps that share their name with those of other branches."""
    first = await ctx.step(add, number, 1)
    return await ctx.step(add, first, 1)


@registry.workflow("leaf", version="1")
async def leaf(ctx: Context, number: int) -> int:
    """Double a number, unless it is 13."""
    if number == 13:
        message = "thirteen"
        raise ValueError(message)
    return await ctx.step(add, number, number)


@registry.workflow("frames", version="1")
async def frames(ctx: Context) -> dict[str, Any]:
    """Use every kind of frame once."""
    begun, chance, name = ctx.now(), ctx.random(), ctx.uuid()
    policy = RetryPolicy(max_attempts=2, backoff=timedelta(seconds=30))
    try:
        await ctx.step(fail)
    except StepFailed as failed:
        error = failed.error_type
    answer = await ctx.receive("answer", timeout=timedelta(days=1))
    branches = await ctx.gather(branch(ctx, 10), branch(ctx, 20), ctx.sleep(60))
    return {
        "inline": [begun.year, 0 <= chance < 1, name.version],
        "steps": [await ctx.step(add, 1, 2, key="keyed"), await ctx.step(fail_first, retry=policy)],
        "error": error,
        "answer": None if answer is None else [answer.seq, answer.payload],
        "nothing": await ctx.receive("never", timeout=0),
        "branches": branches[:2],
        "first": (await ctx.select(ctx.sleep(3600), ctx.step(add, 3, 4)))[1],
    }


@registry.workflow("effects", version="1")
async def effects(ctx: Context) -> dict[str, Any]:
    """Start children, talk, and announce."""
    try:
        await ctx.child(leaf, 13)
    except ChildFailed as failed:
        error = [failed.status, failed.error_type]
    numbers = await ctx.gather(*(ctx.child(leaf, n, key=str(n)) for n in range(3)))
    sent = await ctx.send("own", {"to": "myself"})
    message = await ctx.receive("own")
    await ctx.announce("told", numbers)
    try:
        await ctx.send("x", None, to=ctx.uuid())
    except StepFailed as failed:
        unknown = failed.error_type
    return {
        "children": numbers,
        "error": error,
        "message": [sent, message.payload if message else None],
        "claims": [(await ctx.claim("history", "first"))[0], (await ctx.claim("history", 2))[1]],
        "unknown": unknown,
        "global": await ctx.send("news", 1, scope="global"),
    }


async def tell(count: int) -> int:
    """Publish from a step."""
    for number in range(count):
        step_info().publish("progress", number)
    return count


@registry.workflow("streams", version="1")
async def streams(ctx: Context) -> list[Any]:
    """Publish, and ask for patches."""
    ctx.deprecate_patch("older")
    first = await ctx.publish("progress", {"is": "begun"})
    told = await ctx.step(tell, 3)
    taken = [ctx.patched("newer"), ctx.patched("newer")]
    return [first, told, *taken, await ctx.publish("progress", "done", key="end")]


@registry.workflow("cancelled", version="1")
async def cancelled(ctx: Context) -> None:
    """Clean up after a cancel, in two branches."""

    async def guarded(number: int) -> None:
        try:
            await ctx.sleep(timedelta(days=number))
        except Cancelled:
            async with ctx.shield():
                await ctx.step(add, number, -number, key=str(number))
            raise

    await ctx.gather(guarded(1), guarded(2))


@registry.workflow("failed", version="1")
async def failed(ctx: Context) -> None:
    """Fail with the failure of a step, while another frame waits."""
    await ctx.gather(ctx.receive("never"), ctx.step(fail))


@registry.workflow("continued", version="1")
async def continued(ctx: Context, number: int) -> int:
    """Continue twice."""
    if number < 2:
        ctx.continue_as(await ctx.step(add, number, 1))
    return number
