"""What does a journal hold? The entries, packed for the store and unpacked for a reader.

Packed entries are array-like, so a row stays small; fields are only ever added at the end. An
entry type that this version does not know is kept as `UnknownEntry` and skipped by every fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.model.ids import ROOT
from perdure.model.instants import from_us
from perdure.model.provenance import Actor, Provenance


class PackedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message as a journal and a store hold it; `sent_at` in microseconds."""

    seq: int
    channel: str
    payload: Raw
    sent_by: Actor
    sent_at: int
    correlation: str | None = None


class Packed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The common head of every packed entry: `at` in microseconds since the epoch."""

    at: int


class ExecutionStarted(Packed, frozen=True, array_like=True, tag="execution.started", gc=False):
    """A worker ran the root frame first."""

    args: Raw


class ExecutionResumed(Packed, frozen=True, array_like=True, tag="execution.resumed", gc=False):
    """A worker acquired the execution again."""

    reason: str


class ExecutionSuspended(Packed, frozen=True, array_like=True, tag="execution.suspended", gc=False):
    """Every live frame waits; ownership is released. `reason` explains a block."""

    on: tuple[str, ...]
    reason: str | None = None


class ExecutionCancelling(
    Packed, frozen=True, array_like=True, tag="execution.cancelling", gc=False
):
    """The owner delivers a cancel request: from here on the function sees it."""

    by: Actor
    reason: str | None = None


class ExecutionMigrated(Packed, frozen=True, array_like=True, tag="execution.migrated", gc=False):
    """An operator gave the execution to another version of its workflow."""

    from_version: str
    version: str


class ExecutionForked(Packed, frozen=True, array_like=True, tag="execution.forked", gc=False):
    """The entries that follow were copied from `origin`, up to the frame `fid`."""

    origin: str
    fid: str
    overrides: dict[str, Any]


class ExecutionCompleted(Packed, frozen=True, array_like=True, tag="execution.completed", gc=False):
    """The function returned, or continues as another execution."""

    value: Raw
    continued_as: str | None = None


class ExecutionFailed(Packed, frozen=True, array_like=True, tag="execution.failed", gc=False):
    """The function raised."""

    error_type: str
    message: str
    traceback: str | None = None


class ExecutionCancelled(Packed, frozen=True, array_like=True, tag="execution.cancelled", gc=False):
    """The execution ended after a cancel request."""

    by: Actor
    reason: str | None = None


class ExecutionTerminated(
    Packed, frozen=True, array_like=True, tag="execution.terminated", gc=False
):
    """An operator closed the execution at once."""

    by: Actor
    reason: str | None = None


class FrameEntry(Packed, frozen=True, array_like=True, gc=False):
    """The head of an entry that belongs to one frame."""

    fid: str


class FrameStarted(FrameEntry, frozen=True, array_like=True, tag="frame.started", gc=False):
    """An attempt began. `deadline` is the due instant of a sleep or of a receive's timeout."""

    attempt: int
    kind: str
    name: str
    digest: str
    deadline: int | None = None


class FrameCompleted(FrameEntry, frozen=True, array_like=True, tag="frame.completed", gc=False):
    """An attempt succeeded; the first one of a frame is its memo."""

    attempt: int
    value: Raw


class FrameFailed(FrameEntry, frozen=True, array_like=True, tag="frame.failed", gc=False):
    """An attempt failed. With `retryable` another one follows at `retry_at`, or at once."""

    attempt: int
    error_type: str
    message: str
    retryable: bool
    retry_at: int | None = None
    traceback: str | None = None


class FrameSuspended(FrameEntry, frozen=True, array_like=True, tag="frame.suspended", gc=False):
    """The frame waits on `on`: a ``channel:``, ``timer:``, ``child:`` or ``step:`` and its name."""

    attempt: int
    on: str
    deadline: int | None = None


class FrameFulfilled(FrameEntry, frozen=True, array_like=True, tag="frame.fulfilled", gc=False):
    """The condition is met; the consumed message, if any, is inside.

    Of the outcome of a step that ran elsewhere it is without the value, which the memo holds.
    """

    attempt: int
    on: str
    message: PackedMessage | None = None


class FrameAbandoned(FrameEntry, frozen=True, array_like=True, tag="frame.abandoned", gc=False):
    """The frame consumes and delivers nothing any more."""

    reason: str


class UnknownEntry(msgspec.Struct, frozen=True):
    """An entry of a type that a newer version wrote."""

    type: str
    fields: tuple[Any, ...]
    at: int = 0


KnownEntry = (
    ExecutionStarted
    | ExecutionResumed
    | ExecutionSuspended
    | ExecutionCancelling
    | ExecutionMigrated
    | ExecutionForked
    | ExecutionCompleted
    | ExecutionFailed
    | ExecutionCancelled
    | ExecutionTerminated
    | FrameStarted
    | FrameCompleted
    | FrameFailed
    | FrameSuspended
    | FrameFulfilled
    | FrameAbandoned
)
AnyEntry = KnownEntry | UnknownEntry

_KNOWN_TYPES = frozenset(kind.__struct_config__.tag for kind in get_args(KnownEntry))

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(list[KnownEntry]).decode
_DECODE_ONE = msgspec.json.Decoder(KnownEntry).decode
_DECODE_RAW = msgspec.json.Decoder(list[Raw]).decode
_DECODE_PARTS = msgspec.json.Decoder(list[Any]).decode


def pack(entries: list[KnownEntry]) -> bytes:
    """Encode the entries of one transition as the body of one journal row."""
    return _ENCODE(entries)


def unpack(body: bytes) -> list[AnyEntry]:
    """Decode the body of a journal row; entries of unknown type are kept as `UnknownEntry`.

    Raises:
        msgspec.DecodeError: if the body is damaged. An entry of a known type that does not fit is
            damage: to skip it could make a step run twice.
    """
    try:
        return list(_DECODE(body))
    except msgspec.ValidationError:
        return [_unpack_one(raw) for raw in _DECODE_RAW(body)]


def fill(body: bytes, values: Mapping[int, Raw]) -> bytes:
    """Give the body of a journal row with the memos of some entries filled in, by their index."""
    entries = unpack(body)
    for index, value in values.items():
        entries[index] = msgspec.structs.replace(entries[index], value=value)
    return _ENCODE(entries)


def _unpack_one(raw: Raw) -> AnyEntry:
    try:
        return _DECODE_ONE(raw)
    except msgspec.ValidationError:
        parts = _DECODE_PARTS(raw)
        if not parts or not isinstance(parts[0], str) or parts[0] in _KNOWN_TYPES:
            raise
        kind, *fields = parts
        at = fields[0] if fields and isinstance(fields[0], int) else 0
        return UnknownEntry(kind, tuple(fields), at)


class Entry(msgspec.Struct, frozen=True):
    """One event of a journal or of the control log, as a reader sees it.

    Attributes:
        seq: its number, dense from 1 in a journal; its position in the control log.
        type: for example ``frame.completed``.
        fid: the frame it belongs to; ``root`` for an entry of the execution.
        at: when, an aware UTC datetime.
        attempt: the attempt of the frame, 0 where none is involved.
        epoch: the epoch of the owner that appended it; 0 where there was no owner.
        payload: the facts, named as in the table of entry types.
        provenance: who, where, with which code, when.
        eid: the execution it belongs to.
    """

    seq: int
    type: str
    fid: str
    at: datetime
    attempt: int
    epoch: int
    payload: dict[str, Any]
    provenance: Provenance
    eid: UUID


_INSTANTS = frozenset({"deadline", "retry_at"})


def entry_type(entry: AnyEntry) -> str:
    """Give the type name of an entry, for example ``frame.started``."""
    if isinstance(entry, UnknownEntry):
        return entry.type
    return str(type(entry).__struct_config__.tag)


def entry_fid(entry: AnyEntry) -> str:
    """Give the frame id of an entry; ``root`` for an entry of the execution."""
    return entry.fid if isinstance(entry, FrameEntry) else ROOT


def payload(entry: AnyEntry) -> dict[str, Any]:
    """Give the facts of an entry as plain JSON-like values, instants as datetimes."""
    if isinstance(entry, UnknownEntry):
        return {"fields": list(entry.fields)}
    facts: dict[str, Any] = {}
    head = ("at", "fid") if isinstance(entry, FrameEntry) else ("at",)
    for field in entry.__struct_fields__:
        value = getattr(entry, field)
        if field in head or (value is None and field != "value"):
            continue
        facts[field] = _plain(field, value)
    return facts


def _plain(field: str, value: object) -> object:
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    if isinstance(value, PackedMessage):
        return {
            "seq": value.seq,
            "channel": value.channel,
            "payload": msgspec.json.decode(value.payload),
            "sent_by": msgspec.to_builtins(value.sent_by),
            "sent_at": from_us(value.sent_at),
            "correlation": value.correlation,
        }
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Actor):
        return msgspec.to_builtins(value)
    if field in _INSTANTS and isinstance(value, int):
        return from_us(value)
    return value
