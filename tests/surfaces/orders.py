"""Which workflows do the tests of the command line run? One for each way in which things go."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from perdure import Context, Registry, RetryPolicy, step_info
from perdure.patterns import delegate, review

registry = Registry()

TWICE = RetryPolicy(max_attempts=2)


@registry.workflow("greet", version="1")
async def greet(ctx: Context, name: str, *, loud: bool = False) -> str:
    """Complete at once."""
    return await ctx.step(compose, name, loud)


@registry.workflow("approve", version="1")
async def approve_once(_ctx: Context) -> str:
    """Complete at once; an older version."""
    return "approved"


@registry.workflow("approve", version="2")
async def approve(ctx: Context, *_args: Any, **_options: Any) -> Any:
    """Wait for a message and return what it carries; take any arguments."""
    answer = await ctx.receive("approval", timeout=timedelta(days=1))
    return None if answer is None else answer.payload


@registry.workflow("collect", version="1")
async def collect(ctx: Context, count: int) -> list[Any]:
    """Wait for messages and return what they carry."""
    found = [await ctx.receive("item") for _ in range(count)]
    return [message.payload for message in found if message is not None]


@registry.workflow("fail", version="1")
async def fail(ctx: Context) -> str:
    """Fail after two attempts, with what would steer a terminal in the text."""
    return await ctx.step(refuse, retry=TWICE)


@registry.workflow("retry", version="1")
async def retry(ctx: Context) -> int:
    """Fail once, and complete at the second attempt."""
    return await ctx.step(hesitate, retry=TWICE)


@registry.workflow("family", version="1")
async def family(ctx: Context) -> list[Any]:
    """Start a child."""
    return [await ctx.child(greet, "Ada"), await ctx.send("news", 1, scope="global")]


@registry.workflow("ask", version="1")
async def ask(ctx: Context, payload: Any = None, timeout: float | None = None) -> Any:
    """Have a consumer answer, and return the answer and who gave it."""
    answer = await delegate(ctx, "agents", payload, timeout=timeout)
    return None if answer is None else [answer.payload, str(answer.actor)]


@registry.workflow("sign", version="1")
async def sign(
    ctx: Context, payload: Any = None, timeout: float | None = None, queue: str = "finance"
) -> Any:
    """Have a person decide, and return the verdict."""
    decision = await review(ctx, queue, payload, timeout=timeout)
    return None if decision is None else [decision.verdict, decision.data, str(decision.by)]


@registry.workflow("count", version="1")
async def count(ctx: Context, number: int) -> int:
    """Continue until nothing is left to count."""
    if number:
        ctx.continue_as(number - 1)
    return number


@registry.workflow("publish", version="1")
async def publish(ctx: Context, pages: int) -> None:
    """Publish what a step reads, with what would steer a terminal in it, and then the end."""
    await ctx.step(read_pages, pages)
    await ctx.publish("progress", "all")


@registry.workflow("block", version="1")
async def block(_ctx: Context) -> None:
    """Await what no replay can repeat."""
    await asyncio.sleep(0)


@registry.workflow("hold", version="1", queue="slow")
async def hold(ctx: Context, path: str) -> str:
    """Run a step until somebody writes into the named pipe at `path`."""
    return await ctx.step(read_pipe, path)


async def compose(name: str, loud: bool) -> str:
    """Make a greeting."""
    return f"Hello, {name}!".upper() if loud else f"Hello, {name}!"


async def refuse() -> str:
    """Never succeed."""
    message = "\x1b[31mno\tway\nat all"
    raise ValueError(message)


async def hesitate() -> int:
    """Succeed at the second attempt."""
    attempt = step_info().attempt
    if attempt == 1:
        message = "not yet"
        raise ValueError(message)
    return attempt


def read_pages(pages: int) -> None:
    """Publish a page after the other."""
    for page in range(pages):
        step_info().publish("progress", {"page": page, "text": "\x1b[31m\n"})


def read_pipe(path: str) -> str:
    """Say that the step runs, and wait for a writer, without a look at the clock."""
    print("the step runs", flush=True)  # noqa: T201 - a test listens
    return Path(path).read_text(encoding="utf-8")
