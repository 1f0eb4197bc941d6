"""Which types do the methods of the context give and take? Checked by mypy, never run.

``assert_type`` says what is given; where an error is expected stands an ignore with its code, and
an ignore that is not needed is an error itself.
"""

from __future__ import annotations

import functools
from datetime import datetime, timedelta
from typing import assert_type
from uuid import UUID

from perdure import Context, Message, RetryPolicy


class Invoice:
    """A type of the application."""

    async def charge(self, amount: int) -> str:
        """Charge an amount."""
        return str(amount)


OLD = Invoice()


def use(*values: object) -> None:
    """Use values."""


async def fetch(number: int, *, scale: float = 1.0) -> Invoice:
    """Be an async step."""
    return Invoice() if number * scale else OLD


def count(text: str) -> int:
    """Be a sync step."""
    return len(text)


async def nothing() -> None:
    """Be a step without parameters."""


async def right_steps(ctx: Context) -> None:
    """Call steps as they are meant to be called."""
    retry, minute = RetryPolicy(max_attempts=3), timedelta(minutes=1)
    assert_type(await ctx.step(fetch, 1), Invoice)
    assert_type(await ctx.step(fetch, 1, scale=2.0), Invoice)
    assert_type(await ctx.step(fetch, number=1), Invoice)
    assert_type(await ctx.step(fetch, 1, key="one"), Invoice)
    assert_type(await ctx.step(fetch, 1, name="read", key="one", retry=retry), Invoice)
    assert_type(await ctx.step(fetch, 1, retry=retry, timeout=minute), Invoice)
    assert_type(await ctx.step(fetch, 1, timeout=2.5), Invoice)
    assert_type(await ctx.step(count, "text"), int)
    assert_type(await ctx.step(count, "text", retry=retry), int)
    assert_type(await ctx.step(count, "text", timeout=minute), int)
    assert_type(await ctx.step(nothing), None)
    assert_type(await ctx.step(Invoice().charge, 1), str)
    assert_type(await ctx.step(functools.partial(count, "text")), int)
    assert_type(await ctx.step(lambda: "text", name="text"), str)
    assert_type(await ctx.step(lambda: fetch(1), name="read"), Invoice)
    frame = ctx.step(count, "text")
    assert_type(await frame, int)


async def wrong_steps(ctx: Context) -> None:
    """Call steps wrongly."""
    await ctx.step(fetch, "1")  # type: ignore[call-overload]
    await ctx.step(fetch)  # type: ignore[call-overload]
    await ctx.step(fetch, 1, 2)  # type: ignore[call-overload]
    await ctx.step(fetch, 1, scale="big")  # type: ignore[arg-type]
    await ctx.step(fetch, 1, unknown=1)  # type: ignore[call-arg]
    await ctx.step(count, 7)  # type: ignore[call-overload]
    await ctx.step(nothing, 1)  # type: ignore[call-overload]
    await ctx.step(Invoice().charge, "1")  # type: ignore[call-overload]
    await ctx.step(fetch(1))  # type: ignore[call-overload]
    await ctx.step(7)  # type: ignore[call-overload]
    await ctx.step(fetch, 1, key=7)  # type: ignore[call-arg]
    await ctx.step(fetch, 1, name=b"read")  # type: ignore[call-arg]
    await ctx.step(fetch, 1, retry=3)  # type: ignore[call-arg]
    await ctx.step(fetch, 1, timeout="10 s")  # type: ignore[call-arg]
    text: str = await ctx.step(count, "text")  # type: ignore[call-overload]
    number: int = await ctx.step(fetch, 1, key="k")  # type: ignore[arg-type]
    invoice: Invoice = ctx.step(fetch, 1)  # type: ignore[assignment]
    use(text, number, invoice)


async def right_waits(ctx: Context) -> None:
    """Wait as it is meant."""
    assert_type(await ctx.receive("c"), Message | None)
    assert_type(await ctx.receive("c", timeout=timedelta(days=1), key="k"), Message | None)
    assert_type(await ctx.receive("c", 10), Message | None)
    assert_type(await ctx.sleep(1.5), datetime)
    assert_type(await ctx.sleep(timedelta(hours=1), name="pause"), datetime)
    assert_type(await ctx.sleep_until(ctx.now()), datetime)


async def wrong_waits(ctx: Context) -> None:
    """Wait wrongly."""
    message = await ctx.receive("c")
    use(message.payload)  # type: ignore[union-attr]
    await ctx.receive(7)  # type: ignore[arg-type]
    await ctx.receive("c", timeout="1 day")  # type: ignore[arg-type]
    await ctx.sleep("1 hour")  # type: ignore[arg-type]
    await ctx.sleep_until(timedelta(hours=1))  # type: ignore[arg-type]


async def inline(ctx: Context) -> None:
    """Take values that are given at the call."""
    assert_type(ctx.now(), datetime)
    assert_type(ctx.random(), float)
    assert_type(ctx.uuid(), UUID)
    await ctx.now()  # type: ignore[misc]
    ctx.eid = ctx.uuid()  # type: ignore[misc]


async def branch(ctx: Context, number: int) -> Invoice:
    """Be a branch."""
    return await ctx.step(fetch, number)


async def right_gathers(ctx: Context) -> None:
    """Gather frames and branches."""
    invoice, text = ctx.step(fetch, 1), ctx.step(count, "text")
    assert_type(await ctx.gather(invoice, text), tuple[Invoice, int])
    assert_type(
        await ctx.gather(branch(ctx, 1), ctx.receive("c"), text),
        tuple[Invoice, Message | None, int],
    )
    assert_type(
        await ctx.gather(ctx.sleep(1), invoice, text, ctx.step(nothing)),
        tuple[datetime, Invoice, int, None],
    )
    assert_type(await ctx.gather(*[branch(ctx, number) for number in range(3)]), list[Invoice])
    assert_type(await ctx.gather(text, text, text, text, text), list[int])
    assert_type(await ctx.gather(text), list[int])
    inner = ctx.gather(text, text)
    assert_type(await ctx.gather(inner, invoice), tuple[tuple[int, int], Invoice])
    assert_type(await ctx.gather(text, text, return_exceptions=True), list[int | BaseException])


async def wrong_gathers(ctx: Context) -> None:
    """Gather wrongly."""
    await ctx.gather(1, 2)  # type: ignore[call-overload]
    await ctx.gather(fetch, ctx.sleep(1))  # type: ignore[call-overload]
    await ctx.gather([ctx.sleep(1), ctx.sleep(2)])  # type: ignore[call-overload]
    await ctx.gather(ctx.sleep(1), ctx.sleep(2), return_exceptions="yes")  # type: ignore[call-overload]
    one, two, three = await ctx.gather(ctx.sleep(1), ctx.sleep(2))  # type: ignore[misc]
    results = await ctx.gather(ctx.step(count, "a"), return_exceptions=True)
    use(one, two, three, results[0] + 1)  # type: ignore[operator]


async def selects(ctx: Context) -> None:
    """Select the first of several."""
    assert_type(await ctx.select(ctx.sleep(1), ctx.sleep(2)), tuple[int, datetime])
    await ctx.select(7)  # type: ignore[arg-type]
