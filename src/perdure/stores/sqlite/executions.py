"""How do commands change executions? One function for each."""

from __future__ import annotations

import itertools
from typing import NamedTuple
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from perdure.model.entry import ExecutionCancelled, ExecutionMigrated, ExecutionTerminated
from perdure.model.execution import Execution
from perdure.model.instants import to_us
from perdure.model.provenance import Actor
from perdure.model.queue_task import START
from perdure.ports.commands import (
    ChildOutcome,
    CreateExecution,
    EndExecution,
    Migrate,
    Refused,
    Release,
    RequestCancel,
    Resume,
    Stopped,
    Suspend,
    Terminate,
    stopped,
)
from perdure.stores.sqlite import tasks
from perdure.stores.sqlite.batch import GLOBAL, Batch, encode
from perdure.stores.sqlite.statements import SQL

ENGINE = Actor.system("perdure")

ENDED = frozenset({"completed", "failed", "cancelled", "terminated"})


# -- beginning -------------------------------------------------------------------------------


def create(batch: Batch, command: CreateExecution) -> object:
    """Create a pending execution, unless its key or its id is taken."""
    record, now = command.record, command.now
    batch.now = now
    eid, key = record.eid.bytes, record.dispatch_key
    if key is not None and batch.execute(SQL["claim_key"], (key, eid)).rowcount == 0:
        owner = batch.execute(SQL["key_owner"], (key,)).fetchone()
        found = UUID(bytes=owner[0])
        if owner[1] != record.workflow:
            return Refused("key_taken", str(found))
        return (found, True)
    if not _insert(batch, record, now):
        if key is not None:
            batch.execute(SQL["disclaim_key"], (key,))
        return (record.eid, True)
    if command.journal is not None:
        batch.execute(SQL["begin_fork"], (eid,))
        batch.journal += (eid, 1, command.count, 1, batch.site, command.journal)
    return (record.eid, False)


def _insert(
    batch: Batch,
    record: Execution,
    now: int,
    stop: tuple[int | None, str | None] = (None, None),
) -> bool:
    """Insert an execution with its START; tell whether its id was free."""
    eid, options, parent = record.eid.bytes, record.options, record.parent
    created = batch.execute(
        SQL["create"],
        (
            eid,
            record.workflow,
            record.version,
            record.queue,
            record.args,
            record.seed,
            encode(options),
            options.priority,
            record.dispatch_key,
            batch.actor(record.created_by),
            record.created_at,
            now,
            None if parent is None else parent.eid.bytes,
            None if parent is None else parent.fid,
            record.on_parent_cancel,
            options.expiry_us(record.created_at),
            *stop,
        ),
    )
    if created.rowcount == 0:
        return False
    not_before = None
    if options.not_before is not None:
        due = to_us(options.not_before)
        not_before = due if due > now else None
    workflow, version, priority = record.workflow, record.version, options.priority
    task = (eid, START, record.queue, workflow, version, priority, START, not_before, now)
    batch.execute(SQL["enqueue"], task)
    batch.enqueued |= not_before is None
    facts = {"workflow": workflow, "version": version, "queue": record.queue}
    if record.dispatch_key is not None:
        facts["key"] = record.dispatch_key
    if parent is not None:
        facts["parent"] = str(parent.eid)
    batch.tell(eid, "execution.created", now, 0, facts)
    return True


# -- what an owner does ----------------------------------------------------------------------


def suspend(batch: Batch, command: Suspend) -> Refused | None:
    """Release an execution that waits, with its whole wait set."""
    eid, now = command.eid.bytes, command.now
    batch.now = now
    for channel, seen in command.channels:
        row = batch.execute(SQL["last_seq"], (GLOBAL, channel)).fetchone()
        if row is not None and row[0] > seen:
            return Refused("wake")
    on = encode(command.on).decode()
    key = (on, command.blocked, now, eid, command.epoch, command.wake)
    suspended = batch.execute(SQL["suspend"], key).fetchone()
    if suspended is None:
        owned = batch.execute(SQL["is_owned"], (eid, command.epoch)).fetchone()
        return Refused("lease_lost" if owned is None else "wake")
    for timer in command.timers:
        batch.execute(SQL["set_timer"], (eid, timer.timer_id, timer.due))
    for channel, _ in command.channels:
        batch.execute(SQL["wait_globally"], (channel, eid))
    facts: dict[str, object] = {"on": command.on}
    if command.blocked is not None:
        facts["reason"] = command.blocked
    batch.tell(eid, "execution.suspended", now, command.epoch, facts)
    if suspended[0] is not None:  # an operator gave it to another version while it was owned
        batch.resume(eid, "migrate", now)
    return None


def end(batch: Batch, command: EndExecution) -> Refused | None:
    """Close an owned execution; its parent is told, or its successor takes its place."""
    eid, now, successor = command.eid.bytes, command.now, command.successor
    batch.now = now
    row = (
        command.status,
        command.result,
        command.error_type,
        command.error_message,
        now,
        now,
        None if successor is None else successor.eid.bytes,
        eid,
        command.epoch,
    )
    ended = batch.execute(SQL["end"], row).fetchone()
    if ended is None:
        return Refused("lease_lost")
    parent, parent_fid, stop_by, stop_reason, next_version = ended
    batch.execute(SQL["delete_tasks"], (eid,))
    if command.status == "cancelled":
        tasks.let_go(batch, eid)
    facts: dict[str, object] = {}
    if command.error_type is not None:
        facts = {"error_type": command.error_type, "message": command.error_message}
    if successor is not None:
        facts = {"continued_as": successor.eid}
    batch.tell(eid, f"execution.{command.status}", now, command.epoch, facts)
    batch.closed.append(command.eid)
    if successor is not None:
        version = next_version or successor.version
        _succeed(batch, command, replace(successor, version=version), (stop_by, stop_reason))
    elif parent is not None:
        value = Raw(command.result or b"null")
        error_type, message = command.error_type, command.error_message
        outcome = ChildOutcome(command.status, value, error_type, message)
        _tell_parent(batch, parent, parent_fid, outcome, now)
    for (child,) in batch.execute(SQL["open_children"], (eid,)).fetchall():
        why = f"its parent is {command.status}"
        _ask_to_cancel(batch, child, ExecutionCancelled(now, ENGINE, why))
    return None


def _tell_parent(batch: Batch, eid: bytes, fid: str, outcome: ChildOutcome, now: int) -> None:
    """Tell the frame that started an execution how it ended, if anybody is there to hear it."""
    if batch.wake(eid, "child", now):
        batch.put(eid, fid, encode(outcome), (ENGINE, now, None))


def _succeed(
    batch: Batch,
    command: EndExecution,
    successor: Execution,
    stop: tuple[int | None, str | None],
) -> None:
    """Create the successor of an execution, and move to it what is not done."""
    old, new = command.eid.bytes, successor.eid.bytes
    _insert(batch, successor, command.now, stop)
    if successor.dispatch_key is not None:
        batch.execute(SQL["move_key"], (new, successor.dispatch_key))
    returned = encode(command.returned).decode()
    rows = batch.execute(SQL["unmoved"], (old, returned)).fetchall()
    if rows:
        batch.wake(new, "message", command.now)
    for channel, group in itertools.groupby(rows, key=lambda row: row[0]):
        for _, seq, *message in group:
            batch.execute(SQL["remove_message"], (old, channel, seq))
            number = batch.execute(SQL["next_seq"], (new, channel)).fetchone()[0]
            batch.execute(SQL["send"], (new, channel, number, *message))
    batch.execute(SQL["settle_channels"], (old,))


def release(batch: Batch, command: Release) -> bool:
    """Give an owned execution up, and enqueue its RESUME."""
    eid = command.eid.bytes
    batch.now = command.now
    released = batch.execute(SQL["release"], (eid, command.session, command.epoch)).rowcount > 0
    if released:
        batch.resume(eid, command.reason, command.now)
    return released


# -- what operators do -----------------------------------------------------------------------


def request_cancel(batch: Batch, command: RequestCancel) -> str | None:
    """Note a cancel request, or close an execution that is pending."""
    batch.now = command.now
    found = _latest(batch, command.eid.bytes)
    if found is None:
        return None
    if found.status not in ENDED:
        _ask_to_cancel(
            batch, found.eid, ExecutionCancelled(command.now, command.by, command.reason)
        )
    return found.status


def _ask_to_cancel(batch: Batch, eid: bytes, end: ExecutionCancelled) -> None:
    """Note who asks an open execution to cancel; `end` is its entry if it is still pending."""
    request = (batch.actor(end.by), end.reason, eid)
    asked = batch.execute(SQL["request_cancel"], request).fetchone()
    if asked is not None and asked[0] != "pending":
        batch.execute(SQL["stop_delegated"], (eid,))
        batch.woke(eid, asked, "cancel", end.at)
    elif asked is not None:
        _close(batch, eid, "cancelled", end)


def terminate(batch: Batch, command: Terminate) -> str | None:
    """Close an execution and its open descendants."""
    batch.now = command.now
    found = _latest(batch, command.eid.bytes)
    if found is None:
        return None
    if found.status not in ENDED:
        entry = ExecutionTerminated(command.now, command.by, command.reason)
        _close_tree(batch, found.eid, entry)
    return found.status


def expire(batch: Batch, now: int, limit: int) -> int:
    """Terminate executions that have taken longer than they may, and count them."""
    expired = batch.execute(SQL["expired"], (now, limit)).fetchall()
    for (eid,) in expired:
        found = batch.execute(SQL["latest"], (eid,)).fetchone()
        if found[0] not in ENDED:  # not closed with its parent a moment ago
            _close_tree(batch, eid, ExecutionTerminated(now, ENGINE, "timeout"))
    return len(expired)


def _close_tree(batch: Batch, eid: bytes, entry: ExecutionTerminated) -> None:
    """Close an execution and its open descendants, level by level."""
    level = [eid]
    while level:
        for one in level:
            _close(batch, one, "terminated", entry)
        below: list[bytes] = []
        for one in level:
            below += (child for (child,) in batch.execute(SQL["open_children"], (one,)).fetchall())
        level = below


def _close(
    batch: Batch, eid: bytes, status: Stopped, entry: ExecutionCancelled | ExecutionTerminated
) -> None:
    """Close an execution whoever owns it."""
    now, by, reason = entry.at, entry.by, entry.reason
    outcome = stopped(status, by, reason)
    error = (outcome.error_type, outcome.message)
    key = (status, now, now, batch.actor(by), reason, *error, eid)
    epoch, parent, parent_fid = batch.execute(SQL["close"], key).fetchone()
    batch.append(eid, epoch, entry)
    for table in ("delete_tasks", "delete_timers", "delete_waiter"):
        batch.execute(SQL[table], (eid,))
    tasks.let_go(batch, eid)
    facts = {"by": by} if reason is None else {"by": by, "reason": reason}
    batch.tell(eid, f"execution.{status}", now, epoch, facts)
    batch.closed.append(UUID(bytes=eid))
    if parent is not None:
        _tell_parent(batch, parent, parent_fid, outcome, now)


def resume(batch: Batch, command: Resume) -> str | None:
    """Wake an execution."""
    batch.now = command.now
    found = _latest(batch, command.eid.bytes)
    if found is None:
        return None
    batch.wake(found.eid, f"resume by {command.by}", command.now)
    return found.status


def migrate(batch: Batch, command: Migrate) -> object:
    """Give an execution to another version: at once, or at its next acquisition if it is owned."""
    now, version = command.now, command.version
    batch.now = now
    found = _latest(batch, command.eid.bytes)
    if found is None:
        return Refused("unknown_execution")
    eid, before = found.eid, found.version
    if found.status in ENDED:
        return Refused("already_closed", found.status)
    if version == (found.next_version or before):
        return Refused("same_version", version)
    batch.execute(SQL["migrate_tasks"], (version, eid))
    epoch = 0
    if found.owner is not None:
        batch.execute(SQL["migrate_later"], (None if version == before else version, eid))
        batch.woken.append(UUID(bytes=eid))
    else:
        epoch = batch.execute(SQL["migrate"], (version, eid)).fetchone()[0]
        batch.append(eid, epoch, ExecutionMigrated(now, before, version))
        if found.status != "pending":
            batch.resume(eid, "migrate", now)
    facts = {"from_version": before, "version": version, "by": command.by}
    batch.tell(eid, "execution.migrated", now, epoch, facts)
    return before


class _Latest(NamedTuple):
    eid: bytes
    status: str
    owner: int | None
    version: str
    next_version: str | None


def _latest(batch: Batch, eid: bytes) -> _Latest | None:
    """Find the execution that an id means now."""
    while True:
        row = batch.execute(SQL["latest"], (eid,)).fetchone()
        if row is None:
            return None
        if row[1] is None:
            return _Latest(eid, row[0], *row[2:])
        eid = row[1]
