"""A greeting that is given once, whatever happens to the process that gives it."""

from __future__ import annotations

from datetime import timedelta

from perdure import Context, Registry, RetryPolicy, step_info

registry = Registry()

RETRY = RetryPolicy(max_attempts=5, backoff=timedelta(seconds=1), backoff_factor=2.0)
PATIENCE = timedelta(minutes=10)


@registry.workflow("hello", version="1")
async def hello(ctx: Context, name: str) -> str:
    """Look a guest up, ask whether to greet, and greet."""
    guest = await ctx.step(look_up, name, retry=RETRY)
    answer = await ctx.receive("answer", timeout=PATIENCE)
    if answer is None or answer.payload != "yes":
        return f"{guest} was not greeted"
    return await ctx.step(greet, guest)


async def look_up(name: str) -> str:
    """Look a guest up in a book that is busy when it is first asked."""
    if step_info().attempt == 1:
        message = "the guest book is busy"
        raise ConnectionError(message)
    return name.title()


async def greet(guest: str) -> str:
    """Greet a guest."""
    return f"Hello, {guest}!"
