"""Digests: equal in every process for equal arguments, and different for different ones."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import NotSerializable
from perdure.model.codec import decode, digest, encode
from tests.unit.strategies import JSON, TEXT


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value with the keys of every dict in another order."""
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        return {key: shuffled(item, chance) for key, item in items}
    return value


def canonical(value: Any) -> str:
    """A text that is equal for values that are equal but for the order of keys."""
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key!r}:{canonical(value[key])}' for key in sorted(value))}}}"
    return repr(value)


@given(value=JSON, chance=st.randoms(use_true_random=False))
def test_the_order_of_a_dict_does_not_matter(value: Any, chance: random.Random) -> None:
    assert digest("f", shuffled(value, chance)) == digest("f", value)


@given(one=JSON, other=JSON)
def test_digests_are_equal_exactly_if_the_values_are(one: Any, other: Any) -> None:
    assert (digest("f", one) == digest("f", other)) == (canonical(one) == canonical(other))


@given(value=JSON)
def test_the_digest_survives_the_journal(value: Any) -> None:
    assert digest("f", decode(encode("f", value))) == digest("f", value)


def test_the_digest_is_the_sha256_of_canonical_json() -> None:
    expected = hashlib.sha256(b'[[1,"a"],{"a":null,"b":[1.5,true]}]').hexdigest()
    assert digest("f", ((1, "a"), {"b": [1.5, True], "a": None})) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, False),
        (None, "null"),
        ([], {}),
        ([1, 2], [2, 1]),
        ([[1], 2], [1, [2]]),
        ("1", 1),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
    ],
)
def test_near_values_have_other_digests(one: Any, other: Any) -> None:
    assert digest("f", one) != digest("f", other)


# -- what has no order, or keys that are no text ----------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any = None


class Tagged(msgspec.Struct, frozen=True, rename="camel"):
    the_tags: frozenset[Any]
    more: Any = None


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)

    names: frozenset[str] = pydantic.Field(default=frozenset(), alias="allNames")
    inner: tuple[Any, ...] = ()
    by_name: dict[str, set[str]] = {}

    def __hash__(self) -> int:
        return hash(self.names)


class Names(pydantic.RootModel[set[str]]):
    pass


WORDS = ["ada", "bob", "cyd", "dan", "eve", "fay", "gil", "hal"]

UNORDERED: list[Any] = [
    set(WORDS),
    frozenset(WORDS),
    {"a": [{"b": set(WORDS)}]},
    {1, "a", None, 2.5, (1, "b")},
    {Colour.RED, Colour.BLUE, "green"},
    {Pair(word, frozenset(WORDS)) for word in WORDS},
    {date(2030, 1, 1), datetime(2030, 1, 1)},  # noqa: DTZ001 - any value will do
    Pair({Pair(word) for word in WORDS}, {3: set(WORDS)}),
    Tagged(frozenset({Pair(word) for word in WORDS}), {Colour.RED: set(WORDS)}),
    Model(allNames=frozenset(WORDS)),
    Model(inner=(Model(allNames=frozenset(WORDS)), {"x": set(WORDS)}), by_name={"a": set(WORDS)}),
    [Names(set(WORDS)), {Model(allNames=frozenset([word])) for word in WORDS}],
    {Pair(Model(allNames=frozenset(WORDS))), 1},
]


def _print_digests() -> None:
    sys.stdout.writelines(digest("f", value) + "\n" for value in UNORDERED)


def test_the_order_of_a_set_does_not_matter_in_any_process() -> None:
    # Each process hashes text in its own way, so that each iterates over a set in its own order.
    code = f"import runpy; runpy.run_path({__file__!r})['_print_digests']()"
    printed = {}
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        printed[seed] = done.stdout.split()
    assert len(printed["1"]) == len(set(printed["1"])) + 1, "a set and a frozenset are one value"
    assert printed["1"] == printed["2"] == printed["3"]


@given(
    items=st.lists(
        st.integers() | TEXT | st.none() | st.dates() | st.tuples(st.integers()), unique=True
    ),
    chance=st.randoms(use_true_random=False),
)
def test_a_set_of_anything_has_one_digest(items: list[Any], chance: random.Random) -> None:
    again = list(items)
    chance.shuffle(again)
    assert digest("f", set(items)) == digest("f", set(again))


@given(
    one=st.frozensets(st.integers(0, 3) | st.sampled_from(["a", "b"])),
    other=st.frozensets(st.integers(0, 3) | st.sampled_from(["a", "b"])),
)
def test_digests_of_sets_are_equal_exactly_if_the_sets_are(
    one: frozenset[Any], other: frozenset[Any]
) -> None:
    assert (digest("f", one) == digest("f", other)) == (one == other)


@given(
    items=st.dictionaries(
        st.integers() | st.uuids() | st.dates() | st.sampled_from(Colour), JSON, max_size=4
    ),
    chance=st.randoms(use_true_random=False),
)
def test_keys_that_are_no_text_are_their_json(items: dict[Any, Any], chance: random.Random) -> None:
    written = decode(encode("f", items))
    assert digest("f", shuffled(items, chance)) == digest("f", written)


def test_mixed_keys_have_a_digest() -> None:
    assert digest("f", {1: "a", "b": UUID(int=1)}) == digest("f", {"b": UUID(int=1), 1: "a"})
    assert digest("f", {1: "a"}) != digest("f", {2: "a"})


def test_a_list_keeps_its_order_beside_a_set() -> None:
    assert digest("f", ({1, "a"}, [1, 2])) != digest("f", ({1, "a"}, [2, 1]))
    assert digest("f", Pair({1, "a"}, (1, 2))) != digest("f", Pair({1, "a"}, (2, 1)))


class Reversed(pydantic.BaseModel):
    items: set[int]

    @pydantic.field_serializer("items")
    def write_items(self, items: set[int]) -> list[int]:
        return [*sorted(items, reverse=True), 0]


def test_what_a_model_makes_of_a_set_is_kept() -> None:
    assert digest("f", Reversed(items={1, 2})) == digest("f", {"items": [2, 1, 0]})


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object(), "\ud800", 1j])
@pytest.mark.parametrize("beside", [None, 1, {1: 2}, {1, "a"}, Pair({Pair(1), Pair(2)})])
def test_what_is_no_json_has_no_digest(bad: Any, beside: Any) -> None:
    with pytest.raises(NotSerializable) as caught:
        digest("root/f#0", [beside, {"price": bad}])
    assert (caught.value.where, caught.value.path) == ("root/f#0", "$[1].price")


@pytest.mark.parametrize("innermost", [[], {1: 2}, {1, "a"}, [None]])
def test_a_value_that_is_too_deep_has_no_digest(innermost: Any) -> None:
    value = innermost
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotSerializable, match="nested too deeply"):
        digest("f", value)


def test_decimals_are_their_text() -> None:
    assert digest("f", Decimal("1.10")) == digest("f", "1.10")
