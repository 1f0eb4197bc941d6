"""Who owns what next? A dequeue: tasks out, ownership and fence entries in, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from perdure.model.entry import (
    ExecutionMigrated,
    ExecutionResumed,
    ExecutionStarted,
    KnownEntry,
    pack,
)
from perdure.ports.store import Claimed, JournalRow, SessionGone
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.reads import Reads
from perdure.stores.sqlite.statements import SQL, insert_many


class Dequeuer:
    """Takes tasks for one session, inside a transaction that is open; see the port."""

    def __init__(
        self,
        connection: Connection,
        reads: Reads,
        session: int,
        now: int,
        kept: Mapping[UUID, int],
    ) -> None:
        """Check that the session is live.

        Raises:
            SessionGone: if it is not.
        """
        self._connection = connection
        self._reads = reads
        self._session = session
        self._now = now
        self._kept = kept
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
            eid, free = row[13], row[18]
            if free and eid not in claimed:
                claimed[eid] = one = self._acquire(row)
                fence = one.journal[-1]
                migrated, resumed = row[20] is not None, row[19] is not None
                fences += (eid, fence.seq, 1 + migrated, fence.epoch, fence.site, fence.body)
                kind = "execution.resumed" if resumed else "execution.started"
                facts = msgspec.json.encode({"reason": row[15]}) if resumed else b"{}"
                twins += (eid, kind, now, fence.epoch, facts)
        many(SQL["delete_task"], [(row[12],) for row in rows])
        many(SQL["own"], [(session, one.epoch, now, now, eid) for eid, one in claimed.items()])
        insert_many(execute, "append", fences)
        insert_many(execute, "control", twins)
        return list(claimed.values())

    def _acquire(self, row: tuple[Any, ...]) -> Claimed:
        """Read what the new owner needs; the last row of the journal is the fence to append."""
        eid, kind, reason, epoch, wake, _, started_at, version, stop_by, stop_reason = row[13:]
        record = self._reads.make_record(eid, row)
        before, journal, kept, seq = epoch, [], False, 1
        if epoch:
            self._connection.execute(SQL["delete_timers"], (eid,))
            self._connection.execute(SQL["delete_waiter"], (eid,))
            seq = self._reads.tail(eid) + 1
            kept = version is None and self._kept.get(record.eid) == before
            journal = [] if kept or seq == 1 else self._reads.journal_rows(eid, 0)
        fence: list[KnownEntry] = [ExecutionResumed(self._now, reason)]
        if started_at is None:
            fence = [ExecutionStarted(self._now, record.args)]
        if version is not None:
            fence = [ExecutionMigrated(self._now, record.version, version), *fence]
            record = msgspec.structs.replace(record, version=version)
        journal.append(JournalRow(seq, epoch + 1, self._site, pack(fence)))
        mail = self._reads.make_mail(eid, (wake, stop_by, stop_reason))
        return Claimed(kind, record, epoch + 1, tuple(journal), mail, kept=kept)
