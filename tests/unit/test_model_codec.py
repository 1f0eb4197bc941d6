"""Values cross a boundary as JSON: what comes back is what went in, live as on every replay."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidArgument, NotSerializable
from perdure.model.codec import (
    NULL,
    convert,
    decode,
    decoder_of,
    encode,
    hints_of,
    settle,
)
from tests.unit.strategies import FINITE, JSON, TEXT

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTheChecker

# -- values -----------------------------------------------------------------------------------

FALSY: list[Any] = [None, 0, 0.0, -0.0, False, "", [], {}]


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


# -- encode and decode ------------------------------------------------------------------------


@given(value=JSON)
def test_plain_json_comes_back_as_it_went_in(value: Any) -> None:
    assert same(decode(encode("f", value)), value)


@given(value=JSON)
def test_what_was_decoded_encodes_to_the_same_bytes(value: Any) -> None:
    encoded = bytes(encode("f", value))
    assert bytes(encode("f", decode(encoded))) == encoded


@pytest.mark.parametrize("value", FALSY, ids=repr)
def test_falsy_values_are_values(value: Any) -> None:
    raw, seen = settle("f", value, None)
    assert same(seen, value)
    assert same(decode(raw), value)
    assert bytes(encode("f", value)) == bytes(raw)


def test_null_is_the_encoded_none() -> None:
    assert bytes(NULL) == bytes(encode("f", None))


@pytest.mark.parametrize("digits", [18, 19, 20, 39, 400, 4_298])
@pytest.mark.parametrize("sign", [1, -1])
def test_big_whole_numbers_are_exact(digits: int, sign: int) -> None:
    number = sign * (10**digits - 1)
    assert decode(settle("f", number, None)[0]) == number
    assert settle("f", [number], None)[1] == [number]
    assert settle("f", [number], decoder_of(list[int]))[1] == [number]
    assert convert("argument", number, int) == number


@pytest.mark.parametrize("digits", [4_299, 4_300, 4_301, 10_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_number_too_big_to_be_read_is_refused(digits: int, sign: int) -> None:
    number = sign * 10**digits
    for value in (number, [number]):
        try:
            raw, seen = settle("f", value, None)
        except NotSerializable:
            assert digits >= 4_299
        else:
            assert decode(raw) == seen == value


def test_text_that_looks_like_null_is_text() -> None:
    assert settle("f", "null", None)[1] == "null"
    assert settle("f", ["null", {"null": "annulled"}], None)[1] == ["null", {"null": "annulled"}]


def test_what_json_has_no_word_for_becomes_plain_json() -> None:
    value = {"tuple": (1, 2), "at": date(2030, 1, 2), "size": Size.LARGE, 3: Channel.SHOP}
    assert settle("f", value, None)[1] == {
        "tuple": [1, 2],
        "at": "2030-01-02",
        "size": 2,
        "3": "shop",
    }


def test_no_class_survives_without_an_annotation() -> None:
    seen = [
        settle("f", value, None)[1]
        for value in (Size.LARGE, Channel.SHOP, Money(Decimal("1.10")), Point(1, 2.0))
    ]
    assert seen == [2, "shop", {"amount": "1.10", "currency": "EUR"}, [1, 2.0]]
    assert [type(value) for value in seen] == [int, str, dict, list]


# -- settle: live equals replayed -------------------------------------------------------------


@given(value=JSON)
def test_the_live_value_is_what_a_replay_decodes(value: Any) -> None:
    raw, seen = settle("f", value, None)
    assert same(seen, decode(raw))
    assert same(seen, value)


@EACH_TYPE
@given(data=st.data())
def test_a_typed_value_comes_back_equal_live_and_replayed(
    annotation: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    decoder = decoder_of(annotation)
    assert decoder is not None
    raw, seen = settle("f", value, decoder)
    assert seen == value
    assert type(seen) is type(value)
    assert decoder(raw) == seen


@given(value=JSON)
def test_a_mutable_value_is_cut_off_from_what_the_step_kept(value: Any) -> None:
    kept = [value]
    _, seen = settle("f", kept, None)
    kept.append("later")
    assert same(seen, [value])


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[int], ["1"]),
        (int | None, 1.5),
        (UUID, "no uuid"),
        (Money, {"currency": "EUR"}),
        (Customer, {"name": "Ada"}),
        (Currency, "GBP"),
        (Path, "/tmp"),  # noqa: S108 - a text, no file
        (complex, 1),
    ],
)
def test_a_value_that_does_not_fit_its_annotation_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(NotSerializable, match="does not fit the annotated type") as caught:
        settle("root/f#0", value, decoder_of(annotation))
    assert (caught.value.where, caught.value.path) == ("root/f#0", "$")


def test_what_cannot_be_read_back_is_refused() -> None:
    with pytest.raises(NotSerializable, match="cannot be read back"):
        settle("f", msgspec.Raw(b"{no json"), None)


def test_whatever_a_decoder_raises_is_a_refusal() -> None:
    def fails(_: Any) -> Any:
        raise RecursionError

    with pytest.raises(NotSerializable):
        settle("f", [1], fails)


# -- decoders, annotations, conversion --------------------------------------------------------

T = TypeVar("T")


class Protocolled(typing.Protocol):
    def close(self) -> None: ...


@dataclass
class Unresolved:
    price: OnlyForTheChecker


@pytest.mark.parametrize("annotation", [Any, object, None, int, str, bool, float, type(None)])
def test_plain_annotations_need_no_decoder(annotation: Any) -> None:
    assert decoder_of(annotation) is None


def test_no_annotation_needs_no_decoder() -> None:
    def function():  # type: ignore[no-untyped-def] # noqa: ANN202 - that is what is tested
        pass

    assert decoder_of(hints_of(function).get("return")) is None


@pytest.mark.parametrize(
    "annotation",
    ["Missing", list["Missing"], typing.Never, Money | Line, Unresolved, list[Unresolved], 5],  # type: ignore[name-defined] # noqa: F821 - that is what is tested
    ids=str,
)
def test_what_json_cannot_be_decoded_to_stays_plain_json(annotation: Any) -> None:
    assert decoder_of(annotation) is None
    assert convert("argument", {"price": "1"}, annotation) == {"price": "1"}


def test_annotations_are_resolved() -> None:
    def function(one: Money, *more: list[int], last: Annotated[int, "unit"] = 1) -> Order | None:
        raise NotImplementedError

    assert hints_of(function) == {
        "one": Money,
        "more": list[int],
        "last": Annotated[int, "unit"],
        "return": Order | None,
    }


def test_an_annotation_that_cannot_be_resolved_leaves_the_others() -> None:
    def function(one: OnlyForTheChecker, two: Money) -> list[Order]:
        raise NotImplementedError

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    class Shop:
        def method(self, one: OnlyForTheChecker) -> Money:
            raise NotImplementedError

    assert hints_of(function) == {"two": Money, "return": list[Order]}
    assert hints_of(wrapped) == hints_of(function)
    assert hints_of(Shop().method) == {"return": Money}


@pytest.mark.parametrize("function", [print, partial(print), object()])
def test_what_has_no_annotations_has_no_hints(function: Callable[..., Any]) -> None:
    assert hints_of(function) == {}


@EACH_TYPE
@given(data=st.data())
def test_decoded_arguments_are_converted_to_their_annotations(
    annotation: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    converted = convert("argument", decode(encode("argument", value)), annotation)
    assert converted == value
    assert type(converted) is type(value)


@given(value=JSON)
@pytest.mark.parametrize("annotation", [Any, object, inspect.Signature.empty, "Missing"], ids=str)
def test_without_a_type_of_json_nothing_is_converted(annotation: Any, value: Any) -> None:
    assert convert("argument", value, annotation) is value


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (1, float, 1.0),
        (1, int, 1),
        (True, bool, True),
        ("x", str, "x"),
        (None, None, None),
        (None, type(None), None),
        (3, Annotated[int, msgspec.Meta(gt=2)], 3),
        ([1, 2], set[int], {1, 2}),
        ({"1": "a"}, dict[int, str], {1: "a"}),
        ({"1.5": 1}, dict[float, int], {1.5: 1}),
    ],
)
def test_conversions_by_example(value: Any, annotation: Any, expected: Any) -> None:
    assert same(convert("argument", value, annotation), expected)


@pytest.mark.parametrize(
    ("value", "annotation", "named"),
    [
        ("1", int, "int"),
        (1.5, int, "int"),
        (True, int, "int"),
        (1, bool, "bool"),
        (1, str, "str"),
        ("1", float, "float"),
        (1, None, "None"),
        (None, int, "int"),
        (2, Annotated[int, msgspec.Meta(gt=2)], "Meta"),
        ({"x": "a"}, dict[int, str], "dict[int, str]"),
        ({"amount": "1", "currency": "GBP"}, Money, "Money"),
        ({"name": 1, "since": 0}, Customer, "Customer"),
        ([{"name": "A"}], list[Customer], "Customer"),
        ("/tmp", Path, "Path"),  # noqa: S108 - a text, no file
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_name(
    value: Any, annotation: Any, named: str
) -> None:
    with pytest.raises(InvalidArgument, match=r"^argument 'rate' does not fit ") as caught:
        convert("argument 'rate'", value, annotation)
    assert named in str(caught.value).partition(": ")[0]


# -- models -----------------------------------------------------------------------------------


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    at: datetime
    ids: set[UUID]
    pair: tuple[int, Decimal]

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def first(self) -> int:
        return self.pair[0]


class Numbers(pydantic.RootModel[list[float]]):
    pass


class Encoded(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    raw: bytes


class Picky(pydantic.BaseModel):
    even: int

    @pydantic.field_validator("even")
    @classmethod
    def check_even(cls, even: int) -> int:
        if even % 2:
            message = f"{even} is odd"
            raise TypeError(message)
        return even


@given(at=AWARE, ids=st.sets(st.uuids(), max_size=3), pair=st.tuples(st.integers(), DECIMALS))
def test_a_strict_model_with_computed_fields_comes_back(
    at: datetime, ids: set[UUID], pair: tuple[int, Decimal]
) -> None:
    value = Strict(at=at, ids=ids, pair=pair)
    assert settle("f", value, decoder_of(Strict))[1] == value


@given(numbers=st.lists(FINITE))
def test_a_root_model_is_its_root(numbers: list[float]) -> None:
    raw, seen = settle("f", Numbers(numbers), decoder_of(Numbers))
    assert seen == Numbers(numbers)
    assert decode(raw) == numbers


@given(raw=st.binary())
def test_a_model_reads_the_bytes_that_it_wrote(raw: bytes) -> None:
    assert settle("f", Encoded(raw=raw), decoder_of(Encoded))[1] == Encoded(raw=raw)


def test_a_check_of_a_model_refuses_whatever_it_raises() -> None:
    assert convert("argument", {"even": 2}, Picky) == Picky(even=2)
    with pytest.raises(InvalidArgument, match="argument does not fit Picky: 3 is odd"):
        convert("argument", {"even": 3}, Picky)
    with pytest.raises(NotSerializable, match="3 is odd"):
        settle("f", {"even": 3}, decoder_of(Picky))


@pytest.mark.parametrize("number", ["number", "orderNumber"])
@pytest.mark.parametrize("due", ["due", "dueDate"])
def test_a_model_is_read_by_field_names_and_by_aliases(number: str, due: str) -> None:
    customer = {"name": "Ada", "since": "2030-01-01T00:00:00Z"}
    value = {number: 7, due: "2030-02-01", "customer": customer, "total": "1.10", "ids": []}
    order = convert("argument", value, Order)
    assert (order.number, order.due, order.total) == (7, date(2030, 2, 1), Decimal("1.10"))
    assert order.customer.since == datetime(2030, 1, 1, tzinfo=UTC)


def test_a_model_is_stored_under_the_names_of_its_fields() -> None:
    customer = Customer(name="Ada", since=datetime(2030, 1, 1, tzinfo=UTC))
    order = Order(orderNumber=7, customer=customer, total=Decimal("1.10"))
    assert settle("f", order, None)[1] == {
        "number": 7,
        "customer": {"name": "Ada", "since": "2030-01-01T00:00:00Z", "channels": []},
        "total": "1.10",
        "ids": [],
        "due": None,
        "took": "PT0S",
    }
