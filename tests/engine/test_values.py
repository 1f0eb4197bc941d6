"""What does the function see of a value? The same on the live run as on every replay: its JSON."""

from __future__ import annotations

import asyncio
import enum
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest

from perdure import Context, NotSerializable, Registry, RetryPolicy, StepFailed
from perdure.testing import engine_under_test
from tests.engine.support import Runs, result_of, trace_of

SOON = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Item:
    name: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


class Order(msgspec.Struct):
    items: list[Item]
    placed: datetime
    colour: Colour = Colour.RED


class Customer(pydantic.BaseModel):
    name: str
    since: date
    limits: dict[int, Decimal] = {}


class Point(NamedTuple):
    x: int
    y: int


ITEM = Item("pen", Decimal("1.10"), {"new"})


async def give_item() -> Item:
    return ITEM


async def give_order() -> Order:
    return Order([ITEM], SOON)


async def give_customer() -> Customer:
    return Customer(name="Ada", since=SOON.date(), limits={7: Decimal("0.10")})


async def give_amount() -> Decimal:
    return Decimal("12.30")


def give_instant() -> datetime:
    return SOON


async def give_duration() -> timedelta:
    return timedelta(minutes=1.5)


def give_id() -> UUID:
    return UUID(int=7)


async def give_colour() -> Colour:
    return Colour.RED


async def give_point() -> Point:
    return Point(1, 2)


async def give_tuple() -> tuple[int, ...]:
    return (1, 2)


async def give_mapping() -> dict[int, list[Item] | None]:
    return {1: [ITEM], 2: None}


async def give_optional() -> Customer | None:
    return None


async def give_bytes() -> bytes:
    return b"\x00\xff"


TYPED: list[tuple[Callable[[], Any], object]] = [
    (give_item, ITEM),
    (give_order, Order([ITEM], SOON)),
    (give_customer, Customer(name="Ada", since=SOON.date(), limits={7: Decimal("0.10")})),
    (give_amount, Decimal("12.30")),
    (give_instant, SOON),
    (give_duration, timedelta(minutes=1.5)),
    (give_id, UUID(int=7)),
    (give_colour, Colour.RED),
    (give_point, Point(1, 2)),
    (give_tuple, (1, 2)),
    (give_mapping, {1: [ITEM], 2: None}),
    (give_optional, None),
    (give_bytes, b"\x00\xff"),
]


async def seen_twice(url: str, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Give what a workflow sees of the result of a step: on the live run, and on a replay."""
    registry = Registry()
    seen: list[Any] = []

    @registry.workflow("w", version="1")
    async def sees(ctx: Context) -> None:
        seen.append(await ctx.step(function, *args, name="step"))
        await ctx.receive("go")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(sees)
        await under.run_until_idle()
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "completed"
    return seen


@pytest.mark.cold
@pytest.mark.parametrize(
    ("function", "value"), TYPED, ids=[function.__name__[5:] for function, _ in TYPED]
)
async def test_an_annotated_result_comes_back_as_its_type(
    url: str, function: Callable[[], Any], value: object
) -> None:
    live, replayed = await seen_twice(url, function)
    assert live == replayed == value
    assert type(live) is type(replayed) is type(value)


async def untyped_item():  # type: ignore[no-untyped-def]  # noqa: ANN201 - what is tested
    return [ITEM, (1, SOON), {2: Colour.RED}]


@pytest.mark.cold
async def test_a_result_without_an_annotation_is_plain_json_on_the_live_run_too(url: str) -> None:
    live, replayed = await seen_twice(url, untyped_item)
    plain = [
        {"name": "pen", "price": "1.10", "tags": ["new"]},
        [1, "2031-02-03T04:05:06.000789Z"],
        {"2": "red"},
    ]
    assert live == replayed == plain


@pytest.mark.cold
async def test_what_the_step_does_to_its_value_later_is_not_seen(url: str) -> None:
    kept: list[int] = []

    async def give_list() -> list[int]:
        asyncio.get_running_loop().call_soon(kept.append, 2)
        kept.append(1)
        return kept

    assert await seen_twice(url, give_list) == [[1], [1]]


async def give_double(value: int) -> int:
    await asyncio.sleep(0)
    return value * 2


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function like a decorator that knows nothing of async functions."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@pytest.mark.cold
@pytest.mark.parametrize("function", [lambda value: give_double(value + 0), decorated(give_double)])
async def test_a_function_may_be_async_without_looking_like_it(
    url: str, function: Callable[..., Any]
) -> None:
    assert await seen_twice(url, function, 4) == [8, 8]


async def test_a_function_that_only_looks_sync_fails_and_times_out_like_others(url: str) -> None:
    registry, entered = Registry(), asyncio.Event()

    async def fail() -> None:
        message = "from the loop"
        raise ValueError(message)

    async def hang() -> None:
        entered.set()
        await asyncio.Future()

    @registry.workflow("w", version="1")
    async def fails(ctx: Context) -> list[str]:
        results = await ctx.gather(
            ctx.step(decorated(fail)),
            ctx.step(decorated(hang), timeout=10),
            return_exceptions=True,
        )
        return [str(result).split(": ")[1] for result in results]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(fails)
        running = asyncio.ensure_future(under.run_until_idle())
        await entered.wait()
        under.clock.advance(10)
        await running
        assert await result_of(under, eid) == ["ValueError", "StepTimeout"]


class Opaque:
    """A value that is no JSON."""


LOOP: list[Any] = []
LOOP.append(LOOP)

FAULTY: dict[str, tuple[object, str]] = {
    "object": (Opaque(), "$"),
    "nested": ({"items": [1, {"price": Opaque()}]}, "$.items[1].price"),
    "in a dataclass": ([Item("pen", Opaque())], "$[0].price"),  # type: ignore[arg-type]
    "not a number": ({"rate": math.nan}, "$.rate"),
    "infinite": ([math.inf], "$[0]"),
    "function": ({"call": give_item}, "$.call"),
    "lone surrogate": (["fine", "\ud800"], "$[1]"),
    "contains itself": (LOOP, "$"),
}


@pytest.mark.parametrize("fault", FAULTY)
async def test_a_result_that_is_no_json_fails_its_step_at_once(url: str, fault: str) -> None:
    """No further attempt could help, whatever the policy says."""
    value, path = FAULTY[fault]
    registry, runs = Registry(), Runs()

    async def give() -> Any:
        runs["give"] += 1
        return value

    @registry.workflow("w", version="1")
    async def gives(ctx: Context) -> list[str]:
        try:
            await ctx.step(give, key="k", retry=RetryPolicy(max_attempts=5))
        except StepFailed as failed:
            return [failed.error_type, failed.message]
        return []

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(gives)
        await under.run_until_idle()
        error_type, message = await result_of(under, eid)
        assert error_type == "NotSerializable"
        assert message.startswith(f"root/give:k: the value at {path} ")
        assert await trace_of(under, eid) == "XS FS give:k/1 FF give:k/1 XC"
    assert runs == {"give": 1}


@pytest.mark.parametrize("fault", FAULTY)
async def test_an_argument_that_is_no_json_is_refused_at_the_call(fault: str) -> None:
    value, path = FAULTY[fault]
    registry = Registry()
    refusals: list[NotSerializable] = []

    async def take(*args: Any, **kwargs: Any) -> None:
        """Take anything."""

    @registry.workflow("w", version="1")
    async def takes(ctx: Context) -> None:
        for args, kwargs in (([1, value], {}), ([], {"named": value})):
            with pytest.raises(NotSerializable) as caught:
                ctx.step(take, *args, **kwargs)
            refusals.append(caught.value)

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(takes)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS XC"
    inside = path.removeprefix("$")
    assert [refused.where for refused in refusals] == ["root/take#0", "root/take#1"]
    if fault != "contains itself":
        assert [refused.path for refused in refusals] == [f"$[0][1]{inside}", f"$[1].named{inside}"]


@pytest.mark.parametrize("fault", FAULTY)
async def test_a_workflow_whose_result_is_no_json_fails(url: str, fault: str) -> None:
    value, path = FAULTY[fault]
    registry = Registry()

    @registry.workflow("w", version="1")
    async def ends(ctx: Context) -> Any:
        ctx.random()
        return value

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(ends)
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == "NotSerializable"
        assert row.error.message.startswith(f"the result of w: the value at {path} ")
        assert (await trace_of(under, eid)).endswith("XF(NotSerializable)")


async def test_a_result_that_does_not_fit_its_annotation_fails_its_step(url: str) -> None:
    registry = Registry()

    async def wrong() -> Item:
        return {"name": "pen"}  # type: ignore[return-value]

    @registry.workflow("w", version="1")
    async def gives(ctx: Context) -> list[str]:
        try:
            await ctx.step(wrong)
        except StepFailed as failed:
            return [failed.error_type, failed.message]
        return []

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(gives)
        await under.run_until_idle()
        error_type, message = await result_of(under, eid)
        assert error_type == "NotSerializable"
        assert "root/wrong#0" in message
        assert "does not fit the annotated type" in message
