"""Which typed values does a workflow use? One of each kind, and how the tests draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import strategies as st

from tests.unit.strategies import FINITE, TEXT


class Currency(Enum):
    EURO = "EUR"
    DOLLAR = "USD"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Channel(StrEnum):
    SHOP = "shop"
    PHONE = "phone"


@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: Currency = Currency.EURO


class Point(NamedTuple):
    x: int
    y: float


class Person(TypedDict):
    name: str
    born: date


class Line(msgspec.Struct, frozen=True, rename="camel"):
    line_id: UUID
    price: Money
    tags: frozenset[str] = frozenset()
    note: str | None = None


class Node(msgspec.Struct, tag=True):
    children: list[Node]
    value: int | None = None


class Customer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)

    name: str
    since: datetime
    channels: frozenset[Channel] = frozenset()


class Order(pydantic.BaseModel):
    number: int = pydantic.Field(alias="orderNumber")
    customer: Customer
    total: Decimal
    ids: set[UUID] = pydantic.Field(default_factory=set, serialization_alias="allIds")
    due: date | None = pydantic.Field(default=None, validation_alias="dueDate")
    took: timedelta = timedelta(0)


@dataclass
class Basket:
    orders: list[Order]
    lines: tuple[Line, ...]
    totals: dict[Currency, Decimal]
    at: datetime
    raw: bytes = b""
    counts: dict[int, int] = field(default_factory=dict)


OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda m: timezone(timedelta(minutes=m)))
AWARE = st.datetimes(timezones=st.just(UTC) | OFFSETS)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
TAGS = st.frozensets(TEXT, max_size=3)
MONEY = st.builds(Money, DECIMALS, st.sampled_from(Currency))
LINES = st.builds(Line, st.uuids(), MONEY, TAGS, st.none() | TEXT)
CUSTOMERS = st.builds(
    Customer, name=TEXT, since=AWARE, channels=st.frozensets(st.sampled_from(Channel))
)
ORDERS = st.builds(
    Order,
    orderNumber=st.integers(),
    customer=CUSTOMERS,
    total=DECIMALS,
    ids=st.sets(st.uuids(), max_size=3),
    dueDate=st.none() | st.dates(),
    took=st.timedeltas(timedelta(-9999), timedelta(9999)),
)
NODES: st.SearchStrategy[Node] = st.recursive(
    st.builds(Node, st.just([])),
    lambda inner: st.builds(Node, st.lists(inner, max_size=3), st.none() | st.integers()),
    max_leaves=8,
)
BASKETS = st.builds(
    Basket,
    st.lists(ORDERS, max_size=2),
    st.lists(LINES, max_size=2).map(tuple),
    st.dictionaries(st.sampled_from(Currency), DECIMALS),
    AWARE,
    st.binary(),
    st.dictionaries(st.integers(), st.integers(), max_size=3),
)

TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (datetime, AWARE),
    (datetime, st.datetimes()),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, DECIMALS),
    (bytes, st.binary()),
    (Currency, st.sampled_from(Currency)),
    (Size, st.sampled_from(Size)),
    (Channel, st.sampled_from(Channel)),
    (float | None, st.none() | FINITE),
    (list[float], st.lists(FINITE)),
    (set[str], st.sets(TEXT)),
    (frozenset[UUID], st.frozensets(st.uuids(), max_size=4)),
    (tuple[int, str], st.tuples(st.integers(), TEXT)),
    (tuple[Decimal, ...], st.lists(DECIMALS, max_size=4).map(tuple)),
    (dict[str, set[int]], st.dictionaries(TEXT, st.sets(st.integers(), max_size=3), max_size=3)),
    (dict[int, date], st.dictionaries(st.integers(), st.dates(), max_size=3)),
    (dict[UUID, Money], st.dictionaries(st.uuids(), MONEY, max_size=3)),
    (Literal["a", 1], st.sampled_from(["a", 1])),
    (Point, st.builds(Point, st.integers(), FINITE)),
    (Person, st.fixed_dictionaries({"name": TEXT, "born": st.dates()})),
    (Money, MONEY),
    (Line, LINES),
    (Node, NODES),
    (Customer, CUSTOMERS),
    (Order, ORDERS),
    (Order | None, st.none() | ORDERS),
    (dict[str, list[Customer]], st.dictionaries(TEXT, st.lists(CUSTOMERS, max_size=2), max_size=2)),
    (Basket, BASKETS),
    (
        Sequence[Mapping[str, Basket]],
        st.lists(st.dictionaries(TEXT, BASKETS, max_size=1), max_size=2),
    ),
]
EACH_TYPE = pytest.mark.parametrize(
    ("annotation", "values"), TYPED, ids=[str(annotation) for annotation, _ in TYPED]
)


def same(one: Any, other: Any) -> bool:
    """Equal, of equal types all the way down, signs of zero and order of keys included."""
    return repr(one) == repr(other)
