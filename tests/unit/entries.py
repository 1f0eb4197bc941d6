"""How are the journals of the tests written? Short builders of entries with usual values."""

from __future__ import annotations

from typing import Any

from perdure.model.codec import encode
from perdure.model.entry import (
    AnyEntry,
    ExecutionResumed,
    FrameCompleted,
    FrameFailed,
    FrameFulfilled,
    FrameStarted,
    PackedMessage,
)
from perdure.model.provenance import Actor

STEP, RECEIVE, SLEEP = "root/f#0", "root/receive#0", "root/sleep#0"
CHANNEL_X = "channel:e.x"


def started(fid: str, kind: str = "step", deadline: int | None = None) -> FrameStarted:
    return FrameStarted(1, fid, 1, kind, "f", "digest", deadline)


def completed(fid: str, value: Any = 1, attempt: int = 1) -> FrameCompleted:
    return FrameCompleted(1, fid, attempt, encode(fid, value))


def failed(fid: str, attempt: int = 1, *, retry: bool, at: int | None = None) -> FrameFailed:
    return FrameFailed(1, fid, attempt, "ValueError", f"attempt {attempt}", retry, at)


def fulfilled(fid: str, on: str, seq: int | None = None, channel: str = "x") -> FrameFulfilled:
    message = None
    if seq is not None:
        message = PackedMessage(seq, channel, encode(fid, seq), Actor.system("s"), 1)
    return FrameFulfilled(1, fid, 1, on, message)


def recovered(times: int) -> list[AnyEntry]:
    return [ExecutionResumed(1, "recovery") for _ in range(times)]
