"""Annotations: which type is decoded, what does not fit it, and how models are written and read."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidArgument, NotSerializable
from perdure.model.codec import convert, decode, decoder_of, encode, hints_of, settle
from tests.unit.strategies import FINITE, JSON
from tests.unit.values import AWARE, DECIMALS, EACH_TYPE, Customer, Line, Money, Order, same

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTheChecker

# -- decoders, annotations, conversion --------------------------------------------------------


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
    ["Missing", typing.Never, Money | Line, Unresolved, list[Unresolved], 5],
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
        ("a/b", Path, "Path"),
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


def test_an_annotation_that_cannot_be_hashed_is_decoded_to_like_any_other() -> None:
    annotation = Annotated[list[int], ["a note"]]
    with pytest.raises(TypeError):
        hash(annotation)
    assert convert("x", [1], annotation) == [1]
    with pytest.raises(InvalidArgument):
        convert("x", ["a"], annotation)
