"""How do commands change the tasks that frames have enqueued? One function for each."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import Raw

from perdure.model.ids import parse_task_id, session_holder, task_id
from perdure.model.queue_task import LeasedTask
from perdure.ports.commands import (
    AckTask,
    DequeueDelegated,
    DequeueSteps,
    Enqueue,
    ExpireTask,
    HoldTask,
    NackTask,
    Refused,
    RenewTask,
    Tell,
    Withdraw,
)
from perdure.stores.sqlite.batch import Batch, encode
from perdure.stores.sqlite.statements import SQL

NOT_HOLDER = Refused("not_holder")


def enqueue(batch: Batch, command: Enqueue) -> str:
    """Enqueue a task, unless its id is on that queue already."""
    now = batch.now = command.now
    eid, kind, key, queue, fid = command.eid, command.kind, command.key, command.queue, command.fid
    row = (kind, key, queue, command.step, kind, now, fid, command.payload, eid.bytes)
    one = task_id(kind, eid, key)
    if batch.execute(SQL["enqueue_task"], row).rowcount > 0:
        facts = {"task_id": one, "queue": queue, "kind": kind, "fid": fid}
        batch.tell(eid.bytes, "task.enqueued", now, command.epoch, facts)
        batch.enqueued = True
    return one


def withdraw(batch: Batch, command: Withdraw) -> bool:
    """Remove a task, whoever holds it."""
    kind, eid, key = parse_task_id(command.task_id)
    found = batch.execute(SQL["withdraw"], (eid.bytes, kind, key, command.queue))
    return found.rowcount > 0


def tell(batch: Batch, command: Tell) -> None:
    """Tell a frame what it waits for, if anybody is there to hear it."""
    now = batch.now = command.now
    eid = command.eid.bytes
    if batch.wake(eid, "step", now):
        batch.put(eid, command.fid, command.payload, (command.sent_by, now, None))


def dequeue_delegated(batch: Batch, command: DequeueDelegated) -> bytes | None:
    """Lease the next delegated task."""
    now = batch.now = command.now
    for queue in command.queues:
        lease = (command.holder, command.ttl, now, queue)
        row = batch.execute(SQL["take_delegated"], lease).fetchone()
        if row is not None:
            return encode(leased_task(row))
    return None


def dequeue_steps(batch: Batch, command: DequeueSteps) -> bytes:
    """Lease tasks that run steps."""
    now = batch.now = command.now
    holder, steps = session_holder(command.session), encode(command.steps).decode()
    taken: list[LeasedTask] = []
    if batch.execute(SQL["session_site"], (command.session,)).fetchone() is None:
        return encode(taken)
    for queue in command.queues:
        key = (queue, steps, command.limit - len(taken))
        for (task,) in batch.execute(SQL["ready_steps"], key).fetchall():
            row = batch.execute(SQL["take_step"], (holder, now, task)).fetchone()
            taken.append(leased_task(row))
    return encode(taken)


def leased_task(row: tuple[Any, ...]) -> LeasedTask:
    """Make the task of a row."""
    task, eid, kind, key, queue, fid, payload, epoch, state, stop, step = row
    kept = Raw(b"null" if state is None else state)
    return LeasedTask(
        task, UUID(bytes=eid), kind, key, queue, fid, Raw(payload), epoch, kept, bool(stop), step
    )


def renew(batch: Batch, command: RenewTask) -> object:
    """Renew a lease."""
    now = batch.now = command.now
    lease = (now, command.state, command.task, command.holder, command.epoch)
    row = batch.execute(SQL["renew"], lease).fetchone()
    return NOT_HOLDER if row is None else bool(row[0])


def ack(batch: Batch, command: AckTask) -> Refused | None:
    """Remove a task that is done."""
    lease = (command.task, command.holder, command.epoch)
    return None if batch.execute(SQL["ack"], lease).rowcount else NOT_HOLDER


def nack(batch: Batch, command: NackTask) -> Refused | None:
    """Return a task to its queue."""
    now = batch.now = command.now
    due = command.not_before
    due = due if due is not None and due > now else None
    lease = (due, command.task, command.holder, command.epoch)
    if not batch.execute(SQL["nack"], lease).rowcount:
        return NOT_HOLDER
    batch.enqueued |= due is None
    return None


def hold(batch: Batch, command: HoldTask) -> Refused | None:
    """Check that a task is held under this lease."""
    lease = (command.task, command.holder, command.epoch)
    return NOT_HOLDER if batch.execute(SQL["is_held"], lease).fetchone() is None else None


def expire(batch: Batch, command: ExpireTask) -> bool:
    """Make a task visible again whose lease was not renewed."""
    batch.now = command.now
    lease = (command.task, command.epoch, command.renewal)
    expired = batch.execute(SQL["expire_lease"], lease).rowcount > 0
    batch.enqueued |= expired
    return expired


def free(batch: Batch, session: int) -> None:
    """Make the tasks visible again that a session held which is over."""
    freed = batch.execute(SQL["free_tasks"], (session_holder(session),)).rowcount
    batch.enqueued |= freed > 0


def let_go(batch: Batch, eid: bytes) -> None:
    """An execution is stopped: nobody begins what it has delegated, and who does it may stop."""
    batch.execute(SQL["delete_delegated"], (eid,))
    batch.execute(SQL["stop_delegated"], (eid,))
