"""What does an entry of the control log change? One function for each type, over one connection.

The tables are a fold of the log: what an entry does depends on the entries before it and on nothing
else. An unknown type is skipped, and so is whatever does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from sqlite3 import Connection
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.errors import InvalidArgument
from perdure.model.instants import to_us
from perdure.model.provenance import Actor
from perdure.ports.commands import stopped
from perdure.ports.projection import EnqueuedKind
from perdure.ports.store import ControlEntry
from perdure.projection.statements import SQL

ANNOUNCE = "announce."
NULL = Raw(b"null")

Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Progress(NamedTuple):
    """The last entry that is applied: its position, and what tells it from others."""

    position: int
    eid: bytes
    at: int


def progress(connection: Connection) -> Progress:
    """Tell how far the log is applied."""
    return Progress(*connection.execute(SQL["progress"]).fetchone())


def apply(connection: Connection, before: Progress, entries: Sequence[ControlEntry]) -> Progress:
    """Apply the entries that follow `before`, unless somebody else has; tell how far it is now."""
    last = entries[-1]
    after = Progress(last.position, last.eid.bytes, last.at)
    if _advance(connection, before, after):
        for entry in entries:
            _apply(connection, entry)
    return progress(connection)


def forget(connection: Connection, before: Progress) -> Progress:
    """Forget everything, unless somebody else has gone on; tell how far it is now."""
    if _advance(connection, before, Progress(0, b"", 0)):
        for table in ("executions", "reviews", "announcements", "tasks"):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - the names stand here
    return progress(connection)


def _advance(connection: Connection, before: Progress, after: Progress) -> bool:
    return connection.execute(SQL["advance"], (*after, *before)).rowcount > 0


def _apply(connection: Connection, entry: ControlEntry) -> None:
    function = _APPLY.get(entry.type)
    try:
        if function is not None:
            function(connection, entry)
        elif entry.type.startswith(ANNOUNCE):
            _announce(connection, entry)
    except (msgspec.MsgspecError, InvalidArgument):  # its facts do not fit
        return


# -- executions ------------------------------------------------------------------------------


class _Created(msgspec.Struct):
    workflow: str
    version: str
    queue: str
    key: str | None = None
    parent: UUID | None = None


class _Changed(msgspec.Struct):
    """What an execution's entries of the other types tell."""

    on: tuple[str, ...] = ()
    reason: str | None = None
    by: Actor | None = None
    error_type: str | None = None
    message: str | None = None
    continued_as: UUID | None = None


class _Migrated(msgspec.Struct):
    version: str


def _create(connection: Connection, entry: ControlEntry) -> None:
    facts = _read_created(entry.body)
    connection.execute(
        SQL["create"],
        {
            "eid": entry.eid.bytes,
            "workflow": facts.workflow,
            "version": facts.version,
            "queue": facts.queue,
            "dispatch_key": facts.key,
            "parent": None if facts.parent is None else facts.parent.bytes,
            "at": entry.at,
        },
    )


def _run(connection: Connection, entry: ControlEntry) -> None:
    _change(connection, entry, "running", started=entry.type == "execution.started")


def _suspend(connection: Connection, entry: ControlEntry) -> None:
    facts = _read_changed(entry.body)
    _change(connection, entry, "suspended", on=facts.on, blocked=facts.reason)


def _complete(connection: Connection, entry: ControlEntry) -> None:
    continued_as = _read_changed(entry.body).continued_as
    _end(connection, entry, "completed", continued_as=continued_as)


def _fail(connection: Connection, entry: ControlEntry) -> None:
    facts = _read_changed(entry.body)
    _end(connection, entry, "failed", error=(facts.error_type, facts.message or ""))


def _cancel(connection: Connection, entry: ControlEntry) -> None:
    _stop(connection, entry, "cancelled")


def _terminate(connection: Connection, entry: ControlEntry) -> None:
    _stop(connection, entry, "terminated")


def _stop(connection: Connection, entry: ControlEntry, status: Any) -> None:
    """An owner tells of the error that ended it, anybody else of who stopped it and why."""
    facts = _read_changed(entry.body)
    error = (facts.error_type, facts.message or "")
    if facts.by is not None:
        outcome = stopped(status, facts.by, facts.reason)
        error = (outcome.error_type, outcome.message or "")
    _end(connection, entry, status, error=error)


def _end(connection: Connection, entry: ControlEntry, status: str, **facts: Any) -> None:
    _change(connection, entry, status, ended=True, **facts)
    connection.execute(SQL["expire_all"], (entry.eid.bytes,))  # nobody waits for their answers


def _change(
    connection: Connection,
    entry: ControlEntry,
    status: str,
    *,
    started: bool = False,
    ended: bool = False,
    on: tuple[str, ...] = (),
    blocked: str | None = None,
    error: tuple[str | None, str] = (None, ""),
    continued_as: UUID | None = None,
) -> None:
    error_type, message = error
    connection.execute(
        SQL["change"],
        {
            "eid": entry.eid.bytes,
            "status": status,
            "at": entry.at,
            "started_at": entry.at if started else None,
            "ended_at": entry.at if ended else None,
            "suspended_on": msgspec.json.encode(on),
            "blocked": blocked,
            "error_type": error_type,
            "error_message": message,
            "continued_as": None if continued_as is None else continued_as.bytes,
        },
    )


def _migrate(connection: Connection, entry: ControlEntry) -> None:
    version = _read_migrated(entry.body).version
    row = {"eid": entry.eid.bytes, "version": version, "at": entry.at}
    connection.execute(SQL["migrate"], row)


def _archive(connection: Connection, entry: ControlEntry) -> None:
    connection.execute(SQL["archive"], (entry.at, entry.eid.bytes))


# -- announcements and tasks -----------------------------------------------------------------


class _Announced(msgspec.Struct):
    fid: str
    payload: Raw


class _Requested(msgspec.Struct):
    rid: str
    queue: str
    payload: Raw
    schema: Raw = NULL
    deadline: Instant | None = None
    task_id: str = ""
    reply_channel: str = ""


class _Decided(msgspec.Struct):
    rid: str
    verdict: str
    decided_by: Actor
    decided_at: Instant
    data: Raw = NULL


class _Expired(msgspec.Struct):
    rid: str


class _Enqueued(msgspec.Struct):
    task_id: str
    queue: str
    kind: EnqueuedKind
    fid: str


def _announce(connection: Connection, entry: ControlEntry) -> None:
    eid, kind = entry.eid.bytes, entry.type.removeprefix(ANNOUNCE)
    facts = _read_announced(entry.body)
    row = (entry.position, eid, facts.fid, kind, bytes(facts.payload), entry.at)
    connection.execute(SQL["announce"], row)
    if kind in _REVIEWS:
        _REVIEWS[kind](connection, entry, facts)


def _request(connection: Connection, entry: ControlEntry, announced: _Announced) -> None:
    facts = _read_requested(announced.payload)
    row = (
        entry.position,
        facts.rid,
        entry.eid.bytes,
        announced.fid,
        facts.queue,
        bytes(facts.payload),
        bytes(facts.schema),
        None if facts.deadline is None else to_us(facts.deadline),
        entry.at,
        facts.task_id,
        facts.reply_channel,
    )
    connection.execute(SQL["request"], row)


def _decide(connection: Connection, entry: ControlEntry, announced: _Announced) -> None:
    facts = _read_decided(announced.payload)
    row = (
        facts.verdict,
        bytes(facts.data),
        msgspec.json.encode(facts.decided_by),
        to_us(facts.decided_at),
        facts.rid,
        entry.eid.bytes,
    )
    connection.execute(SQL["decide"], row)


def _expire(connection: Connection, entry: ControlEntry, announced: _Announced) -> None:
    rid = _read_expired(announced.payload).rid
    connection.execute(SQL["expire"], (rid, entry.eid.bytes))


def _enqueue(connection: Connection, entry: ControlEntry) -> None:
    facts = _read_enqueued(entry.body)
    eid, task_id, queue, kind = entry.eid.bytes, facts.task_id, facts.queue, facts.kind
    row = (entry.position, eid, task_id, queue, kind, facts.fid, entry.at)
    connection.execute(SQL["enqueue"], row)


_read_created = msgspec.json.Decoder(_Created).decode
_read_changed = msgspec.json.Decoder(_Changed).decode
_read_migrated = msgspec.json.Decoder(_Migrated).decode
_read_announced = msgspec.json.Decoder(_Announced).decode
_read_requested = msgspec.json.Decoder(_Requested).decode
_read_decided = msgspec.json.Decoder(_Decided).decode
_read_expired = msgspec.json.Decoder(_Expired).decode
_read_enqueued = msgspec.json.Decoder(_Enqueued).decode

_REVIEWS: dict[str, Callable[[Connection, ControlEntry, _Announced], None]] = {
    "review.requested": _request,
    "review.decided": _decide,
    "review.expired": _expire,
}

_APPLY: dict[str, Callable[[Connection, ControlEntry], None]] = {
    "execution.created": _create,
    "execution.started": _run,
    "execution.resumed": _run,
    "execution.suspended": _suspend,
    "execution.completed": _complete,
    "execution.failed": _fail,
    "execution.cancelled": _cancel,
    "execution.terminated": _terminate,
    "execution.migrated": _migrate,
    "execution.archived": _archive,
    "task.enqueued": _enqueue,
}
