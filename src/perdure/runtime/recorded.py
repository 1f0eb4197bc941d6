"""What does the journal say of a frame? Pure decisions over the fold; the runner applies them."""

from __future__ import annotations

from typing import Any

from perdure.errors import NondeterminismError, StepFailed
from perdure.model import codec
from perdure.model.entry import FrameFailed, FrameStarted, PackedMessage
from perdure.model.instants import from_us
from perdure.model.memo import MemoTable
from perdure.model.message import unpack_message
from perdure.runtime.frames import Frame


def difference(started: FrameStarted, frame: Frame[Any]) -> str | None:
    """Say how a frame differs from the one that the journal holds under its id."""
    if started.kind != frame.kind:
        return f"the journal holds a {started.kind}, the code makes a {frame.kind}"
    if started.name != frame.name:
        return f"the journal holds the name {started.name!r}, the code gives {frame.name!r}"
    if started.digest != frame.digest:
        return f"the {frame.kind} has other arguments than the journal holds"
    return None


def value_of_wait(frame: Frame[Any], message: PackedMessage | None) -> Any:
    """Give what the function gets when a wait is over: a message, ``None``, or the due instant."""
    if frame.kind == "receive":
        return None if message is None else unpack_message(message)
    return from_us(frame.deadline or 0)


def message_of(table: MemoTable, fid: str) -> PackedMessage | None:
    """Give the message that the frame has consumed, if it has."""
    fulfilled = table.fulfilled.get(fid)
    return None if fulfilled is None else fulfilled.message


def outcome(table: MemoTable, frame: Frame[Any]) -> tuple[Any, Exception | None]:
    """Give the outcome that the journal holds of a frame: its value, or its error.

    Raises:
        NondeterminismError: if the memo does not fit the annotated type any more.
    """
    fid = frame.fid
    memo = table.memos.get(fid)
    if memo is not None:
        try:
            return (frame.decoder or codec.decode)(memo), None
        except Exception as error:
            why = f"its memo does not fit the annotated type any more ({error})"
            raise NondeterminismError(fid, why) from error
    fulfilled = table.fulfilled.get(fid)
    if fulfilled is not None:
        return value_of_wait(frame, fulfilled.message), None
    return None, step_failed(table.failures[fid][-1])


def step_failed(entry: FrameFailed) -> StepFailed:
    """Give the error that a final failure raises in the function."""
    return StepFailed(entry.fid, entry.error_type, entry.message, entry.attempt, entry.traceback)
