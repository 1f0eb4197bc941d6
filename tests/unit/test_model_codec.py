"""Values cross a boundary as JSON: what comes back is what went in, live as on every replay."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import NotSerializable
from perdure.model.codec import NULL, convert, decode, decoder_of, encode, settle
from tests.unit.strategies import JSON
from tests.unit.values import EACH_TYPE, Channel, Currency, Customer, Money, Point, Size, same

FALSY: list[Any] = [None, 0, 0.0, -0.0, False, "", [], {}]


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
        (Path, "a/b"),
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
