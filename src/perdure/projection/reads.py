"""What do the tables say? Queries over one connection, and the values made of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sqlite3 import Connection
from typing import Any
from uuid import UUID

import msgspec

from perdure.model.execution import ErrorInfo, ExecutionStatus, Page
from perdure.model.instants import from_us
from perdure.model.provenance import Actor
from perdure.ports.projection import Announcement, EnqueuedTask, ExecutionSummary, Review
from perdure.projection.statements import SQL, narrowed

Values = Mapping[str, Any]
"""What a list is narrowed by, and its limit."""

decode = msgspec.json.decode
_decode_on = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_actor = msgspec.json.Decoder(Actor).decode


def executions(connection: Connection, values: Values) -> Page[ExecutionSummary]:
    """List executions, the latest change first."""
    rows, more = _page(connection, "executions", values)
    cursor = f"{rows[-1][9]}-{rows[-1][0].hex()}" if more else None
    return Page(tuple(_summary(row) for row in rows), cursor)


def children(connection: Connection, eid: bytes) -> list[ExecutionSummary]:
    """List the children of an execution, oldest first."""
    return [_summary(row) for row in connection.execute(SQL["children"], (eid,))]


def counts(connection: Connection) -> dict[str, int]:
    """Count the executions by status."""
    return dict(connection.execute(SQL["counts"]).fetchall())


def reviews(connection: Connection, values: Values) -> Page[Review]:
    """List reviews, oldest first."""
    rows, more = _page(connection, "reviews", values)
    return Page(tuple(_review(row) for row in rows), str(rows[-1][0]) if more else None)


def announcements(connection: Connection, values: Values) -> list[Announcement]:
    """List announcements, oldest first."""
    rows, _ = _page(connection, "announcements", values)
    return [
        Announcement(position, UUID(bytes=eid), fid, kind, decode(payload), from_us(at))
        for position, eid, fid, kind, payload, at in rows
    ]


def tasks(connection: Connection, eid: bytes) -> list[EnqueuedTask]:
    """List the tasks that an execution enqueued, oldest first."""
    return [
        EnqueuedTask(task_id, queue, kind, UUID(bytes=owner), fid, from_us(at))
        for task_id, queue, kind, owner, fid, at in connection.execute(SQL["tasks"], (eid,))
    ]


def _page(connection: Connection, name: str, values: Values) -> tuple[list[tuple[Any, ...]], bool]:
    """Read the rows of one page, and whether there are more."""
    limit = values["limit"]
    statement = narrowed(name, values)
    rows = connection.execute(statement, {**values, "limit": limit + 1}).fetchall()
    return rows[:limit], len(rows) > limit


def _summary(row: Sequence[Any]) -> ExecutionSummary:
    parent, started_at, ended_at, on, error_type = row[6], row[8], row[10], row[11], row[13]
    continued_as, archived_at = row[15], row[16]
    return ExecutionSummary(
        eid=UUID(bytes=row[0]),
        workflow=row[1],
        version=row[2],
        status=ExecutionStatus(row[3]),
        queue=row[4],
        dispatch_key=row[5],
        parent=None if parent is None else UUID(bytes=parent),
        created_at=from_us(row[7]),
        started_at=None if started_at is None else from_us(started_at),
        updated_at=from_us(row[9]),
        ended_at=None if ended_at is None else from_us(ended_at),
        suspended_on=() if on is None else _decode_on(on),
        blocked=row[12],
        error=None if error_type is None else ErrorInfo(error_type, row[14]),
        continued_as=None if continued_as is None else UUID(bytes=continued_as),
        archived_at=None if archived_at is None else from_us(archived_at),
    )


def _review(row: Sequence[Any]) -> Review:
    deadline, decided_by, decided_at = row[7], row[12], row[13]
    return Review(
        rid=row[1],
        eid=UUID(bytes=row[2]),
        fid=row[3],
        queue=row[4],
        payload=decode(row[5]),
        schema=decode(row[6]),
        deadline=None if deadline is None else from_us(deadline),
        requested_at=from_us(row[8]),
        status=row[9],
        verdict=row[10],
        data=decode(row[11]),
        decided_by=None if decided_by is None else _decode_actor(decided_by),
        decided_at=None if decided_at is None else from_us(decided_at),
        task_id=row[14],
        reply_channel=row[15],
    )
