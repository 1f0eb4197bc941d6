"""What is an execution? Its record, its status, and the shapes in which people read it."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.errors import InvalidArgument
from perdure.model.ids import is_text
from perdure.model.instants import duration_us, to_us
from perdure.model.provenance import Actor

T = TypeVar("T")

PRIORITY_MAX = 1_000_000


class ExecutionStatus(StrEnum):
    """Where an execution is. The last four are terminal: nothing leaves them."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"

    @property
    def terminal(self) -> bool:
        """Whether the execution has ended."""
        return self in _TERMINAL


OPEN = frozenset({ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.SUSPENDED})
_TERMINAL = frozenset(ExecutionStatus) - OPEN


class StartOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an execution runs; fixed for its life.

    Attributes:
        priority: lower runs first, between 0 and 1,000,000.
        baggage: small text values that the function reads as ``ctx.baggage``.
        tags: text values to find the execution by.
        not_before: an aware instant before which it does not start, or ``None``.
        timeout: how long after its start it is terminated unless it has ended, a timedelta or
            seconds; its waits and retries count. Each execution of a chain of `continue_as` has
            this time for itself.

    Example:
        ``StartOptions(priority=10, tags={"customer": "acme"})``
    """

    priority: int = 100
    baggage: dict[str, str] = {}
    tags: dict[str, str] = {}
    not_before: datetime | None = None
    timeout: timedelta | float | None = None

    def check(self) -> None:
        """Refuse values out of range.

        Raises:
            InvalidArgument: naming the option.
        """
        priority = self.priority
        number = isinstance(priority, int) and not isinstance(priority, bool)
        if not number or not 0 <= priority <= PRIORITY_MAX:
            message = f"option priority is {priority!r}; it is between 0 and {PRIORITY_MAX:,}"
            raise InvalidArgument(message)
        for name, values in (("baggage", self.baggage), ("tags", self.tags)):
            text = isinstance(values, dict) and all(
                is_text(part) for pair in values.items() for part in pair
            )
            if not text:
                message = f"option {name} is {values!r}; it maps text to text"
                raise InvalidArgument(message)
        if self.not_before is not None:
            to_us(self.not_before, "option not_before")
        if self.timeout is not None:
            duration_us("option timeout", self.timeout, allow_zero=False)

    def expiry_us(self, created_at: int) -> int | None:
        """Give when an execution created at an instant is terminated, in microseconds."""
        if self.timeout is None:
            return None
        begin = created_at if self.not_before is None else max(created_at, to_us(self.not_before))
        return begin + duration_us("option timeout", self.timeout)


class FrameRef(NamedTuple):
    """One frame of one execution, for example the one that started a child."""

    eid: UUID
    fid: str


OnParentCancel = Literal["cancel", "abandon"]


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an execution: what was asked for, unchanged for its life.

    Attributes:
        eid: its id: a UUIDv7, of a child a UUIDv5 of the frame that started it.
        workflow: the name of the workflow.
        version: the version it was started with.
        args: the arguments as JSON: ``[[positional…], {"name": value…}]``.
        seed: 128 random bits from which ``ctx.random`` and ``ctx.uuid`` are derived.
        queue: the queue its tasks stand on.
        created_by: who started it.
        created_at: when, in microseconds since the epoch.
        options: how it runs.
        dispatch_key: the caller's key that makes a second start a no-op, or ``None``.
        parent: the frame that started it and is told of its end, or ``None``.
        on_parent_cancel: what becomes of it when its parent is cancelled, terminated or ends.
    """

    eid: UUID
    workflow: str
    version: str
    args: Raw
    seed: bytes
    queue: str
    created_by: Actor
    created_at: int
    options: StartOptions = StartOptions()
    dispatch_key: str | None = None
    parent: FrameRef | None = None
    on_parent_cancel: OnParentCancel = "cancel"


class ErrorInfo(NamedTuple):
    """The class name and the text of the error that ended an execution."""

    type: str
    message: str


class ExecutionRow(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as a reader sees it now.

    Attributes:
        eid: its id.
        kind: ``code``: a workflow function.
        workflow: the name of the workflow.
        version: its version.
        status: where it is.
        queue: the queue its tasks stand on.
        args: the arguments: ``[[positional…], {"name": value…}]``.
        dispatch_key: the key it was started under, or ``None``.
        created_at: when it was created.
        created_by: who started it.
        started_at: when a worker first ran it, or ``None``.
        ended_at: when it ended, or ``None``.
        updated_at: when its status last changed.
        epoch: how often it was acquired.
        worker_id: the worker that owns it now, or ``None``.
        suspended_on: what it waits on: ``channel:…``, ``timer:…``, ``child:…`` or ``operator``;
            of very many conditions the first hundred.
        blocked: why it waits for an operator, or ``None``.
        result: what the function returned, once completed.
        error: the type and text of the error that ended it, or ``None``.
        tags: the tags it was started with.
        parent: the frame that started it, or ``None``.
        continued_as: the execution that goes on in its place, or ``None``.
        stopped_by: who asked for its cancel or terminated it, or ``None``.
        stop_reason: why, or ``None``.
    """

    eid: UUID
    kind: str
    workflow: str
    version: str
    status: ExecutionStatus
    queue: str
    args: Any
    dispatch_key: str | None
    created_at: datetime
    created_by: Actor
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime
    epoch: int
    worker_id: str | None
    suspended_on: tuple[str, ...]
    blocked: str | None
    result: Any
    error: ErrorInfo | None
    tags: dict[str, str]
    parent: FrameRef | None = None
    continued_as: UUID | None = None
    stopped_by: Actor | None = None
    stop_reason: str | None = None


class LeaseInfo(msgspec.Struct, frozen=True):
    """Who owns an execution: holder, epoch, deadline, and whether the lease is live.

    The deadline is when the session's last beat plus its time to live is over, by the clock of
    the holder; only a sweeper that has watched the beat decides that it has expired.
    """

    holder: str | None
    epoch: int
    deadline: datetime | None
    live: bool


class FrameNode(msgspec.Struct, frozen=True, kw_only=True):
    """One frame in the tree of an execution.

    Attributes:
        fid: its id, for example ``root/charge#0``.
        kind: ``root``, ``step``, ``child``, ``receive`` or ``sleep``.
        name: the last segment without number or key.
        status: ``running``, ``waiting``, ``completed``, ``failed``, ``abandoned``, ``cancelled`` or
            ``terminated``; the last three also of what was open when its execution ended, and a
            child that was open then is ``abandoned``: whether it lives on it says itself.
        attempts: how many attempts began.
        started_at: when the first attempt began.
        ended_at: when its outcome was appended, or ``None``.
        waits_on: what it waits on, or ``None``.
        worker_id: who ran the last attempt of a step, or ``None``.
        value: the memo, the payload of the message it received, or the result of the child.
        error: the type and text of the last failure, or ``None``.
        children: the frames below it, in the order in which they began.
    """

    fid: str
    kind: str
    name: str
    status: str
    attempts: int
    started_at: datetime | None
    ended_at: datetime | None
    waits_on: str | None
    value: Any
    error: ErrorInfo | None
    worker_id: str | None = None
    children: tuple[FrameNode, ...] = ()


class StartResult(NamedTuple):
    """The id of the execution, and whether the dispatch key found one that exists already."""

    eid: UUID
    deduplicated: bool


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list, and the cursor of the next one (``None`` at the end)."""

    items: tuple[T, ...]
    cursor: str | None = None
