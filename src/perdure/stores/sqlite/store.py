"""The store that the engine sees: the synchronous core, called in threads or inline.

A file has a writer thread, a reader thread and, in the thread of whoever beats, a third connection.
Memory has one connection for everything, called inline.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from perdure.errors import InvalidArgument, StoreUnavailable
from perdure.model.execution import Execution, ExecutionRow, LeaseInfo, Page
from perdure.model.provenance import Site
from perdure.ports.commands import Transition
from perdure.ports.store import (
    Beat,
    Claimed,
    Committed,
    ControlEntry,
    ExecutionQuery,
    JournalRow,
    Mail,
    MissingWorkflow,
    Session,
    SessionBeat,
    StoreInfo,
)
from perdure.stores.sqlite.connection import (
    Connection,
    begin,
    connect,
    prepare,
    roll_back,
    translated,
    unavailable,
)
from perdure.stores.sqlite.core import Core
from perdure.stores.sqlite.dequeue import Dequeuer
from perdure.stores.sqlite.reads import Reads, known_json
from perdure.stores.sqlite.threads import Inline, Thread

T = TypeVar("T")

CHECKPOINT_PAUSE_S = 0.25
WAL_PAGES_MAX = 8_000


class SqliteStore:
    """A store in one SQLite file, or in memory."""

    def __init__(self, url: str, path: str, connection: Connection) -> None:
        """Take an open connection to a prepared file; `open_sqlite` does that."""
        self.url = url
        self._path = path
        self._in_memory = path == ":memory:"
        self.shared = not self._in_memory
        self._writer: Thread | Inline = Inline()
        self._reader: Thread | Inline = Inline()
        self._connections = [connection]
        self._connection = connection
        self._core = Core(connection)
        kind = "memory" if self._in_memory else "sqlite"
        self._reads = self._writer_reads = Reads(connection, url, kind)
        self._reading = connection
        self._data_version = -1
        self._closed = False
        self._dirty = threading.Event()
        self._full_wal = False
        self._checkpointer: threading.Thread | None = None
        if not self._in_memory:
            self._reading = connect(path, reader=True)
            self._connections.append(self._reading)
            self._reads = Reads(self._reading, url, kind)
            self._writer = Thread("perdure-writer")
            self._reader = Thread("perdure-reader")
            self._checkpointer = threading.Thread(
                target=self._checkpoint,
                args=(connect(path),),
                name="perdure-checkpoint",
                daemon=True,
            )
            self._checkpointer.start()

    async def close(self) -> None:
        """Close every connection. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        self._dirty.set()
        if self._checkpointer is not None:
            self._checkpointer.join()
        self._writer.close()
        self._reader.close()
        for connection in self._connections:
            connection.close()

    # -- how it is called --------------------------------------------------------------------

    async def _write(self, function: Callable[..., T], *args: Any) -> T:
        self._check_open()
        return await self._writer.call(self._written, function, args)

    def _written(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            result = function(*args)
            if not self._in_memory:
                self._dirty.set()
                if self._full_wal:
                    # The checkpointer cannot catch up with a writer that never rests. What it has
                    # left is little; the log starts over when that is copied, too.
                    self._full_wal = False
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            raise unavailable(self._path, error) from error
        return result

    async def _read(self, function: Callable[..., T], *args: Any) -> T:
        self._check_open()
        return await self._reader.call(self._seen, function, args)

    def _seen(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            self._reading.execute("BEGIN")
            result = function(*args)
            self._reading.execute("COMMIT")
        except sqlite3.Error as error:
            roll_back(self._reading)
            raise unavailable(self._path, error) from error
        except BaseException:
            roll_back(self._reading)
            raise
        return result

    def _check_open(self) -> None:
        if self._closed:
            message = f"store {self.url} is closed; open it again"
            raise StoreUnavailable(message)

    def _checkpoint(self, connection: Connection) -> None:
        """Copy the log into the file while the writer goes on, as long as there is something."""
        pause = threading.Event()
        try:
            while not self._closed:
                self._dirty.wait()
                self._dirty.clear()
                pause.wait(CHECKPOINT_PAUSE_S)
                try:
                    with translated(self._path):
                        _, pages, _ = connection.execute(
                            "PRAGMA wal_checkpoint(PASSIVE)"
                        ).fetchone()
                except StoreUnavailable:
                    continue  # the writer meets the same trouble, and tells it
                self._full_wal = pages > WAL_PAGES_MAX
        finally:
            connection.close()

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

    async def beat(self, session: int) -> Beat:
        """Renew a session."""
        return await self._write(self._core.beat, session)

    def own_beat(self) -> Callable[[int], Beat] | None:
        """Give a blocking `beat` on a connection of its own, for a thread."""
        if self._in_memory:
            return None
        connection = connect(self._path)
        self._connections.append(connection)
        core = Core(connection)

        def beat(session: int) -> Beat:
            with translated(self._path):
                return core.beat(session)

        return beat

    # -- queues ------------------------------------------------------------------------------

    async def dequeue(
        self,
        session: int,
        queues: Sequence[str],
        known: frozenset[tuple[str, str]],
        limit: int,
        now: int,
    ) -> list[Claimed]:
        """Take ready tasks."""
        return await self._write(self._dequeue, session, queues, known, limit, now)

    def _dequeue(
        self,
        session: int,
        queues: Sequence[str],
        known: frozenset[tuple[str, str]],
        limit: int,
        now: int,
    ) -> list[Claimed]:
        begin(self._connection)
        try:
            dequeuer = Dequeuer(self._connection, self._writer_reads, session, now)
            claimed = dequeuer.take(queues, known_json(known), limit)
            self._connection.execute("COMMIT")
        except BaseException:
            roll_back(self._connection)
            raise
        return claimed

    async def missing(
        self, queues: Sequence[str], known: frozenset[tuple[str, str]]
    ) -> list[MissingWorkflow]:
        """Tell for which workflow versions outside `known` ready tasks wait."""
        return await self._read(self._reads.missing, queues, known)

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

    async def closed(self, eids: Sequence[UUID]) -> list[UUID]:
        """Tell which of these executions have ended or do not exist."""
        return await self._read(self._reads.closed, eids)

    async def journal(self, eid: UUID, after: int = 0) -> list[JournalRow]:
        """Read the rows of a journal that hold an entry after number `after`."""
        return await self._read(self._reads.journal, eid, after)

    async def sites(self, ids: Sequence[int]) -> dict[int, Site]:
        """Read interned sites."""
        return await self._read(self._reads.sites, ids)

    async def mail(self, eid: UUID) -> Mail | None:
        """Read the wake counter and the unread messages of an execution, together."""
        return await self._read(self._reads.mail, eid)

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

    async def info(self) -> StoreInfo:
        """Tell what the store is and holds."""
        return await self._read(self._reads.info)

    async def changed(self) -> bool:
        """Tell whether another connection has committed since the last call."""
        if self._in_memory:
            return False
        self._check_open()
        return await self._writer.call(self._has_changed)

    def _has_changed(self) -> bool:
        with translated(self._path):
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
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
    if path != ":memory:":
        _check_folder(url, path)
    connection = connect(path)
    try:
        prepare(connection, path, url)
        return SqliteStore(url, path, connection)
    except BaseException:
        connection.close()
        raise


def _check_folder(url: str, path: str) -> None:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        message = f"store {url}: the directory {folder} does not exist; make it first"
        raise StoreUnavailable(message)


def _path(url: str) -> str:
    if url == "memory:":
        return ":memory:"
    path = url.removeprefix("sqlite:///")
    if path == url or not path or path.endswith("/") or "?" in path or "\0" in path:
        message = (
            f"{url!r} is not a SQLite URL; give sqlite:///perdure.db, or sqlite:////srv/perdure.db "
            "for an absolute path"
        )
        raise InvalidArgument(message)
    return path
