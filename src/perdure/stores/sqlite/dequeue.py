"""Who owns what next? A dequeue: tasks out, ownership and fence entries in, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.model.entry import ExecutionResumed, ExecutionStarted, KnownEntry, pack
from perdure.ports.store import Claimed, JournalRow, Mail, SessionGone
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.reads import Reads
from perdure.stores.sqlite.statements import SQL, insert_many


class Dequeuer:
    """Takes tasks for one session, inside a transaction that is open; see the port."""

    def __init__(self, connection: Connection, reads: Reads, session: int, now: int) -> None:
        """Check that the session is live.

        Raises:
            SessionGone: if it is not.
        """
        self._connection = connection
        self._reads = reads
        self._session = session
        self._now = now
        row = connection.execute(SQL["session_site"], (session,)).fetchone()
        if row is None:
            raise SessionGone
        self._site: int = row[0]

    def take(self, queues: Sequence[str], known: str, limit: int) -> list[Claimed]:
        """Take up to `limit` ready tasks, in the order of the queues."""
        claimed: list[Claimed] = []
        for queue in queues:
            while (left := limit - len(claimed)) > 0:
                rows = self._connection.execute(SQL["ready"], (queue, known, left)).fetchall()
                claimed += self._claim(rows)
                if len(rows) < left:
                    break
        return claimed

    def _claim(self, rows: list[tuple[Any, ...]]) -> list[Claimed]:
        """Take the tasks of these rows, and own the executions that can be owned."""
        execute, many = self._connection.execute, self._connection.executemany
        session, now = self._session, self._now
        claimed: dict[bytes, Claimed] = {}
        fences: list[object] = []
        twins: list[object] = []
        for row in rows:
            eid, reason, free = row[10], row[12], row[15]
            if free and eid not in claimed:
                claimed[eid] = one = self._acquire(row)
                fence = one.journal[-1]
                fences += (eid, fence.seq, 1, fence.epoch, fence.site, fence.body)
                resumed = fence.seq > 1
                kind = "execution.resumed" if resumed else "execution.started"
                facts = msgspec.json.encode({"reason": reason}) if resumed else b"{}"
                twins += (eid, kind, now, fence.epoch, facts)
        many(SQL["delete_task"], [(row[9],) for row in rows])
        many(SQL["own"], [(session, one.epoch, now, now, eid) for eid, one in claimed.items()])
        insert_many(execute, "append", fences)
        insert_many(execute, "control", twins)
        return list(claimed.values())

    def _acquire(self, row: tuple[Any, ...]) -> Claimed:
        """Read what the new owner needs; the last row of the journal is the fence to append."""
        eid, kind, reason, epoch, wake = row[10], row[11], row[12], row[13] + 1, row[14]
        record = self._reads.make_record(eid, row)
        journal: list[JournalRow] = []
        if epoch > 1:
            self._connection.execute(SQL["delete_timers"], (eid,))
            journal = self._reads.journal_rows(eid, 0)
        entry: KnownEntry = ExecutionStarted(self._now, record.args)
        seq = 1
        if journal:
            entry = ExecutionResumed(self._now, reason)
            seq = self._reads.tail(eid) + 1
        journal.append(JournalRow(seq, epoch, self._site, pack([entry])))
        mail = Mail(wake, self._reads.unread(eid) if wake else ())
        return Claimed(kind, record, epoch, tuple(journal), mail)
