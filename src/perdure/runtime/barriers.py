"""How is an execution given up? Pure decisions: entries and guard of the last transition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from perdure.errors import NotSerializable
from perdure.model import codec
from perdure.model.entry import (
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    FrameSuspended,
    KnownEntry,
)
from perdure.ports.commands import EndExecution, Suspend, Timer
from perdure.runtime.attempt import describe_error
from perdure.runtime.frames import Frame
from perdure.runtime.journal import Barrier

OPERATOR = "operator"


def suspension(
    eid: UUID, epoch: int, wake: int, frames: Iterable[Frame[Any]], *, site: int, now: int
) -> Barrier:
    """Suspend on what the frames wait for; the missing ``frame.suspended`` entries are written."""
    on: list[str] = []
    entries: list[KnownEntry] = []
    timers: list[Timer] = []
    for frame in frames:
        on.append(frame.on)
        if frame.suspended != frame.on:
            attempt = frame.attempts if frame.kind == "step" else 1
            entries.append(FrameSuspended(now, frame.fid, attempt, frame.on, frame.deadline))
        if frame.deadline is not None:
            timers.append(Timer(frame.fid, frame.deadline))
    entries.append(ExecutionSuspended(now, tuple(on)))
    guard = Suspend(eid, epoch, wake, tuple(on), tuple(timers), None, site, now)
    return Barrier(guard, tuple(entries))


def block(eid: UUID, epoch: int, wake: int, reason: str, *, site: int, now: int) -> Barrier:
    """Suspend until an operator does something about `reason`."""
    entry = ExecutionSuspended(now, (OPERATOR,), reason)
    return Barrier(Suspend(eid, epoch, wake, (OPERATOR,), (), reason, site, now), (entry,))


def end(
    eid: UUID,
    epoch: int,
    workflow: str,
    value: Any,
    error: BaseException | None,
    *,
    site: int,
    now: int,
) -> Barrier:
    """Close the execution with what the function returned or raised."""
    if error is None:
        try:
            result = codec.encode(f"the result of {workflow}", value)
        except NotSerializable as refused:
            error = refused
        else:
            guard = EndExecution(
                eid, epoch, "completed", bytes(result), None, None, site=site, now=now
            )
            return Barrier(guard, (ExecutionCompleted(now, result),))
    error_type, message, trace = describe_error(error)
    guard = EndExecution(eid, epoch, "failed", None, error_type, message, site=site, now=now)
    return Barrier(guard, (ExecutionFailed(now, error_type, message, trace),))
