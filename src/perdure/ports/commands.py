"""What can be written? Every write is one of these values; a store applies them, nothing else.

A command carries every input it needs, the current time and all generated ids included: given the
same state and the same command, every store makes the same change. No store calls a clock or a
random source. Instants are microseconds since the epoch.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from perdure.model.execution import Execution
from perdure.model.provenance import Actor


class CreateExecution(msgspec.Struct, frozen=True, tag=True):
    """Create a pending execution and enqueue its START task.

    If the dispatch key of the record belongs to an execution already, or an execution with this
    id exists, nothing is written. Result: ``[eid, deduplicated]``. Refused with `key_taken` if the
    key belongs to an execution of another workflow.
    """

    record: Execution
    now: int


class Append(msgspec.Struct, frozen=True, tag=True):
    """Append `count` entries, numbered from `first_seq`, to the journal of an owned execution.

    `body` is what ``model.entry.pack`` makes of them; they become one row. Refused with
    `journal_conflict` if a row with that number exists: another worker appended meanwhile.
    """

    eid: UUID
    epoch: int
    site: int
    first_seq: int
    count: int
    body: bytes


class Consume(msgspec.Struct, frozen=True, tag=True):
    """Remember that the execution has consumed its channel up to `seq`."""

    eid: UUID
    channel: str
    seq: int


class Timer(msgspec.Struct, frozen=True):
    """One instant at which a suspended execution is resumed."""

    timer_id: str
    due: int


class Suspend(msgspec.Struct, frozen=True, tag=True):
    """Suspend an owned execution: release it, and replace its whole wait set.

    Refused with `lease_lost` unless it is owned under `epoch`; refused with `wake` unless its wake
    counter is `wake`: something happened that the owner has not read. `on` lists what it waits on;
    `blocked` says why it waits for an operator. The control log gets ``execution.suspended``.
    """

    eid: UUID
    epoch: int
    wake: int
    on: tuple[str, ...]
    timers: tuple[Timer, ...]
    blocked: str | None
    site: int
    now: int


class EndExecution(msgspec.Struct, frozen=True, tag=True):
    """Close an owned execution as `status`, with its result (JSON) or its error.

    Refused with `lease_lost` unless it is owned under `epoch`. Its timers and tasks are deleted.
    The control log gets ``execution.{status}``.
    """

    eid: UUID
    epoch: int
    status: Literal["completed", "failed"]
    result: bytes | None
    error_type: str | None
    error_message: str | None
    site: int
    now: int


class Release(msgspec.Struct, frozen=True, tag=True):
    """Give up an execution that this session owns, and enqueue its RESUME.

    `epoch` is the epoch it is owned under. If it is owned otherwise, nothing happens: a release is
    a courtesy. Result: whether it was released.
    """

    eid: UUID
    session: int
    epoch: int
    reason: str
    now: int


class Send(msgspec.Struct, frozen=True, tag=True):
    """Send one message on a channel of an execution, and wake it.

    `payload` is JSON. The wake counter rises; if the execution is suspended, its RESUME is
    enqueued. Refused with `unknown_execution`, or `already_closed` (detail: the status). Result:
    the sequence number.
    """

    eid: UUID
    channel: str
    payload: bytes
    sent_by: Actor
    correlation: str | None
    now: int


class FireTimers(msgspec.Struct, frozen=True, tag=True):
    """Resume suspended executions whose timers are due, and promote delayed tasks that are.

    At most `limit` of each. Timers of owned executions are left alone; those of closed ones are
    deleted. Result: how many timers fired and tasks were promoted together.
    """

    now: int
    limit: int


class ExpireSession(msgspec.Struct, frozen=True, tag=True):
    """Expire a session whose beat did not move, and enqueue a RESUME for all that it owned.

    Nothing happens unless the session is live and its beat is still `beat`. Result: how many
    executions were recovered.
    """

    session: int
    beat: int
    now: int


class RepairPending(msgspec.Struct, frozen=True, tag=True):
    """Enqueue a START for pending executions that have none (imported or damaged data).

    At most `limit`. Result: how many.
    """

    now: int
    limit: int


Command = (
    CreateExecution
    | Append
    | Consume
    | Suspend
    | EndExecution
    | Release
    | Send
    | FireTimers
    | ExpireSession
    | RepairPending
)


class Transition(msgspec.Struct, frozen=True):
    """Commands that are applied together or not at all.

    A guarding command (`Suspend`, `EndExecution`) stands before what it guards, so that a refusal
    finds nothing written.
    """

    commands: tuple[Command, ...]


class Done(msgspec.Struct, frozen=True, tag=True):
    """The transition is durable; `results` has one value per command, or ``None``."""

    results: tuple[object, ...] = ()


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The transition was not applied; `code` says why and `detail` adds a fact."""

    code: Literal[
        "journal_conflict",
        "lease_lost",
        "wake",
        "unknown_execution",
        "already_closed",
        "key_taken",
    ]
    detail: str | None = None


Outcome = Done | Refused
