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
from msgspec import Raw

from perdure.model.entry import fill
from perdure.model.provenance import Site
from perdure.ports.commands import (
    AckTask,
    Announce,
    Append,
    Broadcast,
    Claim,
    Command,
    Consume,
    CreateExecution,
    DequeueDelegated,
    DequeueSteps,
    Done,
    EndExecution,
    Enqueue,
    ExpireSession,
    ExpireTask,
    FireTimers,
    HoldTask,
    Migrate,
    NackTask,
    Outcome,
    Publish,
    Refused,
    Release,
    RenewTask,
    RepairPending,
    RequestCancel,
    Resume,
    Send,
    Suspend,
    Tell,
    Terminate,
    Transition,
    Withdraw,
)
from perdure.ports.store import Beat, Committed, Owned, Session, SessionGone
from perdure.stores.sqlite import executions, messages, tasks
from perdure.stores.sqlite.answers import DONE, pack_answer, unpack_answer
from perdure.stores.sqlite.batch import Batch, encode
from perdure.stores.sqlite.connection import Connection, in_transaction
from perdure.stores.sqlite.statements import SQL

T = TypeVar("T")

DAY_US = 86_400_000_000


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
        self._batch = Batch(connection)

    def _in_transaction(self, work: Callable[[], T]) -> T:
        try:
            return in_transaction(self._connection, work)
        except BaseException:
            self._batch.forget()
            raise

    # -- sessions ----------------------------------------------------------------------------

    def open_session(self, site: Site, ttl: float | None, now: int) -> Session:
        """Open a session, and forget those that nobody will ask about."""

        def work() -> Session:
            self._execute(SQL["mark_idle_sessions"], (now,))
            self._execute(SQL["purge_sessions"], (now - DAY_US,))
            site_id = self._batch.intern("site", encode(site))
            opened = self._execute(SQL["open_session"], (site_id, ttl, now)).lastrowid
            assert opened is not None  # noqa: S101 - an insert has a row
            return Session(opened, site_id)

        return self._in_transaction(work)

    def close_session(self, session: int) -> None:
        """End a session; what it still owns is recovered."""

        def work() -> None:
            _recover(self._batch, session, 0)
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
            batch = self._batch
            batch.begin(row[3])
            outcomes = apply(transitions)
            committed = Committed(
                tuple(outcomes),
                batch.enqueued,
                tuple(batch.woken),
                tuple(batch.closed),
                tuple(batch.heard),
            )
            answer = pack_answer(committed)
            self._execute(SQL["store_batch"], (batch_no, answer, batch.now, session))
            return committed

        try:
            return self._in_transaction(lambda: work(self._together))
        except (_Refusal, sqlite3.IntegrityError):
            return self._in_transaction(lambda: work(self._each))

    def apply(self, transition: Transition) -> Outcome:
        """Apply a transition inside a transaction that is open; undo it if this is refused."""
        self._batch.begin(0)
        try:
            return self._together([transition])[0]
        except _Refusal as refusal:
            return refusal.refused
        except sqlite3.IntegrityError:  # only the number of a journal row can be taken
            return Refused("journal_conflict")

    def _together(self, transitions: Sequence[Transition]) -> list[Outcome]:
        """Apply a batch as a whole."""
        outcomes: list[Outcome] = []
        for transition in transitions:
            commands = transition.commands
            if len(commands) == 1 and type(commands[0]) is Append:
                _append(self._batch, commands[0])
                outcomes.append(DONE)
            else:
                outcomes.append(self._transition(commands))
        self._batch.flush()
        return outcomes

    def _each(self, transitions: Sequence[Transition]) -> list[Outcome]:
        """Apply a batch with a savepoint for each transition."""
        outcomes: list[Outcome] = []
        for transition in transitions:
            mark = self._batch.mark()
            self._execute("SAVEPOINT one")
            outcome = self._alone(transition.commands)
            if isinstance(outcome, Refused):
                self._execute("ROLLBACK TO one")
                self._batch.undo(mark)
            self._execute("RELEASE one")
            outcomes.append(outcome)
        return outcomes

    def _alone(self, commands: tuple[Command, ...]) -> Outcome:
        try:
            outcome = self._transition(commands)
            self._batch.flush()
        except _Refusal as refusal:
            return refusal.refused
        except sqlite3.IntegrityError:  # only the number of a journal row can be taken
            return Refused("journal_conflict")
        return outcome

    def _transition(self, commands: tuple[Command, ...]) -> Outcome:
        results: list[object] = []
        for command in commands:
            filled = command
            if type(command) is Append and command.memos:
                filled = _filled(command, results)
            result = _APPLY[type(command)](self._batch, filled)
            if isinstance(result, Refused):
                refused = msgspec.structs.replace(result, at=len(results))
                if results:
                    raise _Refusal(refused)
                return refused
            results.append(result)
        return Done(tuple(results))


def _append(batch: Batch, command: Append) -> None:
    batch.journal += (
        command.eid.bytes,
        command.first_seq,
        command.count,
        command.epoch,
        command.site,
        command.body,
    )


def _filled(command: Append, results: Sequence[object]) -> Append:
    """Give the memos of effects the results that their commands have had."""
    values: dict[int, Raw] = {}
    for index, source in command.memos:
        result = results[source]
        values[index] = Raw(result if isinstance(result, bytes) else encode(result))
    return msgspec.structs.replace(command, body=fill(command.body, values))


def _fire_timers(batch: Batch, command: FireTimers) -> int:
    now = batch.now = command.now
    fired = 0
    due = batch.execute(SQL["due_timers"], (now, command.limit)).fetchall()
    for (eid,) in dict.fromkeys(due):
        fired += batch.execute(SQL["delete_due_timers"], (eid, now)).rowcount
        batch.resume(eid, "timer", now)
    promoted = batch.execute(SQL["promote"], (now, command.limit)).rowcount
    batch.enqueued |= promoted > 0
    return fired + promoted + executions.expire(batch, now, command.limit)


def _expire_session(batch: Batch, command: ExpireSession) -> int:
    batch.now = command.now
    key = (command.now, command.session, command.beat)
    expired = batch.execute(SQL["expire_session"], key)
    return _recover(batch, command.session, command.now) if expired.rowcount else 0


def _recover(batch: Batch, session: int, now: int) -> int:
    owned = batch.execute(SQL["owned"], (session,)).fetchall()
    batch.execute(SQL["disown"], (session,))
    tasks.free(batch, session)
    for eid, _, _ in owned:
        batch.resume(eid, "recovery", now)
    return len(owned)


def _repair_pending(batch: Batch, command: RepairPending) -> int:
    batch.now = command.now
    lost = batch.execute(SQL["pending_without_task"], (command.limit,)).fetchall()
    for (eid,) in lost:
        batch.execute(SQL["enqueue_start"], (command.now, eid))
        batch.enqueued = True
    return len(lost)


_APPLY: dict[type, Callable[[Batch, Any], object]] = {
    CreateExecution: executions.create,
    Append: _append,
    Consume: messages.consume,
    Suspend: executions.suspend,
    EndExecution: executions.end,
    Release: executions.release,
    Send: messages.send,
    Broadcast: messages.broadcast,
    Announce: messages.announce,
    Publish: messages.publish,
    Claim: messages.claim,
    Enqueue: tasks.enqueue,
    Withdraw: tasks.withdraw,
    Tell: tasks.tell,
    DequeueDelegated: tasks.dequeue_delegated,
    DequeueSteps: tasks.dequeue_steps,
    RenewTask: tasks.renew,
    AckTask: tasks.ack,
    NackTask: tasks.nack,
    HoldTask: tasks.hold,
    ExpireTask: tasks.expire,
    RequestCancel: executions.request_cancel,
    Terminate: executions.terminate,
    Resume: executions.resume,
    Migrate: executions.migrate,
    FireTimers: _fire_timers,
    ExpireSession: _expire_session,
    RepairPending: _repair_pending,
}
