"""What does the journal say of a frame? Pure decisions over the fold; the runner applies them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from msgspec import Raw

from perdure.errors import ChildFailed, NondeterminismError, PayloadUnreadable, StepFailed
from perdure.model import codec
from perdure.model.entry import FrameFailed, FrameStarted, PackedMessage
from perdure.model.instants import from_us
from perdure.model.memo import MemoTable
from perdure.model.message import unpack_message
from perdure.ports.commands import ChildOutcome
from perdure.runtime.frames import Frame
from perdure.runtime.values import Values

ANY_ARGUMENTS = ""
"""The digest of a frame whose outcome an operator gave: it fits whatever the code passes."""

_CHILD = msgspec.json.Decoder(ChildOutcome).decode


def difference(started: FrameStarted, frame: Frame[Any]) -> str | None:
    """Say how a frame differs from the one that the journal holds under its id."""
    if started.kind != frame.kind:
        return f"the journal holds a {started.kind}, the code makes a {frame.kind}"
    if started.name != frame.name:
        return f"the journal holds the name {started.name!r}, the code gives {frame.name!r}"
    if started.digest not in (frame.digest, ANY_ARGUMENTS):
        return f"the {frame.kind} has other arguments than the journal holds"
    return None


def lies_ahead(
    table: MemoTable, passed: AbstractSet[str], frames: Mapping[str, Frame[Any]]
) -> bool:
    """Tell whether a replay has not come to the end of the journal yet.

    It has if every outcome was delivered and every frame was opened. A frame whose place was passed
    and that the function has not opened is none that the code still makes.

    Args:
        table: the fold of the journal.
        passed: the frames in `table.order` that the replay has come to.
        frames: the frames that the function has opened.
    """
    for fid in table.order:
        if fid not in passed and not (fid in frames and frames[fid].done):
            return True
    return any(fid not in frames and fid not in passed for fid in table.started)


def outcome_of_wait(
    frame: Frame[Any], message: PackedMessage | None, values: Values
) -> tuple[Any, Exception | None]:
    """Give what the function gets when a wait is over: its value, or its error.

    That is a message or ``None``, the due instant, or what the child returned.

    Raises:
        NondeterminismError: if the result of the child does not fit the annotated type any more.
        PayloadUnreadable: if only another PayloadCodec can decode the value.
    """
    if frame.kind == "receive":
        if message is None:
            return None, None
        payload = values.open(frame.fid, message.payload)
        if payload is not message.payload:
            message = msgspec.structs.replace(message, payload=Raw(payload))
        return unpack_message(message), None
    if frame.child is None or message is None:
        return from_us(frame.deadline or 0), None
    ended = read_child(message)
    if ended.status == "completed":
        return decoded(frame, ended.value, values), None
    text = ended.message or ""
    return None, ChildFailed(frame.child.eid, ended.status, ended.error_type or "", text)


def read_child(message: PackedMessage) -> ChildOutcome:
    """Read how a child ended from the message that told its parent."""
    return _CHILD(message.payload)


def decoded(frame: Frame[Any], value: Raw, values: Values) -> Any:
    """Decode a memo of a frame.

    Raises:
        NondeterminismError: if it does not fit the annotated type any more.
        PayloadUnreadable: if only another PayloadCodec can decode it.
    """
    plain = values.open(frame.fid, value)
    try:
        return (frame.decoder or codec.decode)(plain)
    except PayloadUnreadable:  # of a claim, whose value has an envelope of its own
        raise
    except Exception as error:
        why = f"its value does not fit the annotated type any more ({error})"
        raise NondeterminismError(frame.fid, why) from error


def message_of(table: MemoTable, fid: str) -> PackedMessage | None:
    """Give the message that the frame has consumed, if it has."""
    fulfilled = table.fulfilled.get(fid)
    return None if fulfilled is None else fulfilled.message


def outcome(table: MemoTable, frame: Frame[Any], values: Values) -> tuple[Any, Exception | None]:
    """Give the outcome that the journal holds of a frame: its value, or its error.

    Raises:
        NondeterminismError: if the memo does not fit the annotated type any more.
        PayloadUnreadable: if only another PayloadCodec can decode it.
    """
    fid = frame.fid
    memo = table.memos.get(fid)
    if memo is not None:
        return decoded(frame, memo, values), None
    fulfilled = table.fulfilled.get(fid)
    if fulfilled is not None:
        return outcome_of_wait(frame, fulfilled.message, values)
    return None, step_failed(table.failures[fid][-1])


def step_failed(entry: FrameFailed) -> StepFailed:
    """Give the error that a final failure raises in the function."""
    return StepFailed(entry.fid, entry.error_type, entry.message, entry.attempt, entry.traceback)
