"""What is on a queue? Tasks: start or resume an execution, run a step elsewhere, delegate."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.model.ids import task_id

TaskKind = Literal["start", "resume", "run_step", "delegate"]
EnqueuedKind = Literal["run_step", "delegate"]
TaskState = Literal["ready", "delayed", "leased"]

START: TaskKind = "start"
RESUME: TaskKind = "resume"
RUN_STEP: EnqueuedKind = "run_step"
DELEGATE: EnqueuedKind = "delegate"


class QueueTask(msgspec.Struct, frozen=True):
    """One unit of work on a queue.

    Attributes:
        task_id: ``{kind}:{eid}``, and ``:{key}`` if there is a key; a second enqueue of an id that
            is still on the queue is a no-op.
        queue: the queue it stands on.
        kind: ``start``, ``resume``, ``run_step``, or ``delegate``: done by a consumer.
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


class QueueDepth(msgspec.Struct, frozen=True):
    """How many tasks are on a queue.

    Attributes:
        ready: those that somebody may take.
        delayed: those that nobody takes before their instant.
        leased: those that somebody holds.
    """

    ready: int
    delayed: int
    leased: int


class LeasedTask(msgspec.Struct, frozen=True):
    """A task that a frame has enqueued, under the lease of whoever does it.

    Attributes:
        task: the number by which the store knows it.
        eid: the execution that enqueued it.
        kind: ``run_step`` or ``delegate``.
        key: what tells it from others of its kind and execution.
        queue: the queue it stands on.
        fid: the frame that enqueued it.
        payload: its payload as JSON.
        epoch: how often it was dequeued.
        state: what its holders keep in it, as JSON.
        stop: whether its holder is asked to stop: the execution is cancelled.
        step: the name of the step that a ``run_step`` runs.
    """

    task: int
    eid: UUID
    kind: EnqueuedKind
    key: str
    queue: str
    fid: str
    payload: Raw
    epoch: int
    state: Raw = Raw(b"null")
    stop: bool = False
    step: str = ""

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return task_id(self.kind, self.eid, self.key)
