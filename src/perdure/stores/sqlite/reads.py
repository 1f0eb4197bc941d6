"""What do the tables say? Queries over one connection, and the values made of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.errors import InvalidArgument
from perdure.model.entry import PackedMessage
from perdure.model.execution import (
    ErrorInfo,
    Execution,
    ExecutionRow,
    ExecutionStatus,
    FrameRef,
    LeaseInfo,
    Page,
    StartOptions,
)
from perdure.model.ids import task_id
from perdure.model.instants import from_us
from perdure.model.message import stream_channel
from perdure.model.provenance import Actor, Site
from perdure.model.queue_task import LeasedTask, QueueDepth, QueueTask, TaskState
from perdure.ports.store import (
    CancelRequest,
    ControlEntry,
    ExecutionQuery,
    JournalRow,
    LeaseBeat,
    Mail,
    MissingWorkflow,
    SessionBeat,
    StoreInfo,
)
from perdure.stores.sqlite.batch import GLOBAL
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.statements import SCHEMA_VERSION, SQL
from perdure.stores.sqlite.tasks import leased_task

_decode_options = msgspec.json.Decoder(StartOptions).decode
_decode_actor = msgspec.json.Decoder(Actor).decode
_decode_site = msgspec.json.Decoder(Site).decode
_decode_on = msgspec.json.Decoder(tuple[str, ...]).decode
decode = msgspec.json.decode

AFTER_ALL = (2**62, b"")  # later than any execution
HEARD_MAX = 100


class Reads:
    """Reads over one connection."""

    def __init__(self, connection: Connection, url: str, kind: str) -> None:
        self._execute = connection.execute
        self._url = url
        self._kind = kind
        self._actors: dict[int, Actor] = {}

    # -- one execution -----------------------------------------------------------------------

    def record(self, eid: UUID) -> Execution | None:
        """Read the record of an execution."""
        row = self._execute(SQL["record"], (eid.bytes,)).fetchone()
        return None if row is None else self.make_record(eid.bytes, row)

    def make_record(self, eid: bytes, row: Sequence[Any]) -> Execution:
        """Make a record of the first columns that `record` and `ready` give."""
        workflow, version, args, seed, queue, created_by, created_at, options, key = row[:9]
        parent, parent_fid, on_parent_cancel = row[9:12]
        return Execution(
            eid=UUID(bytes=eid),
            workflow=workflow,
            version=version,
            args=Raw(args),
            seed=seed,
            queue=queue,
            created_by=self._actor(created_by),
            created_at=created_at,
            options=_decode_options(options),
            dispatch_key=key,
            parent=None if parent is None else FrameRef(UUID(bytes=parent), parent_fid),
            on_parent_cancel=on_parent_cancel,
        )

    def execution(self, eid: UUID) -> ExecutionRow | None:
        """Read an execution as it is now."""
        row = self._execute(SQL["row"], (eid.bytes,)).fetchone()
        return None if row is None else self._row(row)

    def executions(self, query: ExecutionQuery) -> Page[ExecutionRow]:
        """Read a page of executions, newest first."""
        created_at, eid = AFTER_ALL if query.cursor is None else _read_cursor(query.cursor)
        rows = self._execute(
            SQL["rows"],
            {
                "created_at": created_at,
                "eid": eid,
                "status": None if query.status is None else make_json(sorted(query.status)),
                "workflow": query.workflow,
                "parent": None if query.parent is None else query.parent.bytes,
                "since": query.since,
                "until": query.until,
                "tags": make_json(query.tags),
                "text": query.text,
                "limit": query.limit + 1,
            },
        ).fetchall()
        page = rows[: query.limit]
        cursor = f"{page[-1][7]}-{page[-1][0].hex()}" if len(rows) > query.limit else None
        return Page(tuple(self._row(row) for row in page), cursor)

    def _row(self, row: Sequence[Any]) -> ExecutionRow:
        started_at, ended_at, site, on = row[9], row[10], row[13], row[14]
        parent, parent_fid, continued_as, stop_by, stop_reason = row[20:25]
        return ExecutionRow(
            eid=UUID(bytes=row[0]),
            kind="code",
            workflow=row[1],
            version=row[2],
            status=ExecutionStatus(row[3]),
            queue=row[4],
            args=decode(row[5]),
            dispatch_key=row[6],
            created_at=from_us(row[7]),
            created_by=self._actor(row[8]),
            started_at=None if started_at is None else from_us(started_at),
            ended_at=None if ended_at is None else from_us(ended_at),
            updated_at=from_us(row[11]),
            epoch=row[12],
            worker_id=None if site is None else _decode_site(site).worker_id,
            suspended_on=() if on is None else _decode_on(on),
            blocked=row[15],
            result=None if row[16] is None else decode(row[16]),
            error=None if row[17] is None else ErrorInfo(row[17], row[18]),
            tags=_decode_options(row[19]).tags,
            parent=None if parent is None else FrameRef(UUID(bytes=parent), parent_fid),
            continued_as=None if continued_as is None else UUID(bytes=continued_as),
            stopped_by=None if stop_by is None else self._actor(stop_by),
            stop_reason=stop_reason,
        )

    def ended(self, eids: Sequence[UUID]) -> dict[UUID, ExecutionRow | None]:
        """Read those of these executions that have ended; ``None`` for one that does not exist."""
        return {
            eid: self.execution(eid)
            for eid in eids
            if self._execute(SQL["is_open"], (eid.bytes,)).fetchone() is None
        }

    def lease(self, eid: UUID) -> LeaseInfo | None:
        """Tell who owns an execution."""
        row = self._execute(SQL["lease"], (eid.bytes,)).fetchone()
        if row is None:
            return None
        epoch, owner, live, ttl, beat_at, site = row
        if owner is None or not live:
            return LeaseInfo(None, epoch, None, live=False)
        holder = _decode_site(site).worker_id
        deadline = None if ttl is None else from_us(beat_at + int(ttl * 1e6))
        return LeaseInfo(holder, epoch, deadline, live=True)

    # -- journal and messages ----------------------------------------------------------------

    def journal(self, eid: UUID, after: int = 0) -> list[JournalRow]:
        """Read the rows of a journal that hold an entry after number `after`."""
        return self.journal_rows(eid.bytes, after)

    def journal_rows(self, eid: bytes, after: int) -> list[JournalRow]:
        """Read the same by the bytes of the id."""
        rows = self._execute(SQL["journal"], {"eid": eid, "after": after})
        return [JournalRow(*row) for row in rows]

    def tail(self, eid: bytes) -> int:
        """Give the number of the last entry of a journal; 0 if it is empty."""
        row = self._execute(SQL["tail"], (eid,)).fetchone()
        tail: int = 0 if row is None else row[0]
        return tail

    def mail(self, eid: UUID, channels: Mapping[str, int]) -> Mail | None:
        """Read what has reached an execution."""
        row = self._execute(SQL["wake_of"], (eid.bytes,)).fetchone()
        if row is None:
            return None
        heard: list[PackedMessage] = []
        for channel, after in channels.items():
            heard += self._messages("heard", (GLOBAL, channel, after, HEARD_MAX))
        return self.make_mail(eid.bytes, row, heard)

    def make_mail(
        self,
        eid: bytes,
        row: tuple[int, int | None, str | None],
        heard: Iterable[PackedMessage] = (),
    ) -> Mail:
        """Read the unread messages, and make mail of them; nothing is unread that never woke.

        `row` holds the wake counter, and who asked to cancel and why.
        """
        wake, stop_by, stop_reason = row
        unread = self._messages("unread", (eid,)) if wake else []
        cancel = None if stop_by is None else CancelRequest(self._actor(stop_by), stop_reason)
        return Mail(wake, tuple(unread), cancel, tuple(heard))

    def _messages(self, statement: str, key: tuple[object, ...]) -> list[PackedMessage]:
        return [
            PackedMessage(seq, channel, Raw(payload), self._actor(by), at, correlation)
            for seq, channel, payload, by, at, correlation in self._execute(SQL[statement], key)
        ]

    def items(self, eid: UUID, stream: str, after: int, limit: int) -> list[tuple[int, Raw]]:
        """Read items of a stream."""
        key = (eid.bytes, stream_channel(stream), after, limit)
        return [(seq, Raw(payload)) for seq, payload in self._execute(SQL["items"], key)]

    def wakes(self, eids: Sequence[UUID]) -> dict[UUID, int]:
        """Read the wake counters of executions."""
        found: dict[UUID, int] = {}
        for eid in eids:
            row = self._execute(SQL["wake_of"], (eid.bytes,)).fetchone()
            if row is not None:
                found[eid] = row[0]
        return found

    # -- the rest ----------------------------------------------------------------------------

    def missing(
        self, queues: Sequence[str], known: frozenset[tuple[str, str]]
    ) -> list[MissingWorkflow]:
        """Tell for which workflow versions outside `known` ready tasks wait."""
        rows = self._execute(SQL["missing"], (make_json(queues), known_json(known)))
        return [MissingWorkflow(workflow, version) for workflow, version in rows]

    def has_steps(self, queues: Sequence[str], steps: Sequence[str]) -> bool:
        """Tell whether a task is ready that runs one of these steps."""
        row = self._execute(SQL["has_steps"], (make_json(queues), make_json(steps))).fetchone()
        return bool(row[0])

    def has_delegated(self, queues: Sequence[str]) -> bool:
        """Tell whether a delegated task is ready on these queues."""
        return bool(self._execute(SQL["has_delegated"], (make_json(queues),)).fetchone()[0])

    def held(self, holder: str) -> list[LeasedTask]:
        """List the tasks that somebody holds."""
        return [leased_task(row) for row in self._execute(SQL["held"], (holder,))]

    def leases(self) -> list[LeaseBeat]:
        """List the leases of tasks that are to be renewed."""
        return [LeaseBeat(*row) for row in self._execute(SQL["leases"])]

    def queue_tasks(self, queue: str, limit: int) -> list[QueueTask]:
        """List the tasks of a queue."""
        return [_queue_task(row) for row in self._execute(SQL["queue_tasks"], (queue, limit))]

    def queue_depth(self, queue: str) -> QueueDepth:
        """Count the tasks of a queue."""
        return QueueDepth(*self._execute(SQL["queue_depth"], (queue,)).fetchone())

    def sites(self, ids: Sequence[int]) -> dict[int, Site]:
        """Read interned sites."""
        found: dict[int, Site] = {}
        for one in ids:
            row = self._execute(SQL["site"], (one,)).fetchone()
            if row is not None:
                found[one] = _decode_site(row[0])
        return found

    def sessions(self) -> list[SessionBeat]:
        """List the live sessions that beat."""
        return [SessionBeat(*row) for row in self._execute(SQL["sessions"])]

    def next_due(self) -> int | None:
        """Give the earliest due instant of a timer, a delayed task or a timeout."""
        dues = [self._count(name) for name in ("next_timer", "next_delayed", "next_expiry")]
        return min((due for due in dues if due is not None), default=None)

    def control(self, after: int = 0, limit: int = 1000) -> list[ControlEntry]:
        """Read the control log after a position."""
        return [
            ControlEntry(position, UUID(bytes=eid), kind, at, epoch, body)
            for position, eid, kind, at, epoch, body in self._execute(
                SQL["control_after"], (after, limit)
            )
        ]

    def control_end(self) -> int:
        """Give the position of the last entry of the control log; 0 if it is empty."""
        return self._count("control_end") or 0

    def info(self) -> StoreInfo:
        """Tell what the store is and holds."""
        pages = self._execute("PRAGMA page_count").fetchone()[0]
        page_size = self._execute("PRAGMA page_size").fetchone()[0]
        return StoreInfo(
            url=self._url,
            kind=self._kind,
            schema_version=SCHEMA_VERSION,
            executions=dict(self._execute(SQL["count_executions"]).fetchall()),
            ready_tasks=self._count("count_ready") or 0,
            delayed_tasks=self._count("count_delayed") or 0,
            timers=self._count("count_timers") or 0,
            sessions=self._count("count_sessions") or 0,
            size_bytes=pages * page_size,
        )

    def _count(self, name: str) -> int | None:
        number: int | None = self._execute(SQL[name]).fetchone()[0]
        return number

    def _actor(self, number: int) -> Actor:
        known = self._actors.get(number)
        if known is None:
            known = _decode_actor(self._execute(SQL["actor"], (number,)).fetchone()[0])
            self._actors[number] = known
        return known


def _queue_task(row: Sequence[Any]) -> QueueTask:
    eid, kind, key, queue, fid, reason, not_before, payload, enqueued_at, holder = row
    state: TaskState = "ready" if holder is None else "leased"
    if not_before is not None:
        state = "delayed"
    return QueueTask(
        task_id=task_id(kind, UUID(bytes=eid), key),
        queue=queue,
        kind=kind,
        eid=UUID(bytes=eid),
        reason=reason,
        enqueued_at=from_us(enqueued_at),
        state=state,
        fid=fid,
        key=key,
        not_before=None if not_before is None else from_us(not_before),
        payload=None if payload is None else decode(payload),
        holder=holder,
    )


def known_json(known: frozenset[tuple[str, str]]) -> str:
    """Give pairs of workflow and version as the statements read them."""
    return make_json(sorted(known))


def make_json(value: object) -> str:
    """Give a value as the statements read it with ``json_each``."""
    return msgspec.json.encode(value).decode()


def _read_cursor(cursor: str) -> tuple[int, bytes]:
    try:
        created_at, eid = cursor.split("-")
        return int(created_at), UUID(hex=eid).bytes
    except (ValueError, AttributeError, TypeError):
        message = f"{cursor!r} is no cursor; pass the one that the page before gave"
        raise InvalidArgument(message) from None
