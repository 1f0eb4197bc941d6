"""What is on a queue? Queue tasks: start an execution, or resume one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

TaskKind = Literal["start", "resume"]
TaskState = Literal["ready", "delayed", "leased"]

START: TaskKind = "start"
RESUME: TaskKind = "resume"


class QueueTask(msgspec.Struct, frozen=True):
    """One unit of work on a queue.

    Attributes:
        task_id: ``{kind}:{eid}``; a second enqueue of an id still on the queue is a no-op.
        queue: the queue it stands on.
        kind: ``start`` or ``resume``.
        eid: the execution.
        fid: the frame, where one is meant, or ``None``.
        reason: why it was enqueued: ``start``, ``message``, ``timer``, ``recovery``, ``drain`` …
        key: the caller's key, or ``""``.
        not_before: the instant before which nobody takes it, or ``None``.
        payload: the JSON value of a task that carries one, else ``None``.
        enqueued_at: when it was enqueued.
        state: ``ready``, ``delayed`` or ``leased``.
        holder: who holds its lease, or ``None``.
    """

    task_id: str
    queue: str
    kind: TaskKind
    eid: UUID
    reason: str
    enqueued_at: datetime
    state: TaskState = "ready"
    fid: str | None = None
    key: str = ""
    not_before: datetime | None = None
    payload: Any = None
    holder: str | None = None
