"""What does a batch do to the tables? Synchronous code over one connection; no clock, no chance.

`Core` applies commands. A batch runs without savepoints first: a guard that refuses stands before
what it guards, so nothing is to be undone. Only if something else refuses is the batch rolled back
and applied again, transition by transition.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from perdure.model.instants import to_us
from perdure.model.provenance import Actor, Site
from perdure.model.queue_task import START
from perdure.ports.commands import (
    Append,
    Command,
    Consume,
    CreateExecution,
    Done,
    EndExecution,
    ExpireSession,
    FireTimers,
    Outcome,
    Refused,
    Release,
    RepairPending,
    Send,
    Suspend,
    Transition,
)
from perdure.ports.store import Beat, Committed, Owned, Session, SessionGone
from perdure.stores.sqlite.answers import DONE, pack_answer, unpack_answer
from perdure.stores.sqlite.connection import Connection, in_transaction
from perdure.stores.sqlite.statements import SQL, insert_many

T = TypeVar("T")

DAY_US = 86_400_000_000

encode = msgspec.json.encode


class _Refusal(Exception):
    """A transition is refused after it has written something."""

    def __init__(self, refused: Refused) -> None:
        self.refused = refused
        super().__init__(refused.code)


class Core:
    """Applies what is written to one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._actors: dict[Actor, int] = {}
        self._begin_batch()
        self._apply: dict[type, Callable[[Any], object]] = {
            CreateExecution: self._create,
            Append: self._append,
            Consume: self._consume,
            Suspend: self._suspend,
            EndExecution: self._end,
            Release: self._release,
            Send: self._send,
            FireTimers: self._fire_timers,
            ExpireSession: self._expire_session,
            RepairPending: self._repair_pending,
        }

    def _in_transaction(self, work: Callable[[], T]) -> T:
        try:
            return in_transaction(self._connection, work)
        except BaseException:
            self._actors.clear()
            raise

    # -- sessions ----------------------------------------------------------------------------

    def open_session(self, site: Site, ttl: float | None, now: int) -> Session:
        """Open a session, and forget those that nobody will ask about."""

        def work() -> Session:
            self._execute(SQL["mark_idle_sessions"], (now,))
            self._execute(SQL["purge_sessions"], (now - DAY_US,))
            site_id = self._intern("site", encode(site))
            opened = self._execute(SQL["open_session"], (site_id, ttl, now)).lastrowid
            assert opened is not None  # noqa: S101 - an insert has a row
            return Session(opened, site_id)

        return self._in_transaction(work)

    def close_session(self, session: int) -> None:
        """End a session; what it still owns is recovered."""

        def work() -> None:
            self._recover(session, 0)
            self._execute(SQL["delete_session"], (session,))

        self._in_transaction(work)

    def beat(self, session: int) -> Beat:
        """Count the beat of a session up, and list what it owns."""

        def work() -> Beat:
            if self._execute(SQL["beat"], (session,)).rowcount == 0:
                raise SessionGone
            rows = self._execute(SQL["owned"], (session,)).fetchall()
            return Beat(tuple(Owned(UUID(bytes=eid), epoch, wake) for eid, epoch, wake in rows))

        return self._in_transaction(work)

    # -- batches -----------------------------------------------------------------------------

    def commit(self, session: int, batch_no: int, transitions: Sequence[Transition]) -> Committed:
        """Apply a batch, or give the stored answer if it was applied before."""

        def work(apply: Callable[[Sequence[Transition]], list[Outcome]]) -> Committed:
            row = self._execute(SQL["session"], (session,)).fetchone()
            if row is not None and row[1] == batch_no and batch_no > 0:
                return unpack_answer(row[2])
            if row is None or not row[0]:
                raise SessionGone
            self._begin_batch()
            outcomes = apply(transitions)
            committed = Committed(
                tuple(outcomes), self._enqueued, tuple(self._woken), tuple(self._closed)
            )
            answer = pack_answer(committed)
            self._execute(SQL["store_batch"], (batch_no, answer, self._now, session))
            return committed

        try:
            return self._in_transaction(lambda: work(self._together))
        except (_Refusal, sqlite3.IntegrityError):
            return self._in_transaction(lambda: work(self._each))

    def _begin_batch(self) -> None:
        self._enqueued = False
        self._woken: list[UUID] = []
        self._closed: list[UUID] = []
        self._now = 0
        # Rows that nothing reads before the batch is over; they are inserted many at a time.
        self._journal: list[object] = []
        self._control: list[object] = []

    def _insert(self) -> None:
        insert_many(self._execute, "append", self._journal)
        insert_many(self._execute, "control", self._control)
        self._journal, self._control = [], []

    def _together(self, transitions: Sequence[Transition]) -> list[Outcome]:
        """Apply a batch as a whole."""
        outcomes: list[Outcome] = []
        for transition in transitions:
            commands = transition.commands
            if len(commands) == 1 and type(commands[0]) is Append:
                self._append(commands[0])
                outcomes.append(DONE)
            else:
                outcomes.append(self._transition(commands))
        self._insert()
        return outcomes

    def _each(self, transitions: Sequence[Transition]) -> list[Outcome]:
        """Apply a batch with a savepoint for each transition."""
        outcomes: list[Outcome] = []
        for transition in transitions:
            stirred = (self._enqueued, len(self._woken), len(self._closed))
            self._execute("SAVEPOINT one")
            outcome = self._alone(transition.commands)
            if isinstance(outcome, Refused):
                self._execute("ROLLBACK TO one")
                self._enqueued = stirred[0]
                del self._woken[stirred[1] :], self._closed[stirred[2] :]
                self._journal, self._control = [], []
                self._actors.clear()
            self._execute("RELEASE one")
            outcomes.append(outcome)
        return outcomes

    def _alone(self, commands: tuple[Command, ...]) -> Outcome:
        try:
            outcome = self._transition(commands)
            self._insert()
        except _Refusal as refusal:
            return refusal.refused
        except sqlite3.IntegrityError:  # only the number of a journal row can be taken
            return Refused("journal_conflict")
        return outcome

    def _transition(self, commands: tuple[Command, ...]) -> Outcome:
        results: list[object] = []
        for command in commands:
            result = self._apply[type(command)](command)
            if isinstance(result, Refused):
                if results:
                    raise _Refusal(result)
                return result
            results.append(result)
        return Done(tuple(results))

    # -- commands ----------------------------------------------------------------------------

    def _create(self, command: CreateExecution) -> object:
        record, now = command.record, command.now
        self._now = now
        eid, options = record.eid.bytes, record.options
        if record.dispatch_key is not None:
            key = (record.dispatch_key, eid)
            if self._execute(SQL["claim_key"], key).rowcount == 0:
                owner = self._execute(SQL["key_owner"], (record.dispatch_key,)).fetchone()
                found = UUID(bytes=owner[0])
                if owner[1] != record.workflow:
                    return Refused("key_taken", str(found))
                return (found, True)
        created = self._execute(
            SQL["create"],
            (
                eid,
                record.workflow,
                record.version,
                record.queue,
                record.args,
                record.seed,
                encode(options),
                options.priority,
                record.dispatch_key,
                self._actor(record.created_by),
                record.created_at,
                now,
            ),
        )
        if created.rowcount == 0:
            if record.dispatch_key is not None:
                self._execute(SQL["disclaim_key"], (record.dispatch_key,))
            return (record.eid, True)
        not_before = None
        if options.not_before is not None:
            due = to_us(options.not_before)
            not_before = due if due > now else None
        self._execute(
            SQL["enqueue"],
            (
                eid,
                START,
                record.queue,
                record.workflow,
                record.version,
                options.priority,
                START,
                not_before,
                now,
            ),
        )
        self._enqueued |= not_before is None
        facts = {"workflow": record.workflow, "version": record.version, "queue": record.queue}
        if record.dispatch_key is not None:
            facts["key"] = record.dispatch_key
        self._tell(eid, "execution.created", now, 0, facts)
        return (record.eid, False)

    def _append(self, command: Append) -> None:
        self._journal += (
            command.eid.bytes,
            command.first_seq,
            command.count,
            command.epoch,
            command.site,
            command.body,
        )

    def _consume(self, command: Consume) -> None:
        self._execute(SQL["consume"], (command.seq, command.eid.bytes, command.channel))

    def _suspend(self, command: Suspend) -> Refused | None:
        eid, now = command.eid.bytes, command.now
        self._now = now
        on = encode(command.on).decode()
        suspended = self._execute(
            SQL["suspend"], (on, command.blocked, now, eid, command.epoch, command.wake)
        )
        if suspended.rowcount == 0:
            owned = self._execute(SQL["is_owned"], (eid, command.epoch)).fetchone()
            return Refused("lease_lost" if owned is None else "wake")
        for timer in command.timers:
            self._execute(SQL["set_timer"], (eid, timer.timer_id, timer.due))
        facts: dict[str, object] = {"on": command.on}
        if command.blocked is not None:
            facts["reason"] = command.blocked
        self._tell(eid, "execution.suspended", now, command.epoch, facts)
        return None

    def _end(self, command: EndExecution) -> Refused | None:
        eid, now = command.eid.bytes, command.now
        self._now = now
        ended = self._execute(
            SQL["end"],
            (
                command.status,
                command.result,
                command.error_type,
                command.error_message,
                now,
                now,
                eid,
                command.epoch,
            ),
        )
        if ended.rowcount == 0:
            return Refused("lease_lost")
        self._execute(SQL["delete_tasks"], (eid,))
        facts: dict[str, object] = {}
        if command.error_type is not None:
            facts = {"error_type": command.error_type, "message": command.error_message}
        self._tell(eid, f"execution.{command.status}", now, command.epoch, facts)
        self._closed.append(command.eid)
        return None

    def _release(self, command: Release) -> bool:
        eid = command.eid.bytes
        self._now = command.now
        released = self._execute(SQL["release"], (eid, command.session, command.epoch)).rowcount > 0
        if released:
            self._resume(eid, command.reason, command.now)
        return released

    def _send(self, command: Send) -> object:
        eid, now = command.eid.bytes, command.now
        self._now = now
        woken = self._execute(SQL["wake"], (eid,)).fetchone()
        if woken is None:
            row = self._execute(SQL["status"], (eid,)).fetchone()
            return (
                Refused("unknown_execution") if row is None else Refused("already_closed", row[0])
            )
        (seq,) = self._execute(SQL["next_seq"], (eid, command.channel)).fetchone()
        self._execute(
            SQL["send"],
            (
                eid,
                command.channel,
                seq,
                self._actor(command.sent_by),
                now,
                command.correlation,
                command.payload,
            ),
        )
        status, owner = woken
        if status == "suspended":
            self._resume(eid, "message", now)
        elif owner is not None:
            self._woken.append(command.eid)
        return seq

    def _fire_timers(self, command: FireTimers) -> int:
        now = self._now = command.now
        fired = 0
        due = self._execute(SQL["due_timers"], (now, command.limit)).fetchall()
        for (eid,) in dict.fromkeys(due):
            fired += self._execute(SQL["delete_due_timers"], (eid, now)).rowcount
            self._resume(eid, "timer", now)
        promoted = self._execute(SQL["promote"], (now, command.limit)).rowcount
        self._enqueued |= promoted > 0
        return fired + promoted

    def _expire_session(self, command: ExpireSession) -> int:
        self._now = command.now
        expired = self._execute(SQL["expire_session"], (command.now, command.session, command.beat))
        return self._recover(command.session, command.now) if expired.rowcount else 0

    def _recover(self, session: int, now: int) -> int:
        owned = self._execute(SQL["owned"], (session,)).fetchall()
        self._execute(SQL["disown"], (session,))
        for eid, _, _ in owned:
            self._resume(eid, "recovery", now)
        return len(owned)

    def _repair_pending(self, command: RepairPending) -> int:
        self._now = command.now
        lost = self._execute(SQL["pending_without_task"], (command.limit,)).fetchall()
        for (eid,) in lost:
            self._execute(SQL["enqueue_start"], (command.now, eid))
            self._enqueued = True
        return len(lost)

    # -- parts -------------------------------------------------------------------------------

    def _resume(self, eid: bytes, reason: str, now: int) -> None:
        self._execute(SQL["enqueue_resume"], (reason, now, eid))
        self._enqueued = True

    def _tell(self, eid: bytes, kind: str, at: int, epoch: int, facts: object) -> None:
        """Write to the control log."""
        self._control += (eid, kind, at, epoch, encode(facts))

    def _actor(self, actor: Actor) -> int:
        known = self._actors.get(actor)
        if known is None:
            known = self._intern("actor", encode(actor))
            self._actors[actor] = known
        return known

    def _intern(self, table: str, body: bytes) -> int:
        self._execute(SQL[f"intern_{table}"], (body,))
        found: int = self._execute(SQL[f"{table}_id"], (body,)).fetchone()[0]
        return found
