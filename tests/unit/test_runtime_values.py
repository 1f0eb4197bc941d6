"""What is stored of a value, what is refused, and what comes back. Pure functions."""

from __future__ import annotations

import base64
import logging
import re
import zlib
from typing import Any

import pytest
from hypothesis import given
from msgspec import Raw

from perdure.errors import (
    NotSerializable,
    PayloadTooLarge,
    PayloadUnreadable,
    PayloadUnwritable,
)
from perdure.model import codec
from perdure.runtime.values import Values
from tests.unit.strategies import JSON

FORGED: dict[str, Any] = {"perdure:encoded": "x"}


class Zlib:
    """A codec that anybody can decode: what looks like an envelope in a value would open, too."""

    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)


class Broken:
    """A codec that gives, or raises, what it was made with."""

    def __init__(self, gives: Any) -> None:
        self.gives = gives

    def encode(self, data: bytes) -> Any:
        del data
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives

    decode = encode


PLAIN = Values(None, 1_000_000, None)
SEALING = Values(None, 1_000_000, Zlib())


def envelope_of(value: Any) -> Raw:
    """Give what is stored of a value."""
    return SEALING.encode("here", value)


@given(JSON)
def test_what_is_stored_is_json_and_comes_back(value: Any) -> None:
    stored = SEALING.encode("here", value)
    kept = codec.decode(stored)
    assert list(kept) == ["perdure:encoded"]
    assert zlib.decompress(base64.b64decode(kept["perdure:encoded"])) == bytes(
        codec.encode("", value)
    )
    assert SEALING.decode("here", stored) == value
    assert SEALING.decode("here", bytes(stored)) == value
    assert SEALING.plain("here", kept) == SEALING.show(kept) == value
    assert SEALING.show({"value": kept, "attempt": 1}) == {"value": value, "attempt": 1}


@given(JSON)
def test_without_a_codec_what_is_stored_is_the_value(value: Any) -> None:
    stored = PLAIN.encode("here", value)
    assert bytes(stored) == bytes(codec.encode("", value))
    assert PLAIN.open("here", stored) is stored
    assert PLAIN.plain("here", value) is value
    assert PLAIN.show(value) is value
    # It was stored before there was a codec: it is as plain as it was.
    assert SEALING.decode("here", stored) == value


def test_without_the_codec_an_envelope_is_shown_but_is_no_value() -> None:
    stored = envelope_of("a")
    kept = codec.decode(stored)
    assert PLAIN.show([kept]) == [kept]
    said = r"^root/f#0: it was encoded by a PayloadCodec"
    with pytest.raises(PayloadUnreadable, match=said):
        PLAIN.decode("root/f#0", stored)
    with pytest.raises(PayloadUnreadable, match=said):
        PLAIN.plain("root/f#0", kept)


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (ValueError("a wrong key"), "ValueError: a wrong key"),
        (KeyError(), "(KeyError)"),
        (b"no JSON", "DecodeError"),
        (b"", "DecodeError"),
        ("text", "TypeError"),
        (None, "TypeError"),
    ],
    ids=str,
)
def test_what_cannot_be_decoded_is_said_with_what_it_belongs_to(gives: Any, said: str) -> None:
    values = Values(None, 1_000_000, Broken(gives))
    stored = envelope_of([1])
    kept = codec.decode(stored)
    with pytest.raises(PayloadUnreadable, match=re.escape(said)) as caught:
        values.decode("root/f#0", stored)
    assert caught.value.where == "root/f#0"
    with pytest.raises(PayloadUnreadable, match=re.escape(said)):
        values.plain("root/f#0", kept)
    assert values.show({"value": kept}) == {"value": kept}


@pytest.mark.parametrize("gives", [OSError("no keys"), "text", None], ids=str)
def test_what_cannot_be_encoded_is_said_with_what_it_belongs_to(gives: Any) -> None:
    with pytest.raises(PayloadUnwritable, match=r"^root/f#0: the PayloadCodec could not encode"):
        Values(None, 1_000_000, Broken(gives)).encode("root/f#0", 1)


@pytest.mark.parametrize("values", [PLAIN, SEALING], ids=["plain", "codec"])
def test_nobody_can_store_what_looks_like_an_envelope(values: Values) -> None:
    for value in (FORGED, {**FORGED, "more": 1}):
        with pytest.raises(NotSerializable, match="perdure:encoded"):
            values.encode("here", value)
        with pytest.raises(NotSerializable, match="perdure:encoded"):
            codec.settle("root/f#0", value, None)
    fine: list[Any] = [[FORGED], {"a": FORGED}, {"a": 1, **FORGED}, {"perdure:encoded": 1}]
    for value in fine:
        assert values.decode("here", values.encode("here", value)) == value


def test_what_was_in_an_envelope_is_not_opened_once_more() -> None:
    inner = codec.decode(envelope_of("opened"))
    value = [inner, {"a": inner}]
    assert SEALING.show({"value": codec.decode(envelope_of(value))}) == {"value": value}
    assert SEALING.plain("here", codec.decode(envelope_of(value))) == value


@pytest.mark.parametrize("payload_codec", [None, Zlib()], ids=["plain", "codec"])
def test_sizes_are_of_the_json(payload_codec: Any, caplog: pytest.LogCaptureFixture) -> None:
    values = Values(100, 200, payload_codec)
    values.encode("root/fine#0", "x" * 98)
    assert caplog.text == ""
    values.encode("root/large#0", "x" * 99)
    values.encode("root/largest#0", "x" * 198)
    warned = [record.getMessage() for record in caplog.records]
    assert [text.split(" of JSON")[0] for text in warned] == [
        "root/large#0: 101 bytes",
        "root/largest#0: 200 bytes",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    with pytest.raises(PayloadTooLarge) as refused:
        values.encode("root/more#0", "x" * 199)
    assert (refused.value.where, refused.value.size, refused.value.limit) == (
        "root/more#0",
        201,
        200,
    )


def test_a_limit_below_the_warning_counts() -> None:
    with pytest.raises(PayloadTooLarge):
        Values(1_000, 10, None).encode("here", "x" * 20)


def test_only_what_may_be_large_is_looked_at() -> None:
    assert Values(100, 200, None).checked_above == 100
    assert Values(None, 200, None).checked_above == 200
    assert Values(300, 200, None).checked_above == 200
    assert Values(100, 200, Zlib()).checked_above == -1
