"""Who owns what next? A dequeue: tasks out, ownership and fence entries in, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.model.entry import ExecutionResumed, ExecutionStarted, KnownEntry, pack
from perdure.model.queue_task import TaskKind
from perdure.ports.store import Claimed, JournalRow, Mail, SessionGone
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.reads import Reads
from perdure.stores.sqlite.statements import SQL


class Dequeuer:
    """Takes tasks for one session, inside a transaction that is open; see the port."""

    def __init__(self, connection: Connection, reads: Reads, session: int, now: int) -> None:
        """Check that the session is live.

        Raises:
            SessionGone: if it is not.
        """
        self._execute = connection.execute
        self._reads = reads
        self._session = session
        self._now = now
        row = self._execute(SQL["session_site"], (session,)).fetchone()
        if row is None:
            raise SessionGone
        self._site: int = row[0]

    def take(self, queues: Sequence[str], known: str, limit: int) -> list[Claimed]:
        """Take up to `limit` ready tasks, in the order of the queues."""
        claimed: list[Claimed] = []
        for queue in queues:
            while len(claimed) < limit:
                left = limit - len(claimed)
                tasks = self._execute(SQL["ready"], (queue, known, left)).fetchall()
                for task_id, eid, kind, reason in tasks:
                    self._execute(SQL["delete_task"], (task_id,))
                    one = self._acquire(eid, kind, reason)
                    if one is not None:
                        claimed.append(one)
                if not tasks:
                    break
        return claimed

    def _acquire(self, eid: bytes, kind: TaskKind, reason: str) -> Claimed | None:
        """Own an execution; ``None`` if it has an owner, has ended or does not exist."""
        now = self._now
        row = self._execute(SQL["own"], (self._session, now, now, eid)).fetchone()
        if row is None:
            return None
        epoch, wake = row[9], row[10]
        record = self._reads.make_record(eid, row)
        journal: list[JournalRow] = []
        if epoch > 1:
            self._execute(SQL["delete_timers"], (eid,))
            journal = self._reads.journal_rows(eid, 0)
        entry: KnownEntry = ExecutionStarted(now, record.args)
        control, facts, seq = "execution.started", b"{}", 1
        if journal:
            entry = ExecutionResumed(now, reason)
            control, facts = "execution.resumed", msgspec.json.encode({"reason": reason})
            seq = self._reads.tail(eid) + 1
        fence = JournalRow(seq, epoch, self._site, pack([entry]))
        self._execute(SQL["append"], (eid, seq, 1, epoch, self._site, fence.body))
        self._execute(SQL["control"], (eid, control, now, epoch, facts))
        mail = Mail(wake, self._reads.unread(eid) if wake else ())
        return Claimed(kind, record, epoch, (*journal, fence), mail)
