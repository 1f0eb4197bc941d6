"""Where in a value is what JSON cannot carry? Asked only of a value that is suspect.

The walk keeps its own stack: a value may be deeper than Python recurses, or contain itself.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

from msgspec import UNSET

DEPTH_MAX = 20_000
TOO_DEEP = "is nested too deeply, or contains itself"

_SURROGATE = "a text with a lone surrogate, which UTF-8 cannot carry"

Encode = Callable[[Any], bytes]


class _Part(NamedTuple):
    """A part of a value, the last segment of its path, and the part that holds it."""

    value: Any
    segment: str
    holder: _Part | None
    depth: int


def find_fault(value: Any, encode: Encode | None = None) -> tuple[str, str] | None:
    """Find the first part of a value that JSON cannot carry.

    Args:
        value: the value.
        encode: what refused to encode the value; ``None`` if it was encoded, so that nothing but
            a float that is not finite can be wrong with it.

    Returns:
        The path of that part, for example ``$.items[3].price``, and what is wrong with it; ``None``
        if nothing is found.
    """
    walked = []
    stack = [_Part(value, "$", None, 0)]
    while stack:
        part = stack.pop()
        if part.depth > DEPTH_MAX:
            return "$", TOO_DEEP
        inner = _inner_of(part.value, was_refused=encode is not None)
        fault = _fault_of(part.value, encode, is_leaf=inner is None)
        if fault is not None:
            return _path_of(part), fault
        if inner is not None:
            walked.append(part)
            parts = [_Part(item, name, part, part.depth + 1) for name, item in inner]
            stack.extend(reversed(parts))
    if encode is not None:
        # Every part is JSON: an object refuses to be encoded for a reason of its own.
        for part in reversed(walked):
            fault = _refusal_of(part.value, encode)
            if fault is not None:
                return _path_of(part), fault
    return None


def _path_of(part: _Part) -> str:
    segments = []
    at: _Part | None = part
    while at is not None:
        segments.append(at.segment)
        at = at.holder
    return "".join(reversed(segments))


def _fault_of(value: Any, encode: Encode | None, *, is_leaf: bool) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which JSON cannot carry"
    if encode is None:
        return None
    if isinstance(value, dict):
        return _refusal_of(dict.fromkeys(value), encode, "has a key that is")
    return _refusal_of(value, encode) if is_leaf else None


def _refusal_of(value: Any, encode: Encode, what: str | None = None) -> str | None:
    what = what or f"is a {type(value).__name__}, which is"
    try:
        encode(value)
    except UnicodeEncodeError:
        return f"{'is' if isinstance(value, str) else 'has'} {_SURROGATE}"
    except Exception as error:  # noqa: BLE001 - any failure means that it is no JSON
        return f"{what} not JSON ({error})"
    return None


def _inner_of(value: Any, *, was_refused: bool) -> Iterable[tuple[str, Any]] | None:
    """Give the parts of a value with the segments of their paths; ``None`` for a leaf."""
    kind: Any = type(value)
    if isinstance(value, dict):
        return [(_segment_of(key), item) for key, item in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, Enum):
        return [("", value.value)]
    if hasattr(kind, "model_dump"):
        return _inner_of_model(value, "json" if was_refused else "python")
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__struct_fields__"):
        names = kind.__struct_fields__
    elif hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
    else:
        return None
    items = [(f".{name}", getattr(value, name, UNSET)) for name in names]
    return [(segment, item) for segment, item in items if item is not UNSET]


def _inner_of_model(value: Any, mode: str) -> list[tuple[str, Any]]:
    """Give what a pydantic model makes of itself; if it cannot, the fields that it cannot dump.

    In the mode ``json`` a float that is not finite may have become ``None`` already.
    """
    try:
        return [("", value.model_dump(mode=mode, by_alias=False, round_trip=True))]
    except Exception:  # noqa: BLE001 - a serializer may raise anything
        if getattr(type(value), "__pydantic_root_model__", False):
            return [("", value.root)]
        fields = {**vars(value), **(value.model_extra or {})}
    faulty = []
    for name, item in fields.items():
        try:
            value.model_dump(mode=mode, include={name})
        except Exception:  # noqa: BLE001 - likewise
            faulty.append((f".{name}", item))
    return faulty


def _segment_of(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
