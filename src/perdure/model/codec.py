"""How does a value cross a boundary? As JSON, encoded once; nothing else, and never code.

A value is refused if a reader would not get it back: what is no JSON, a float that is not finite,
a text that is no Unicode. The live run sees the decoded value, so it equals every replay.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec import Raw

from perdure.errors import InvalidArgument, NotSerializable
from perdure.model.faults import TOO_DEEP, find_fault

Decoder = Callable[[bytes | Raw], Any]

_RESERVED = "begins with the key 'perdure:encoded', which is kept for what a PayloadCodec encodes"

_SCALARS = (int, str, bool, type(None), float)

# Python reads a whole number of at most this length, sign included.
_DIGITS_MAX = 4_300


def _enc_hook(value: Any) -> Any:
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        # By name and without computed fields: what `_dec_hook` reads back.
        return dump(value, mode="json", by_alias=False, round_trip=True)
    message = f"objects of type {type(value).__name__} are not supported"
    raise NotImplementedError(message)


def _enc_hook_sorted(value: Any) -> Any:
    return _sort_sets(value, _enc_hook(value))


def _dec_hook(wanted: Any, value: Any) -> Any:
    check = getattr(wanted, "model_validate_json", None)
    try:
        if check is not None:
            return check(_ENCODE(value), by_alias=True, by_name=True)
        if isinstance(wanted, type) and isinstance(value, wanted):
            return value
    except Exception as error:  # the checks of a model may raise anything
        raise msgspec.ValidationError(str(error)) from error
    message = f"{_name(wanted)} cannot be decoded from JSON"
    raise msgspec.ValidationError(message)


_ENCODE = msgspec.json.Encoder(enc_hook=_enc_hook).encode
_ENCODE_SORTED = msgspec.json.Encoder(enc_hook=_enc_hook_sorted, order="sorted").encode
decode: Decoder = msgspec.json.Decoder().decode

NULL = Raw(b"null")

ENVELOPE = "perdure:encoded"
"""The one key of the object that stands for a value which a PayloadCodec has encoded."""

ENVELOPE_HEAD = f'{{"{ENVELOPE}":"'.encode()
"""How its JSON begins. No value of a user may begin so: a reader would take it for an envelope."""

_HEAD_BYTES = len(ENVELOPE_HEAD)


def encode(where: str, value: Any) -> Raw:
    """Encode a value as JSON.

    Args:
        where: what the value belongs to, for the error: a frame id, ``argument 'rate'`` …
        value: any value that is JSON or that msgspec and pydantic make JSON of.

    Raises:
        NotSerializable: naming `where` and the path inside the value.
    """
    encoded = _encode(where, value)
    if len(encoded) > _HEAD_BYTES and encoded[:_HEAD_BYTES] == ENVELOPE_HEAD:
        raise NotSerializable(where, "$", _RESERVED)
    return Raw(encoded)


def digest(where: str, value: Any) -> str:
    """Give the SHA-256 of the canonical JSON of a value, in hexadecimal.

    The order of a dict or of a set does not matter: every process gives the same digest.

    Raises:
        NotSerializable: naming `where` and the path inside the value.
    """
    try:
        canonical = _ENCODE_SORTED(value)
    except Exception:  # noqa: BLE001 - it sorts neither unlike elements nor keys that are no text
        try:
            canonical = _ENCODE_SORTED(_sort_sets(value, decode(_encode(where, value))))
        except RecursionError as error:
            raise NotSerializable(where, "$", TOO_DEEP) from error
    else:
        if b"null" in canonical:
            _refuse_non_finite(where, value)
    return hashlib.sha256(canonical).hexdigest()


def _encode(where: str, value: Any) -> bytes:
    try:
        encoded = _ENCODE(value)
    except RecursionError as error:
        raise NotSerializable(where, "$", TOO_DEEP) from error
    except Exception as error:  # a value's own hooks may raise anything
        path, reason = find_fault(value, _ENCODE) or ("$", f"is not JSON ({error})")
        raise NotSerializable(where, path, reason) from error
    if b"null" in encoded:
        _refuse_non_finite(where, value)
    return encoded


def _refuse_non_finite(where: str, value: Any) -> None:
    # A float that is not finite is encoded as null: only where one stands is the value walked.
    if type(value) is not str:
        fault = find_fault(value)
        if fault is not None:
            raise NotSerializable(where, *fault)


def _sort_sets(value: Any, plain: Any) -> Any:
    """Give `plain`, which is the JSON of `value`, with what stood in a set in one order."""
    if getattr(type(value), "__pydantic_root_model__", False):
        value = value.root
    if isinstance(plain, list) and isinstance(value, list | tuple | set | frozenset):
        if len(plain) != len(value):  # a serializer of the value's own made something else of it
            return plain
        items = [_sort_sets(part, item) for part, item in zip(value, plain, strict=True)]
        return items if isinstance(value, list | tuple) else sorted(items, key=_ENCODE_SORTED)
    if isinstance(plain, dict) and isinstance(value, dict):
        if len(plain) != len(value):
            return plain
        parts = zip(value.values(), plain.items(), strict=True)
        return {key: _sort_sets(part, item) for part, (key, item) in parts}
    if isinstance(plain, dict):
        names: dict[str, str] = {}
        if isinstance(value, msgspec.Struct):
            names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        return {
            key: _sort_sets(getattr(value, names.get(key, str(key)), None), item)
            for key, item in plain.items()
        }
    return plain


def settle(where: str, value: Any, decoder: Decoder | None) -> tuple[Raw, Any]:
    """Encode an outcome and give it back as a replay will see it.

    Args:
        where: the frame id.
        value: what the function returned.
        decoder: decodes to the annotated type, or ``None`` for plain JSON.

    Returns:
        The encoded value, and the value decoded from it.

    Raises:
        NotSerializable: if it is no JSON or does not fit the annotation.
    """
    encoded = _encode(where, value)
    if decoder is None and type(value) in _SCALARS and len(encoded) < _DIGITS_MAX:
        return Raw(encoded), value
    if len(encoded) > _HEAD_BYTES and encoded[:_HEAD_BYTES] == ENVELOPE_HEAD:
        raise NotSerializable(where, "$", _RESERVED)
    try:
        return Raw(encoded), (decoder or decode)(encoded)
    except Exception as error:
        fit = "cannot be read back" if decoder is None else "does not fit the annotated type"
        raise NotSerializable(where, "$", f"{fit} ({error})") from error


def decoder_of(annotation: Any) -> Decoder | None:
    """Give the decoder to an annotated type, or ``None`` where plain JSON is what is meant."""
    if annotation in (inspect.Signature.empty, Any, object, None) or annotation in _SCALARS:
        return None
    return _make_decoder(annotation)


def _make_decoder(annotation: Any) -> Decoder | None:
    try:
        hash(annotation)
    except TypeError:  # its metadata is a list, for example: it cannot be looked up
        make = _make.__wrapped__
    else:
        make = _make
    try:
        return make(annotation)
    except Exception:  # noqa: BLE001 - no type of JSON, or it names what exists for a checker only
        return None


@functools.lru_cache(maxsize=1_024)  # every start decodes its arguments to the same few types
def _make(annotation: Any) -> Decoder:
    return msgspec.json.Decoder(annotation, dec_hook=_dec_hook).decode


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Give the annotations of a function, without those that cannot be resolved."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - one of them names what exists for a type checker only
        return _resolve_each(inspect.unwrap(function))


def _resolve_each(function: Callable[..., Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    scope = getattr(function, "__globals__", {})
    for name, annotation in getattr(function, "__annotations__", {}).items():
        alone = SimpleNamespace(__annotations__={name: annotation})
        with contextlib.suppress(Exception):
            hints |= typing.get_type_hints(alone, scope, include_extras=True)
    return hints


def convert(where: str, value: Any, annotation: Any) -> Any:
    """Convert decoded JSON to an annotated type; unchanged if JSON cannot be decoded to that.

    Raises:
        InvalidArgument: naming `where` and what does not fit.
    """
    if annotation in (inspect.Signature.empty, Any, object) or (
        annotation in _SCALARS and type(value) is annotation
    ):
        return value
    decoder = _make_decoder(annotation)
    if decoder is None:
        return value
    try:
        # By way of JSON: only its decoder takes a text for the key of a dict[int, ...].
        return decoder(_ENCODE(value))
    except Exception as error:
        message = f"{where} does not fit {_name(annotation)}: {error}"
        raise InvalidArgument(message) from error


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
