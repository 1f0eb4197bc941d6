"""What can be written? Every write is one of these values; a store applies them, nothing else.

A command carries every input it needs, the current time and all generated ids included: given the
same state and the same command, every store makes the same change. No store calls a clock or a
random source. Instants are microseconds since the epoch.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.model.execution import Execution
from perdure.model.provenance import Actor, describe_stop
from perdure.model.queue_task import EnqueuedKind


class CreateExecution(msgspec.Struct, frozen=True, tag=True):
    """Create a pending execution and enqueue its START task.

    A fork begins with a journal: `journal` holds its packed entries, `count` of them. They have
    the epoch 1.

    If the dispatch key of the record belongs to an execution already, or an execution with this
    id exists, nothing is written. Result: ``[eid, deduplicated]``. Refused with `key_taken` if the
    key belongs to an execution of another workflow.
    """

    record: Execution
    now: int
    journal: bytes | None = None
    count: int = 0


class Append(msgspec.Struct, frozen=True, tag=True):
    """Append `count` entries, numbered from `first_seq`, to the journal of an owned execution.

    `body` is what ``model.entry.pack`` makes of them; they become one row. Refused with
    `journal_conflict` if a row with that number exists: another worker appended meanwhile.

    `memos` names entries whose value is the result of an earlier command of the transition: pairs
    of the entry's index in `body` and the command's index. So an effect and its memo are one.
    """

    eid: UUID
    epoch: int
    site: int
    first_seq: int
    count: int
    body: bytes
    memos: tuple[tuple[int, int], ...] = ()


class Consume(msgspec.Struct, frozen=True, tag=True):
    """Remember that the execution has consumed its channel up to `seq`.

    Of a channel that nothing was sent on, the next message has the number after `seq`.
    """

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
    counter is `wake` and each global channel in `channels` ends at the number given with it:
    something happened that the owner has not read. `on` lists what it waits on; `blocked` says why
    it waits for an operator. The control log gets ``execution.suspended``.
    """

    eid: UUID
    epoch: int
    wake: int
    on: tuple[str, ...]
    timers: tuple[Timer, ...]
    blocked: str | None
    site: int
    now: int
    channels: tuple[tuple[str, int], ...] = ()


class EndExecution(msgspec.Struct, frozen=True, tag=True):
    """Close an owned execution as `status`, with its result (JSON) or its error.

    Refused with `lease_lost` unless it is owned under `epoch`. Its timers and tasks are deleted.
    The control log gets ``execution.{status}``. If a frame of another execution started it, that
    one is sent the outcome on the channel named by the frame's id, as `ChildOutcome`, and woken.
    Its own children that are open are asked to cancel, unless they were started to live on.

    With a `successor` that one is created instead, in the place of this one. It gets the dispatch
    key, a cancel request, if there is one, and the messages that are unread or that `returned`
    names by channel and number, numbered from 1. The frame that started this execution waits for
    it now.
    """

    eid: UUID
    epoch: int
    status: Literal["completed", "failed", "cancelled"]
    result: bytes | None
    error_type: str | None
    error_message: str | None
    site: int
    now: int
    successor: Execution | None = None
    returned: tuple[tuple[str, int], ...] = ()


Stopped = Literal["cancelled", "terminated"]


class ChildOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a child ended: the payload of the message to the frame that started it."""

    status: Literal["completed", "failed", "cancelled", "terminated"]
    value: Raw = Raw(b"null")
    error_type: str | None = None
    message: str | None = None


def stopped(status: Stopped, by: Actor, reason: str | None) -> ChildOutcome:
    """Give the outcome of a child that was cancelled or terminated."""
    error_type, message = f"Execution{status.capitalize()}", describe_stop(by, reason)
    return ChildOutcome(status, error_type=error_type, message=message)


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
    enqueued. If the execution continues as another one, that one is sent it. Refused with
    `unknown_execution`, or `already_closed` (detail: the status). Result: the sequence number.
    """

    eid: UUID
    channel: str
    payload: bytes
    sent_by: Actor
    correlation: str | None
    now: int


class Broadcast(msgspec.Struct, frozen=True, tag=True):
    """Send one message on a global channel, and wake every execution that waits on it.

    Result: the sequence number.
    """

    channel: str
    payload: bytes
    sent_by: Actor
    now: int


class Announce(msgspec.Struct, frozen=True, tag=True):
    """Append ``announce.{kind}`` to the control log. Result: the position of the entry."""

    eid: UUID
    epoch: int
    fid: str
    kind: str
    payload: bytes
    now: int


class Publish(msgspec.Struct, frozen=True, tag=True):
    """Add an item (JSON) to a stream of an execution; nobody is woken.

    Refused with `lease_lost` if the execution was acquired or closed since `epoch`; without an
    epoch a command beside it is the guard. Result: the number of the item, from 1.
    """

    eid: UUID
    epoch: int | None
    stream: str
    payload: bytes
    sent_by: Actor
    now: int


class Claim(msgspec.Struct, frozen=True, tag=True):
    """Keep a value (JSON) under a key unless the key is taken.

    With `only_first` it is refused as `claimed` if the key is taken, by whomever; the detail is the
    value kept under it. Result: JSON, ``[won, value]``: whether this command took the key, and the
    value kept under it.
    """

    key: str
    eid: UUID
    value: bytes
    now: int
    only_first: bool = False


class Enqueue(msgspec.Struct, frozen=True, tag=True):
    """Enqueue a task for a frame of an open execution, unless its id is on that queue already.

    A `run_step` names its step in `step`. The control log gets ``task.enqueued``. Result: the id
    of the task.
    """

    eid: UUID
    epoch: int
    fid: str
    kind: EnqueuedKind
    key: str
    queue: str
    payload: bytes
    now: int
    step: str = ""


class Withdraw(msgspec.Struct, frozen=True, tag=True):
    """Remove a task from a queue, whoever holds it. Result: whether it was there."""

    queue: str
    task_id: str


class Tell(msgspec.Struct, frozen=True, tag=True):
    """Tell a frame of an execution what it waits for, on the channel of its own, and wake it.

    Nothing happens if the execution has ended.
    """

    eid: UUID
    fid: str
    payload: bytes
    sent_by: Actor
    now: int


class DequeueDelegated(msgspec.Struct, frozen=True, tag=True):
    """Lease the next delegated task of the first queue that has one ready.

    The lease lasts while it is renewed every `ttl` seconds. Result: JSON of a
    `LeasedTask`, or ``None``.
    """

    queues: tuple[str, ...]
    holder: str
    ttl: float
    now: int


class DequeueSteps(msgspec.Struct, frozen=True, tag=True):
    """Lease up to `limit` ready tasks that run one of the `steps`, in the order of the queues.

    The lease lasts as long as the session that holds it. Result: JSON of
    a list of `LeasedTask`.
    """

    queues: tuple[str, ...]
    steps: tuple[str, ...]
    session: int
    limit: int
    now: int


class RenewTask(msgspec.Struct, frozen=True, tag=True):
    """Renew the lease of a task, and keep a state (JSON) in it if one is given.

    Refused with `not_holder` if it is held otherwise, or is gone. Result: whether its holder is
    asked to stop.
    """

    task: int
    holder: str
    epoch: int
    state: bytes | None
    now: int


class AckTask(msgspec.Struct, frozen=True, tag=True):
    """Remove a task that is done. Refused with `not_holder` if it is held otherwise, or is gone."""

    task: int
    holder: str
    epoch: int


class NackTask(msgspec.Struct, frozen=True, tag=True):
    """Return a task to its queue; nobody sees it before `not_before`, if that is given.

    Refused with `not_holder` if it is held otherwise, or is gone.
    """

    task: int
    holder: str
    epoch: int
    not_before: int | None
    now: int


class HoldTask(msgspec.Struct, frozen=True, tag=True):
    """Guard what follows: refused with `not_holder` unless the task is held under this lease."""

    task: int
    holder: str
    epoch: int


class RequestCancel(msgspec.Struct, frozen=True, tag=True):
    """Ask an execution to cancel, and wake it; one that is pending is closed at once.

    Only the first request counts. If the execution continues as another one, that one is asked.
    Result: the status before, or ``None`` if there is no such execution.
    """

    eid: UUID
    by: Actor
    reason: str | None
    now: int


class Terminate(msgspec.Struct, frozen=True, tag=True):
    """Close an execution and its open descendants at once, whoever owns them.

    The epoch of each rises and its journal gets ``execution.terminated``, so that an owner can
    append nothing more. Descendants that were started to outlive their parent stay. If the
    execution continues as another one, that one is closed. Result: as of `RequestCancel`.
    """

    eid: UUID
    by: Actor
    reason: str | None
    now: int


class Resume(msgspec.Struct, frozen=True, tag=True):
    """Wake an execution; if it is suspended, its RESUME is enqueued.

    Result: as of `RequestCancel`.
    """

    eid: UUID
    by: Actor
    now: int


class Migrate(msgspec.Struct, frozen=True, tag=True):
    """Give an execution to another version of its workflow.

    One that nobody owns gets ``execution.migrated`` under a new epoch, and is woken. One that is
    owned keeps its version until it is acquired the next time. Refused with `unknown_execution`,
    `already_closed` or `same_version`. Result: the version before.
    """

    eid: UUID
    version: str
    by: Actor
    now: int


class FireTimers(msgspec.Struct, frozen=True, tag=True):
    """Do what is due: resume suspended executions, promote delayed tasks, terminate the expired.

    At most `limit` of each. Timers of owned executions are left alone; those of closed ones are
    deleted. An execution whose timeout is over is terminated with the reason ``timeout``. Result:
    how many timers fired, tasks were promoted and executions terminated together.
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


class ExpireTask(msgspec.Struct, frozen=True, tag=True):
    """Make a task visible again whose lease was not renewed.

    Nothing happens unless the lease and its renewal are still these. Result: whether it expired.
    """

    task: int
    epoch: int
    renewal: int
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
    | Broadcast
    | Announce
    | Publish
    | Claim
    | Enqueue
    | Withdraw
    | Tell
    | DequeueDelegated
    | DequeueSteps
    | RenewTask
    | AckTask
    | NackTask
    | HoldTask
    | RequestCancel
    | Terminate
    | Resume
    | Migrate
    | FireTimers
    | ExpireSession
    | ExpireTask
    | RepairPending
)


class Transition(msgspec.Struct, frozen=True):
    """Commands that are applied together or not at all.

    A guarding command (`Suspend`, `EndExecution`, `AckTask`, `HoldTask`) stands before what it
    guards, so that a refusal finds nothing written.
    """

    commands: tuple[Command, ...]


class Done(msgspec.Struct, frozen=True, tag=True):
    """The transition is durable; `results` has one value per command, or ``None``."""

    results: tuple[object, ...] = ()


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The transition was not applied; `code` says why and `detail` adds a fact.

    `at` is the index of the command that was refused.
    """

    code: Literal[
        "journal_conflict",
        "lease_lost",
        "wake",
        "unknown_execution",
        "already_closed",
        "key_taken",
        "same_version",
        "claimed",
        "not_holder",
    ]
    detail: str | None = None
    at: int = 0


Outcome = Done | Refused
