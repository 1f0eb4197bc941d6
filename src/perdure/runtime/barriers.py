"""How is an execution given up? Pure decisions: entries and guard of the last transition."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from perdure.errors import NotSerializable, PayloadTooLarge
from perdure.model import codec
from perdure.model.entry import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    FrameSuspended,
    KnownEntry,
)
from perdure.model.execution import Execution
from perdure.ports.commands import EndExecution, Suspend, Timer, stopped
from perdure.ports.store import CancelRequest
from perdure.runtime.attempt import describe_error
from perdure.runtime.journal import Barrier
from perdure.runtime.values import Values
from perdure.runtime.waits import Waits

OPERATOR = "operator"
LISTED_MAX = 100
"""How many conditions and timers of a suspension are listed.

Each wait has an entry of its own in the journal. A longer list would make every suspension of an
execution with thousands of waits cost as much as all of them. A timer that is not listed has a
turn when those before it have fired.
"""


def suspension(
    eid: UUID,
    epoch: int,
    wake: int,
    waits: Waits,
    channels: tuple[tuple[str, int], ...],
    *,
    site: int,
    now: int,
) -> Barrier:
    """Suspend on what the frames wait for; the missing ``frame.suspended`` entries are written.

    Args:
        eid: the execution.
        epoch: the epoch under which it is owned.
        wake: its wake counter as it was read.
        waits: what waits.
        channels: the global channels it waits on, and how far each was read.
        site: where the owner runs.
        now: the instant, in microseconds.
    """
    entries: list[KnownEntry] = []
    for frame in waits.unmarked.values():
        attempt = frame.attempts if frame.kind == "step" else 1
        entries.append(FrameSuspended(now, frame.fid, attempt, frame.on, frame.deadline))
    on = tuple(frame.on for frame in waits.first(LISTED_MAX))
    timers = tuple(Timer(f.fid, f.deadline or 0) for f in waits.earliest(LISTED_MAX))
    entries.append(ExecutionSuspended(now, on))
    guard = Suspend(eid, epoch, wake, on, timers, None, site, now, channels)
    return Barrier(guard, tuple(entries))


def block(eid: UUID, epoch: int, wake: int, reason: str, *, site: int, now: int) -> Barrier:
    """Suspend until an operator does something about `reason`."""
    entry = ExecutionSuspended(now, (OPERATOR,), reason)
    return Barrier(Suspend(eid, epoch, wake, (OPERATOR,), (), reason, site, now), (entry,))


def end(
    eid: UUID,
    epoch: int,
    workflow: str,
    given: tuple[Any, BaseException | None],
    values: Values,
    *,
    site: int,
    now: int,
) -> Barrier:
    """Close the execution with what the function returned, or raised: the two in `given`.

    Raises:
        PayloadUnwritable: if the codec raises.
    """
    value, error = given
    if error is None:
        try:
            result = values.encode(f"the result of {workflow}", value)
        except (NotSerializable, PayloadTooLarge) as refused:
            error = refused
        else:
            guard = EndExecution(
                eid, epoch, "completed", bytes(result), None, None, site=site, now=now
            )
            return Barrier(guard, (ExecutionCompleted(now, result),))
    error_type, message, trace = describe_error(error)
    guard = EndExecution(eid, epoch, "failed", None, error_type, message, site=site, now=now)
    return Barrier(guard, (ExecutionFailed(now, error_type, message, trace),))


def cancel(eid: UUID, epoch: int, request: CancelRequest, *, site: int, now: int) -> Barrier:
    """Close the execution as cancelled."""
    why = stopped("cancelled", request.by, request.reason)
    guard = EndExecution(
        eid, epoch, "cancelled", None, why.error_type, why.message, site=site, now=now
    )
    return Barrier(guard, (ExecutionCancelled(now, request.by, request.reason),))


def succession(
    eid: UUID,
    epoch: int,
    successor: Execution,
    returned: tuple[tuple[str, int], ...],
    *,
    site: int,
    now: int,
) -> Barrier:
    """Close the execution as completed; `successor` takes its place, and reads what is unread."""
    guard = EndExecution(
        eid,
        epoch,
        "completed",
        bytes(codec.NULL),
        None,
        None,
        site=site,
        now=now,
        successor=successor,
        returned=returned,
    )
    return Barrier(guard, (ExecutionCompleted(now, codec.NULL, str(successor.eid)),))
