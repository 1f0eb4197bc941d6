"""What does the engine need of a store? One protocol, in the roles Commits, Queues and Reads.

Methods are domain verbs; their docstrings state the rule. All are called from one event loop.
Every method may raise `StoreUnavailable`: then nothing of the call was applied, or the call says
how its fate is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.model.entry import PackedMessage
from perdure.model.execution import Execution, ExecutionRow, ExecutionStatus, LeaseInfo, Page
from perdure.model.provenance import Actor, Site
from perdure.model.queue_task import LeasedTask, QueueDepth, QueueTask, TaskKind
from perdure.ports.commands import CreateExecution, Outcome, Transition

NOTHING_KEPT: Mapping[UUID, int] = MappingProxyType({})
NO_CHANNELS: Mapping[str, int] = MappingProxyType({})


class Session(msgspec.Struct, frozen=True):
    """A session of an engine: its id, and the interned id of its site."""

    session: int
    site: int


class SessionGone(Exception):
    """The session has expired or was closed; open a new one. Nothing of the call was applied."""


class OutOfTime(Exception):
    """A function took longer than its transaction may; nothing of it was applied."""


class Owned(msgspec.Struct, frozen=True):
    """One execution that a session owns."""

    eid: UUID
    epoch: int
    wake: int


class Beat(msgspec.Struct, frozen=True):
    """The answer to a beat: what the session owns, with the wake counters."""

    owned: tuple[Owned, ...]


class SessionBeat(msgspec.Struct, frozen=True):
    """A live session as a sweeper sees it: its beat number and its time to live in seconds."""

    session: int
    beat: int
    ttl: float


class LeaseBeat(msgspec.Struct, frozen=True):
    """The lease of a task as a sweeper sees it: its renewal, and its time to live in seconds."""

    task: int
    epoch: int
    renewal: int
    ttl: float


class JournalRow(msgspec.Struct, frozen=True):
    """One row of a journal: entries numbered from `seq`, packed in `body`."""

    seq: int
    epoch: int
    site: int
    body: bytes


class CancelRequest(msgspec.Struct, frozen=True):
    """Who asked an execution to cancel, and why."""

    by: Actor
    reason: str | None = None


class Mail(msgspec.Struct, frozen=True):
    """What has reached an execution, read together.

    Attributes:
        wake: its wake counter.
        messages: its unread messages.
        cancel: the request to cancel it, if there is one.
        heard: messages of the global channels that were asked for, oldest first.
    """

    wake: int
    messages: tuple[PackedMessage, ...]
    cancel: CancelRequest | None = None
    heard: tuple[PackedMessage, ...] = ()


class Claimed(msgspec.Struct, frozen=True):
    """An execution that a dequeue made its session the owner of.

    Attributes:
        kind: the task that led to it.
        record: the execution's record.
        epoch: the epoch under which it is owned now.
        journal: its whole journal, the fence entry of this epoch included; only that entry if the
            execution was kept (see `dequeue`).
        kept: whether the execution was kept.
        mail: its wake counter and unread messages, read in the same transaction.
    """

    kind: TaskKind
    record: Execution
    epoch: int
    journal: tuple[JournalRow, ...]
    mail: Mail
    kept: bool = False


class Committed(msgspec.Struct, frozen=True):
    """The outcomes of a batch, and what it stirred.

    Attributes:
        outcomes: one per transition, in order.
        enqueued: whether a task became ready.
        woken: owned executions whose wake counter rose.
        closed: executions that ended.
        heard: global channels that got a message.
    """

    outcomes: tuple[Outcome, ...]
    enqueued: bool = False
    woken: tuple[UUID, ...] = ()
    closed: tuple[UUID, ...] = ()
    heard: tuple[str, ...] = ()


class ControlEntry(msgspec.Struct, frozen=True):
    """One entry of the control log; `at` in microseconds, `body` the facts as JSON."""

    position: int
    eid: UUID
    type: str
    at: int
    epoch: int
    body: bytes


class MissingWorkflow(msgspec.Struct, frozen=True):
    """A workflow version for which ready tasks wait."""

    workflow: str
    version: str


class StoreInfo(msgspec.Struct, frozen=True):
    """What a store is and holds, for people."""

    url: str
    kind: str
    schema_version: int
    executions: dict[str, int]
    ready_tasks: int
    delayed_tasks: int
    timers: int
    sessions: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionQuery:
    """Which executions a list shows. `since` and `until` bound the creation, in microseconds."""

    status: frozenset[ExecutionStatus] | None = None
    workflow: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    text: str | None = None
    parent: UUID | None = None
    since: int | None = None
    until: int | None = None
    limit: int = 50
    cursor: str | None = None


class Commits(Protocol):
    """Durable changes."""

    async def open_session(self, site: Site, ttl: float | None, now: int) -> Session:
        """Open a session that lives `ttl` seconds between beats.

        Without a ttl it owns nothing and never beats: it only names batches.
        """

    async def close_session(self, session: int) -> None:
        """End a session that owns nothing. A session that is gone is fine."""

    async def commit(
        self, session: int, batch_no: int, transitions: Sequence[Transition]
    ) -> Committed:
        """Apply transitions in one transaction, each whole or not at all, and say how each went.

        The outcomes are stored under ``(session, batch_no)`` in the same transaction: a repeat of
        the last batch number applies nothing and gives the outcomes stored then. So after
        `StoreUnavailable` the same batch is repeated, never guessed at.

        Raises:
            SessionGone: if the session is not live.
        """

    async def transact(self, run: Callable[[Any], Transition], timeout: float) -> Outcome:
        """Let a user's function write in the transaction that applies a transition.

        `run` is called, in another thread where there is one, with a connection of the database,
        and gives the transition. It cannot end the transaction, nor change what is ours. If it
        raises, takes longer than `timeout` seconds, or the transition is refused, nothing is
        applied.

        Raises:
            OutOfTime: if it took too long.
            StoreUnavailable: if the store cannot write. Nothing was applied.
            BaseException: whatever `run` raised.
        """

    async def create_in(self, connection: object, creation: CreateExecution) -> Outcome:
        """Create an execution in the transaction of the caller's own connection.

        It exists if and only if the caller commits. A transaction is begun if none is open.

        Raises:
            InvalidArgument: if this is no connection to the database of this store, or the store
                cannot do that. Nothing was written.
        """

    async def beat(self, session: int) -> Beat:
        """Renew a session: count its beat up, and tell what it owns.

        Raises:
            SessionGone: if the session is not live.
        """

    def own_beat(self) -> Callable[[int], Beat] | None:
        """Give a blocking `beat` on a connection of its own, for a thread.

        ``None`` if the store cannot have one.
        """


class Queues(Protocol):
    """Taking work."""

    async def dequeue(
        self,
        session: int,
        queues: Sequence[str],
        known: frozenset[tuple[str, str]],
        limit: int,
        now: int,
        *,
        kept: Mapping[UUID, int] = NOTHING_KEPT,
    ) -> list[Claimed]:
        """Take up to `limit` ready tasks, in the order of the queues, then priority, then age.

        For each, in one transaction: the task is deleted, the session becomes the owner
        (epoch + 1), and the fence entry, ``execution.started`` or ``execution.resumed``, is
        appended with its control twin; ``execution.migrated`` stands before it if an operator gave
        the execution to another version meanwhile. `kept` names executions that this worker has
        kept since it suspended them, with the epoch of then: if nobody acquired one since, its
        journal is not read again. Only workflows in `known` (name, version) are taken; other
        tasks stay. The task of an execution that a live session owns, that has ended or does not
        exist is dropped.

        If the answer is lost, the session owns executions that nobody runs: its next beat shows
        them, and they are released.

        Raises:
            SessionGone: if the session is not live.
        """

    async def missing(
        self, queues: Sequence[str], known: frozenset[tuple[str, str]]
    ) -> list[MissingWorkflow]:
        """Tell for which workflow versions outside `known` ready tasks wait on these queues."""

    async def has_steps(self, queues: Sequence[str], steps: Sequence[str]) -> bool:
        """Tell whether a task is ready on these queues that runs one of these steps."""

    async def has_delegated(self, queues: Sequence[str]) -> bool:
        """Tell whether a delegated task is ready on these queues."""

    async def held(self, holder: str) -> list[LeasedTask]:
        """List the tasks that somebody holds, oldest first."""

    async def leases(self) -> list[LeaseBeat]:
        """List the leases of tasks that are to be renewed; a sweeper watches them."""

    async def queue_tasks(self, queue: str, limit: int) -> list[QueueTask]:
        """List the tasks of a queue, ready, delayed and leased, by priority, then age."""

    async def queue_depth(self, queue: str) -> QueueDepth:
        """Count the tasks of a queue by what they are: ready, delayed or leased."""


class Reads(Protocol):
    """Looking, without a change. Each answer is one consistent view."""

    async def record(self, eid: UUID) -> Execution | None:
        """Read the record of an execution."""

    async def execution(self, eid: UUID) -> ExecutionRow | None:
        """Read an execution as it is now."""

    async def executions(self, query: ExecutionQuery) -> Page[ExecutionRow]:
        """Read a page of executions, newest first.

        Raises:
            InvalidArgument: if the cursor is none that a page gave.
        """

    async def ended(self, eids: Sequence[UUID]) -> dict[UUID, ExecutionRow | None]:
        """Read those of these executions that have ended; ``None`` for one that does not exist."""

    async def journal(self, eid: UUID, after: int = 0) -> list[JournalRow]:
        """Read the rows of a journal that hold an entry after number `after`."""

    async def sites(self, ids: Sequence[int]) -> dict[int, Site]:
        """Read interned sites."""

    async def mail(self, eid: UUID, channels: Mapping[str, int] = NO_CHANNELS) -> Mail | None:
        """Read what has reached an execution, together.

        `channels` names global channels with the number up to which each is known. Of a channel
        with many new messages only the first are read.
        """

    async def items(self, eid: UUID, stream: str, after: int, limit: int) -> list[tuple[int, Raw]]:
        """Read items of a stream of an execution, numbered above `after`: numbers and JSON."""

    async def wakes(self, eids: Sequence[UUID]) -> dict[UUID, int]:
        """Read the wake counters of executions."""

    async def lease(self, eid: UUID) -> LeaseInfo | None:
        """Tell who owns an execution."""

    async def sessions(self) -> list[SessionBeat]:
        """List the live sessions that beat."""

    async def next_due(self) -> int | None:
        """Give the earliest due instant of a timer, a delayed task or a timeout, or ``None``."""

    async def control(self, after: int = 0, limit: int = 1000) -> list[ControlEntry]:
        """Read the control log after a position."""

    async def control_end(self) -> int:
        """Give the position of the last entry of the control log; 0 if it is empty."""

    async def changed(self) -> bool:
        """Tell whether somebody else may have committed since the last call."""

    async def info(self) -> StoreInfo:
        """Tell what the store is and holds."""


class Store(Commits, Queues, Reads, Protocol):
    """Where everything durable lands."""

    url: str
    shared: bool
    """Whether other processes may write to it, so that `changed` is worth asking."""

    async def close(self) -> None:
        """Close every connection. Closing twice is fine."""
