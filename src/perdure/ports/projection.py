"""Which executions exist, where are they, and what waits for a person? The projection answers.

It is a view of the control log, derived and disposable: nobody writes to it but who applies the
log, and it may be made anew at any time. Every read applies first what the log has more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

import msgspec

from perdure.model.execution import ErrorInfo, ExecutionStatus, Page
from perdure.model.provenance import Actor

ReviewStatus = Literal["pending", "decided", "expired"]
EnqueuedKind = Literal["delegate", "run_step"]


class ExecutionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as the control log tells it.

    Where the beginning of an execution is no longer in the log, what only its beginning tells is
    ``None``, and `created_at` is the instant of its first entry that is.

    Attributes:
        eid: its id.
        workflow: the name of the workflow.
        version: its version.
        status: where it is.
        queue: the queue its tasks stand on.
        dispatch_key: the key it was started under, or ``None``.
        parent: the execution that started it, or ``None``.
        created_at: when it was created.
        started_at: when a worker first ran it, or ``None``.
        updated_at: when its status last changed.
        ended_at: when it ended, or ``None``.
        suspended_on: what it waits on, while it is suspended.
        blocked: why it waits for an operator, or ``None``.
        error: the type and text of the error that ended it, or ``None``.
        continued_as: the execution that goes on in its place, or ``None``.
        archived_at: when it was archived, or ``None``.
    """

    eid: UUID
    workflow: str | None
    version: str | None
    status: ExecutionStatus
    queue: str | None
    dispatch_key: str | None
    parent: UUID | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    ended_at: datetime | None
    suspended_on: tuple[str, ...]
    blocked: str | None
    error: ErrorInfo | None
    continued_as: UUID | None
    archived_at: datetime | None


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person.

    Attributes:
        rid: its id.
        eid: the execution that asks.
        fid: the frame that announced it.
        queue: the queue of the inbox that it stands on.
        payload: what is to be looked at.
        schema: the JSON Schema of the answer's data, or ``None``.
        deadline: when it expires, or ``None``.
        requested_at: when it was announced.
        status: ``pending``, ``decided`` or ``expired``; also expired is what was still pending
            when its execution ended.
        verdict: the decision, or ``None``.
        data: what came with the decision.
        decided_by: who decided, or ``None``.
        decided_at: when, or ``None``.
        task_id: the task on the queue, which whoever decides withdraws.
        reply_channel: the channel on which the workflow waits for the decision.
    """

    rid: str
    eid: UUID
    fid: str
    queue: str
    payload: Any
    schema: Any
    deadline: datetime | None
    requested_at: datetime
    status: ReviewStatus
    verdict: str | None
    data: Any
    decided_by: Actor | None
    decided_at: datetime | None
    task_id: str = ""
    reply_channel: str = ""


class Announcement(msgspec.Struct, frozen=True):
    """What a function announced: `type` as it was called there, `at` when."""

    position: int
    eid: UUID
    fid: str
    type: str
    payload: Any
    at: datetime


class EnqueuedTask(msgspec.Struct, frozen=True):
    """A task that a frame enqueued, and the queue that it went to; `at` when."""

    task_id: str
    queue: str
    kind: EnqueuedKind
    eid: UUID
    fid: str
    at: datetime


class Projection(Protocol):
    """What lists, dashboards and the inbox are read from.

    Every method may raise `StoreUnavailable`, if the store cannot be read or this was closed.
    `limit` is between 1 and 500; a `cursor` is where the page before ended. A value out of range
    raises `InvalidArgument`.
    """

    async def refresh(self) -> int:
        """Apply the control log to its end, and give the position of its last entry."""

    async def wait_for(self, position: int, *, timeout: float = 2.0) -> bool:
        """Wait until the log is applied up to a position, at most `timeout` seconds.

        Returns:
            Whether it is. One who reads after this sees the write that had that position.
        """

    async def executions(
        self,
        *,
        status: ExecutionStatus | str | Iterable[ExecutionStatus | str] | None = None,
        workflow: str | None = None,
        parent: UUID | str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ExecutionSummary]:
        """List executions, by their last change, the latest first.

        Pages that follow each other show every execution once that does not change meanwhile.

        Args:
            status: one status or several.
            workflow: the name of the workflow.
            parent: the execution whose children they are.
            text: a part of the workflow's name or of the dispatch key.
            since: created at or after this aware instant.
            until: created before this aware instant.
            limit: at most so many.
            cursor: where the page before ended.
        """

    async def counts(self) -> dict[str, int]:
        """Count the executions by status; a status that none has is not there."""

    async def reviews(
        self,
        *,
        queue: str | None = None,
        status: ReviewStatus | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Review]:
        """List reviews, oldest first.

        Args:
            queue: the queue that they stand on.
            status: ``pending``, ``decided`` or ``expired``; any by default.
            limit: at most so many.
            cursor: where the page before ended.
        """

    async def review(self, rid: str) -> Review | None:
        """Read one review; ``None`` if there is none with this id."""

    async def announcements(
        self,
        *,
        type: str | None = None,  # noqa: A002 - what it is called everywhere
        eid: UUID | str | None = None,
        after: int = 0,
        limit: int = 50,
    ) -> list[Announcement]:
        """List what functions announced, oldest first.

        Args:
            type: the type, as the function announced it.
            eid: the execution.
            after: begin behind this position.
            limit: at most so many.
        """

    async def tasks(self, eid: UUID | str) -> list[EnqueuedTask]:
        """List the tasks that an execution enqueued, oldest first; of an id the last one."""

    async def children(self, eid: UUID | str) -> list[ExecutionSummary]:
        """List the executions that an execution started, oldest first."""

    async def rebuild(self) -> None:
        """Forget everything, and apply the log from its beginning."""

    async def close(self) -> None:
        """Close it. Closing twice is fine."""
