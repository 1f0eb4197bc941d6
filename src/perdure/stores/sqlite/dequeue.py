"""Who owns what next? A dequeue: tasks out, ownership and fence entries in, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.model.entry import ExecutionResumed, ExecutionStarted, KnownEntry, pack
from perdure.ports.store import Claimed, JournalRow, Mail, SessionGone
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.reads import Reads
from perdure.stores.sqlite.statements import SQL


def dequeue(
    connection: Connection,
    reads: Reads,
    session: int,
    queues: Sequence[str],
    known: bytes,
    limit: int,
    now: int,
) -> list[Claimed]:
    """Take ready tasks inside a transaction that is open; see the port."""
    row = connection.execute(SQL["session"], (session,)).fetchone()
    if row is None or not row[0]:
        raise SessionGone
    site = connection.execute(SQL["session_site"], (session,)).fetchone()[0]
    claimed: list[Claimed] = []
    for queue in queues:
        while len(claimed) < limit:
            tasks = connection.execute(
                SQL["ready"], (queue, known, limit - len(claimed))
            ).fetchall()
            for task in tasks:
                connection.execute(SQL["delete_task"], (task[0],))
                one = _acquire(connection, reads, session, site, task, now)
                if one is not None:
                    claimed.append(one)
            if not tasks:
                break
    return claimed


def _acquire(
    connection: Connection,
    reads: Reads,
    session: int,
    site: int,
    task: tuple[int, bytes, str, str],
    now: int,
) -> Claimed | None:
    """Own the execution of a task; ``None`` if it has an owner, has ended or does not exist."""
    _, eid, kind, reason = task
    row = connection.execute(SQL["own"], (session, now, now, eid)).fetchone()
    if row is None:
        return None
    epoch, wake = row[9], row[10]
    record = reads.make_record(eid, row)
    journal: list[JournalRow] = []
    if epoch > 1:
        connection.execute(SQL["delete_timers"], (eid,))
        journal = reads.journal_rows(eid, 0)
    entry: KnownEntry = ExecutionStarted(now, record.args)
    control, facts = "execution.started", b"{}"
    seq = 1
    if journal:
        entry = ExecutionResumed(now, reason)
        control, facts = "execution.resumed", msgspec.json.encode({"reason": reason})
        seq = reads.tail(eid) + 1
    fence = JournalRow(seq, epoch, site, pack([entry]))
    connection.execute(SQL["append"], (eid, seq, 1, epoch, site, fence.body))
    connection.execute(SQL["control"], (eid, control, now, epoch, facts))
    mail = Mail(wake, reads.unread(eid) if wake else ())
    return Claimed(kind, record, epoch, (*journal, fence), mail)  # type: ignore[arg-type]
