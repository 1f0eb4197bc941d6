"""What JSON cannot carry is refused, and the error says where in the value it stands."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perdure.errors import InvalidArgument, NotSerializable
from perdure.model.codec import digest, encode, settle
from tests.unit.strategies import JSON


@dataclass
class Data:
    before: Any
    held: Any


class Record(msgspec.Struct):
    before: Any
    held: Any


class Renamed(msgspec.Struct, rename="camel", array_like=True):
    before: Any
    held_here: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)

    before: Any
    held: Any


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class Root(pydantic.RootModel[list[Any]]):
    pass


class Named(NamedTuple):
    before: Any
    held: Any


class Attributed:
    """What a class of the attrs library looks like."""

    __attrs_attrs__ = (SimpleNamespace(name="held"),)

    def __init__(self, held: Any) -> None:
        self.held = held


Wrap = Callable[[Any, Any], Any]

STRUCTS: tuple[Wrap, ...] = (Record, Renamed)
MODELS: dict[Wrap, str] = {
    lambda clean, held: Model(before=clean, held=held): ".held",
    lambda clean, held: Open.model_validate({"before": clean, "held": held}): ".held",
    lambda clean, held: Root([clean, held]): "[1]",
}

# How a value is held, with a clean value before it, and what that adds to the path.
HOLDERS: list[tuple[str, Wrap]] = [
    ("[1]", lambda clean, held: [clean, held]),
    ("[0]", lambda clean, held: (held, clean)),
    ("[1]", Named),
    (".key", lambda clean, held: {"first": clean, "key": held}),
    ("['a key']", lambda clean, held: {"first": clean, "a key": held}),
    ("['']", lambda clean, held: {"first": clean, "": held}),
    (".held", Data),
    (".held", Record),
    (".held_here", Renamed),
    *[(segment, hold) for hold, segment in MODELS.items()],
]

BAD: list[tuple[Any, str]] = [
    (math.nan, "is nan"),
    (math.inf, "is inf"),
    (-math.inf, "is -inf"),
    ("\ud800", "is a text with a lone surrogate"),
    (object(), "is a object, which is not JSON"),
    (10**5_000, "is a int"),
    (print, "is a builtin_function_or_method"),
    (int, "is a type"),
    (..., "is a ellipsis"),
]


def refusals_of(value: Any) -> list[NotSerializable]:
    """Every way in which a value crosses a boundary, and the error of each."""
    errors = []
    for cross in (encode, digest, lambda where, value: settle(where, value, None)):
        with pytest.raises(NotSerializable) as caught:
            cross("root/f#0", value)
        errors.append(caught.value)
    return errors


def assert_refused(value: Any, path: str, reason: str) -> None:
    for error in refusals_of(value):
        assert isinstance(error, InvalidArgument)
        assert (error.where, error.path) == ("root/f#0", path)
        assert f"root/f#0: the value at {path} {reason}" in str(error)
        str(error).encode()


@given(
    bad=st.sampled_from(BAD),
    holders=st.lists(st.tuples(st.sampled_from(HOLDERS), JSON), max_size=5),
)
def test_the_path_leads_to_what_is_no_json(
    bad: tuple[Any, str], holders: list[tuple[tuple[str, Wrap], Any]]
) -> None:
    value, reason = bad
    path = ""
    for (segment, hold), clean in holders:
        # pydantic cannot write a Struct, so that the model around it is the fault.
        assume(hold not in MODELS or not any(inner in STRUCTS for (_, inner), _ in holders))
        value = hold(clean, value)
        path = segment + path
    assert_refused(value, f"${path}", reason)


# -- floats -----------------------------------------------------------------------------------


@given(value=JSON, clean=JSON, bad=st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_value_is_refused_if_and_only_if_a_float_in_it_is_not_finite(
    value: Any, clean: Any, bad: float
) -> None:
    beside = [None, "null", value, Data(clean, None), Model(before=None, held=clean)]
    settle("f", beside, None)
    assert_refused([*beside, {"held": bad}], "$[5].held", "is ")


class Odd(Enum):
    NAN = math.nan


class Constants(msgspec.Struct):
    limit: ClassVar[float] = math.nan
    note: str | None = None
    absent: int | msgspec.UnsetType = msgspec.UNSET


@dataclass
class Limits:
    limit: ClassVar[float] = math.inf
    note: str | None = None


class Hidden(pydantic.BaseModel):
    shown: str | None = None
    rate: float = pydantic.Field(default=math.nan, exclude=True)


class Written(pydantic.BaseModel):
    shown: str | None = None
    rate: float

    @pydantic.field_serializer("rate")
    def write_rate(self, rate: float) -> str:
        return str(rate)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Constants(), b'{"note":null}'),
        (Limits(), b'{"note":null}'),
        (Hidden(), b'{"shown":null}'),
        (Written(rate=math.nan), b'{"shown":null,"rate":"nan"}'),
        ([None, Decimal("NaN"), Decimal("Infinity")], b'[null,"NaN","Infinity"]'),
        (["null", "nan", "Infinity", -0.0, 1e308, 5e-324], None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_written_is_not_looked_at(value: Any, written: bytes | None) -> None:
    encoded = bytes(encode("f", value))
    assert written is None or encoded == written


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "$"),
        (Odd.NAN, "$"),
        ({Odd.NAN: 1, "a": [Odd.NAN]}, "$.a[0]"),
        ({math.nan}, "$[0]"),
        (frozenset({(1, math.nan)}), "$[0][1]"),
        (Attributed({"a": math.nan}), "$.held.a"),
        ({1.5: math.inf}, "$[1.5]"),
        ({1: None, 7: [math.inf]}, "$[7][0]"),
        ({UUID(int=1): math.inf}, "$[UUID('00000000-0000-0000-0000-000000000001')]"),
    ],
)
def test_floats_in_odd_places(value: Any, path: str) -> None:
    assert_refused(value, path, "is ")


# -- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, True, (1, 2), frozenset(), object()])
def test_a_key_that_is_no_json_is_refused_where_its_dict_stands(key: object) -> None:
    assert_refused({"prices": [{"fine": 1}, {key: 2}]}, "$.prices[1]", "has a key that is not JSON")


def test_a_key_that_is_no_unicode_is_refused_and_the_error_can_be_printed() -> None:
    assert_refused({"a": {"\ud800": 1}}, "$.a", "has a text with a lone surrogate")
    assert_refused({"a": {"\ud800": math.nan}}, "$.a", "has a text with a lone surrogate")


# -- objects ----------------------------------------------------------------------------------


class Money(float):
    pass


class Label(str):
    __slots__ = ()


class Custom:
    def __repr__(self) -> str:
        return "\ud800"


@pytest.mark.parametrize(
    "bad",
    [
        Money(1.5),
        Label("x"),
        Custom(),
        Custom,
        MappingProxyType({"a": 1}),
        deque([1]),
        range(3),
        {}.keys(),
        iter([]),
        lambda: None,
        ValueError("x"),
        1j,
        Path("x"),
        msgspec.UNSET,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("clean", [1, None], ids=["numbers", "nulls"])
def test_an_object_that_is_no_json_is_named(bad: object, clean: Any) -> None:
    assert_refused([clean, {"a": (bad,)}], "$[1].a[0]", f"is a {type(bad).__name__}, which is not")


class Failing(pydantic.BaseModel):
    good: int = 1
    bad: int = 2

    @pydantic.field_serializer("bad")
    def write_bad(self, _: int) -> int:
        message = "the ledger is closed"
        raise LookupError(message)


@pytest.mark.parametrize("hold", [lambda model: model, lambda model: Data(None, model)])
def test_a_model_that_cannot_write_itself_is_named(hold: Callable[[Any], Any]) -> None:
    path = "$[0]" if isinstance(hold(Failing()), Failing) else "$[0].held"
    assert_refused([hold(Failing())], path, "is a Failing, which is not JSON")
    assert all("the ledger is closed" in str(error) for error in refusals_of(Failing()))


def test_bytes_that_a_model_cannot_write_are_no_fault_of_its_neighbours() -> None:
    class Raw(pydantic.BaseModel):
        place: Path
        raw: bytes

    assert_refused({"a": Raw(place=Path("x"), raw=b"\xff")}, "$.a", "is a Raw")


def test_the_first_fault_is_named() -> None:
    assert_refused([1, math.nan, object(), "\ud800"], "$[1]", "is nan")
    assert_refused([[object()], math.nan], "$[0][0]", "is a object")
    assert_refused({"b": "\ud800", "a": math.nan}, "$.b", "is a text")


# -- depth ------------------------------------------------------------------------------------


def nested(innermost: Any, depth: int, wrap: Callable[[Any], Any]) -> Any:
    value = innermost
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS: list[Callable[[Any], Any]] = [
    lambda inner: [inner],
    lambda inner: (inner,),
    lambda inner: {"a_rather_long_key_of_a_dict": inner},
    lambda inner: Data(None, inner),
    lambda inner: Record(None, inner),
]
EACH_WRAP = pytest.mark.parametrize("wrap", WRAPS, ids=["list", "tuple", "dict", "data", "struct"])


@EACH_WRAP
@pytest.mark.parametrize("innermost", [1, None, []])
def test_deep_values_are_values(innermost: Any, wrap: Callable[[Any], Any]) -> None:
    value = nested(innermost, 250, wrap)
    raw, seen = settle("f", value, None)
    assert bytes(encode("f", seen)) == bytes(raw)


@EACH_WRAP
@pytest.mark.parametrize("innermost", [1, None])
def test_values_that_are_too_deep_are_refused(innermost: Any, wrap: Callable[[Any], Any]) -> None:
    value = nested(innermost, 100_000, wrap)
    assert_refused(value, "$", "is nested too deeply, or contains itself")
    _unravel(value)


@EACH_WRAP
@pytest.mark.parametrize("bad", [math.nan, object()])
def test_a_deep_fault_has_its_path(bad: Any, wrap: Callable[[Any], Any]) -> None:
    value = nested(bad, 250, wrap)
    (error, *_) = refusals_of(value)
    assert error.path.count(".") + error.path.count("[") == 250


def test_values_that_contain_themselves_are_refused() -> None:
    loop: list[Any] = [None]
    loop.append(loop)
    table: dict[str, Any] = {"a": None}
    table["b"] = [table]
    data = Data(None, None)
    data.held = [data]
    record = Record(None, None)
    record.held = {"a": record}
    model = Model(before=None, held=None)
    model.held = [model]
    for value in (loop, table, data, record):
        assert_refused(value, "$", "is nested too deeply, or contains itself")
        assert_refused([1, value], "$", "is nested too deeply, or contains itself")
    assert len(refusals_of({"a": model})) == 3


def test_a_loop_beside_another_fault_is_still_refused() -> None:
    loop: list[Any] = []
    loop.extend([loop, loop])
    assert len(refusals_of({"a": object(), "b": loop})) == 3
    assert len(refusals_of({"b": loop, "a": object()})) == 3
    assert len(refusals_of({"a": {(1, 2): loop}})) == 3


def _unravel(value: Any) -> None:
    """Take a deep value apart from the outside, since its destructor recurses."""
    while isinstance(value, list | tuple | dict | Data | Record):
        if isinstance(value, list):
            value = value.pop()
        elif isinstance(value, tuple):
            (value,) = value
        elif isinstance(value, dict):
            _, value = value.popitem()
        else:
            value.held, value = None, value.held


def test_the_error_says_what_to_pass_instead() -> None:
    with pytest.raises(NotSerializable, match="pass plain JSON types, dataclasses"):
        encode("argument 'rate'", object())
