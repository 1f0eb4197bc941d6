"""The store that the engine sees: the synchronous core, called in threads or inline.

A file has a writer thread and a reader thread, each with a connection of its own; another one is
for beats, in the threads of those who beat, and one for checkpoints. Memory has one connection for
everything, called inline.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Raw

from perdure.errors import InvalidArgument, StoreUnavailable
from perdure.model.execution import Execution, ExecutionRow, LeaseInfo, Page
from perdure.model.provenance import Site
from perdure.model.queue_task import LeasedTask, QueueDepth, QueueTask
from perdure.ports.commands import CreateExecution, Outcome, Transition
from perdure.ports.store import (
    NO_CHANNELS,
    NOTHING_KEPT,
    Beat,
    Claimed,
    Committed,
    ControlEntry,
    ExecutionQuery,
    JournalRow,
    LeaseBeat,
    Mail,
    MissingWorkflow,
    OutOfTime,
    Session,
    SessionBeat,
    StoreInfo,
)
from perdure.stores.sqlite.checkpoint import Checkpointer
from perdure.stores.sqlite.connection import (
    Connection,
    Lendable,
    connect,
    data_version,
    file_of,
    in_transaction,
    prepare,
    translated,
    unavailable,
)
from perdure.stores.sqlite.core import Core
from perdure.stores.sqlite.dequeue import Dequeuer
from perdure.stores.sqlite.lending import Loan, create_in
from perdure.stores.sqlite.reads import Reads, known_json, make_json
from perdure.stores.sqlite.statements import SQL
from perdure.stores.sqlite.threads import Inline, Thread

T = TypeVar("T")

MEMORY = ":memory:"


class SqliteStore:
    """A store in one SQLite file, or in memory."""

    def __init__(
        self,
        url: str,
        path: str,
        connection: Lendable,
        reading: Connection,
        checkpointer: Checkpointer | None,
    ) -> None:
        """Take open connections to a prepared file; `open_sqlite` does that."""
        self.url = url
        self.shared = path != MEMORY
        self._path = path
        self._connection = connection
        self._reading = reading
        self._checkpointer = checkpointer
        self._core = Core(connection)
        kind = "sqlite" if self.shared else "memory"
        self._reads = Reads(reading, url, kind)
        self._writer_reads = Reads(connection, url, kind)
        self._writer: Thread | Inline = Thread("perdure-writer") if self.shared else Inline()
        self._reader: Thread | Inline = Thread("perdure-reader") if self.shared else Inline()
        self._beat_lock = threading.Lock()
        self._beat_connection: Connection | None = None
        self._data_version = data_version(connection)
        self._file = file_of(path) if self.shared else None
        self._ended: asyncio.Future[Any] | None = None

    async def close(self) -> None:
        """Close every connection, when the calls that are under way are done.

        Closing twice is fine.
        """
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._close_each())
        await asyncio.shield(self._ended)

    async def _close_each(self) -> None:
        """Close one connection after the other: only the last one removes the log."""
        await self._reader.end(self._reading.close)
        await self._writer.end(self._close_rest)

    def _close_rest(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
        with self._beat_lock:
            if self._beat_connection is not None:
                self._beat_connection.close()
        self._connection.close()

    # -- how it is called --------------------------------------------------------------------

    async def _write(self, function: Callable[..., T], *args: Any) -> T:
        self._check_open()
        return await self._writer.call(self._written, function, args)

    def _check_file(self) -> None:
        if self._file is not None and file_of(self._path) != self._file:
            message = (
                f"store {self._path}: the file was removed or replaced while it was open; nothing "
                "was written: stop every process that uses it, and put the file back"
            )
            raise StoreUnavailable(message)

    def _written(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        self._check_file()
        try:
            result = function(*args)
        except sqlite3.Error as error:
            raise unavailable(self._path, error) from error
        if self._checkpointer is not None:
            self._checkpointer.written(self._connection)
        return result

    async def _read(self, function: Callable[..., T], *args: Any) -> T:
        self._check_open()
        return await self._reader.call(self._seen, function, args)

    def _seen(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            return in_transaction(self._reading, lambda: function(*args), kind="DEFERRED")
        except sqlite3.Error as error:
            raise unavailable(self._path, error) from error

    def _check_open(self) -> None:
        if self._ended is not None:
            message = f"store {self.url} is closed; open it again"
            raise StoreUnavailable(message)

    # -- commits -----------------------------------------------------------------------------

    async def open_session(self, site: Site, ttl: float | None, now: int) -> Session:
        """Open a session."""
        return await self._write(self._core.open_session, site, ttl, now)

    async def close_session(self, session: int) -> None:
        """End a session."""
        await self._write(self._core.close_session, session)

    async def commit(
        self, session: int, batch_no: int, transitions: Sequence[Transition]
    ) -> Committed:
        """Apply transitions in one transaction."""
        return await self._write(self._core.commit, session, batch_no, transitions)

    async def transact(self, run: Callable[[Any], Transition], timeout: float) -> Outcome:
        """Let a user's function write in the transaction that applies a transition."""
        self._check_open()
        loan = Loan(self._path, run, timeout)
        if not self.shared:
            return loan.make(self._connection)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()

        def give(outcome: Outcome | None, error: BaseException | None) -> None:
            if not answer.done() and outcome is not None:
                answer.set_result(outcome)
            elif not answer.done():
                answer.set_exception(error or OutOfTime())

        def tell(outcome: Outcome | None, error: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(give, outcome, error)

        def work() -> None:
            try:
                self._check_file()
                # When its time is over the function may go on for ever: nobody waits for it.
                tell(loan.make(expired=lambda: tell(None, OutOfTime())), None)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                tell(None, error)

        threading.Thread(target=work, name="perdure-transaction", daemon=True).start()
        return await answer

    async def create_in(self, connection: object, creation: CreateExecution) -> Outcome:
        """Create an execution in the transaction of the caller's own connection."""
        self._check_open()
        if not self.shared:
            message = "a store in memory has one connection, its own; use a store in a file"
            raise InvalidArgument(message)
        return create_in(self._path, connection, creation)

    async def beat(self, session: int) -> Beat:
        """Renew a session."""
        return await self._write(self._core.beat, session)

    def own_beat(self) -> Callable[[int], Beat] | None:
        """Give a blocking `beat` on a connection of its own, for a thread."""
        return self._beat_alone if self.shared else None

    def _beat_alone(self, session: int) -> Beat:
        with self._beat_lock, translated(self._path):
            self._check_open()
            if self._beat_connection is None:
                self._beat_connection = connect(self._path)
            beat = Core(self._beat_connection).beat(session)
            if self._checkpointer is not None:
                self._checkpointer.written(self._beat_connection)
            return beat

    # -- queues ------------------------------------------------------------------------------

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
        """Take ready tasks."""
        return await self._write(
            lambda: self._dequeue(session, queues, known, limit, now, kept=kept)
        )

    def _dequeue(
        self,
        session: int,
        queues: Sequence[str],
        known: frozenset[tuple[str, str]],
        limit: int,
        now: int,
        *,
        kept: Mapping[UUID, int] = NOTHING_KEPT,
    ) -> list[Claimed]:
        # Workers that share a file ask often and in vain; that must not cost the lock.
        (live, ready) = self._connection.execute(
            SQL["has_ready"], (session, make_json(queues))
        ).fetchone()
        if live and not ready:
            return []

        def work() -> list[Claimed]:
            dequeuer = Dequeuer(self._connection, self._writer_reads, session, now, kept)
            return dequeuer.take(queues, known_json(known), limit)

        return in_transaction(self._connection, work)

    async def missing(
        self, queues: Sequence[str], known: frozenset[tuple[str, str]]
    ) -> list[MissingWorkflow]:
        """Tell for which workflow versions outside `known` ready tasks wait."""
        return await self._read(self._reads.missing, queues, known)

    async def has_steps(self, queues: Sequence[str], steps: Sequence[str]) -> bool:
        """Tell whether a task is ready that runs one of these steps."""
        return await self._read(self._reads.has_steps, queues, steps)

    async def has_delegated(self, queues: Sequence[str]) -> bool:
        """Tell whether a delegated task is ready on these queues."""
        return await self._read(self._reads.has_delegated, queues)

    async def held(self, holder: str) -> list[LeasedTask]:
        """List the tasks that somebody holds."""
        return await self._read(self._reads.held, holder)

    async def leases(self) -> list[LeaseBeat]:
        """List the leases of tasks that are to be renewed."""
        return await self._read(self._reads.leases)

    async def queue_tasks(self, queue: str, limit: int) -> list[QueueTask]:
        """List the tasks of a queue."""
        return await self._read(self._reads.queue_tasks, queue, limit)

    async def queue_depth(self, queue: str) -> QueueDepth:
        """Count the tasks of a queue."""
        return await self._read(self._reads.queue_depth, queue)

    # -- reads -------------------------------------------------------------------------------

    async def record(self, eid: UUID) -> Execution | None:
        """Read the record of an execution."""
        return await self._read(self._reads.record, eid)

    async def execution(self, eid: UUID) -> ExecutionRow | None:
        """Read an execution as it is now."""
        return await self._read(self._reads.execution, eid)

    async def executions(self, query: ExecutionQuery) -> Page[ExecutionRow]:
        """Read a page of executions, newest first."""
        return await self._read(self._reads.executions, query)

    async def ended(self, eids: Sequence[UUID]) -> dict[UUID, ExecutionRow | None]:
        """Read those of these executions that have ended; ``None`` for one that does not exist."""
        return await self._read(self._reads.ended, eids)

    async def journal(self, eid: UUID, after: int = 0) -> list[JournalRow]:
        """Read the rows of a journal that hold an entry after number `after`."""
        return await self._read(self._reads.journal, eid, after)

    async def sites(self, ids: Sequence[int]) -> dict[int, Site]:
        """Read interned sites."""
        return await self._read(self._reads.sites, ids)

    async def mail(self, eid: UUID, channels: Mapping[str, int] = NO_CHANNELS) -> Mail | None:
        """Read what has reached an execution, together."""
        return await self._read(self._reads.mail, eid, channels)

    async def items(self, eid: UUID, stream: str, after: int, limit: int) -> list[tuple[int, Raw]]:
        """Read items of a stream."""
        return await self._read(self._reads.items, eid, stream, after, limit)

    async def wakes(self, eids: Sequence[UUID]) -> dict[UUID, int]:
        """Read the wake counters of executions."""
        return await self._read(self._reads.wakes, eids)

    async def lease(self, eid: UUID) -> LeaseInfo | None:
        """Tell who owns an execution."""
        return await self._read(self._reads.lease, eid)

    async def sessions(self) -> list[SessionBeat]:
        """List the live sessions that beat."""
        return await self._read(self._reads.sessions)

    async def next_due(self) -> int | None:
        """Give the earliest due instant of a timer or a delayed task."""
        return await self._read(self._reads.next_due)

    async def control(self, after: int = 0, limit: int = 1000) -> list[ControlEntry]:
        """Read the control log after a position."""
        return await self._read(self._reads.control, after, limit)

    async def control_end(self) -> int:
        """Give the position of the last entry of the control log."""
        return await self._read(self._reads.control_end)

    async def info(self) -> StoreInfo:
        """Tell what the store is and holds."""
        return await self._read(self._reads.info)

    async def changed(self) -> bool:
        """Tell whether another connection has committed since the last call."""
        self._check_open()
        if self._writer.idle:  # nobody uses its connection: a thread would cost more than the look
            return self._has_changed()
        return await self._writer.call(self._has_changed)

    def _has_changed(self) -> bool:
        with translated(self._path):
            version = data_version(self._connection)
        before, self._data_version = self._data_version, version
        return bool(version != before)


async def open_sqlite(url: str) -> SqliteStore:
    """Open the store in the file that a URL names, or in memory.

    Raises:
        InvalidArgument: if the URL is malformed.
        StoreUnavailable: if the file cannot be opened, or is no store.
        SchemaTooNew: if a newer perdure wrote it.
    """
    path = _path(url)
    connections = [connect(path)]
    try:
        prepare(connections[0], path, url)
        if path == MEMORY:
            return SqliteStore(url, path, connections[0], connections[0], None)
        connections.append(connect(path, reader=True))
        connections.append(connect(path))
    except BaseException:
        for connection in connections:
            connection.close()
        raise
    writing, reading, copying = connections
    return SqliteStore(url, path, writing, reading, Checkpointer(copying))


def _path(url: str) -> str:
    """Give the absolute path, so that the directory may be changed while the store is open."""
    if url == "memory:":
        return MEMORY
    path = url.removeprefix("sqlite:///")
    if path in {url, "", MEMORY} or path.endswith("/") or "?" in path or "\0" in path:
        message = (
            f"{url!r} is not a store URL; give sqlite:///perdure.db, sqlite:////srv/perdure.db for "
            "an absolute path, or memory:"
        )
        raise InvalidArgument(message)
    return str(Path(path).absolute())
