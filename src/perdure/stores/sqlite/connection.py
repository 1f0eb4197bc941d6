"""How is the file opened? Connections and their settings, the schema, and errors in our words."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from perdure.errors import InvalidArgument, SchemaTooNew, StoreUnavailable
from perdure.stores.sqlite.statements import APPLICATION_ID, SCHEMA, SCHEMA_VERSION

T = TypeVar("T")

OLDEST_SQLITE = (3, 35)  # the first with RETURNING
LOCK_PATIENCE_S = 30.0
LOG_SIZE = 16 * 1024 * 1024  # bytes
LOCK_PAUSE_S = (0.0005, 0.002)

Connection = sqlite3.Connection

LENT = (
    "this connection is lent to a transactional step, whose transaction commits with its memo: "
    "leave that, and everything about transactions, to perdure"
)


class Lendable(sqlite3.Connection):
    """A connection that can be lent: then whoever has it cannot end the transaction."""

    lent = False

    def lend(self, authorizer: Callable[..., int]) -> None:
        """Lend it, with what the authorizer allows."""
        self.set_authorizer(authorizer)
        self.lent = True

    def take_back(self) -> None:
        """Have it back as it was."""
        self.lent = False
        self.row_factory, self.text_factory = None, str
        self.set_authorizer(None)

    def _refuse(self) -> None:
        if self.lent:
            raise InvalidArgument(LENT)

    def commit(self) -> None:
        """Commit, unless it is lent."""
        self._refuse()
        super().commit()

    def rollback(self) -> None:
        """Roll back, unless it is lent."""
        self._refuse()
        super().rollback()

    def close(self) -> None:
        """Close, unless it is lent."""
        self._refuse()
        super().close()

    def executescript(self, *script: Any) -> Any:
        """Run a script, which commits first, unless it is lent."""
        self._refuse()
        return super().executescript(*script)

    def set_authorizer(self, *authorizer: Any) -> None:
        """Set what is allowed, unless it is lent."""
        self._refuse()
        super().set_authorizer(*authorizer)

    def __exit__(self, *raised: object) -> Literal[False]:
        """End a ``with`` block; while it is lent that ends no transaction."""
        return False if self.lent else super().__exit__(*raised)  # type: ignore[arg-type]


def connect(path: str, *, reader: bool = False) -> Lendable:
    """Open a connection to the file at `path`, or to memory.

    Raises:
        StoreUnavailable: if it cannot be opened.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        message = (
            f"this Python comes with SQLite {sqlite3.sqlite_version}, perdure needs {oldest} or "
            "newer; use another Python"
        )
        raise StoreUnavailable(message)
    with translated(path):
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
            # A reader only waits while a log is recovered after a crash. For writers see `_wait`.
            timeout=LOCK_PATIENCE_S if reader else 0,
            factory=Lendable,
        )
    try:
        with translated(path):
            _wait(lambda: connection.execute("PRAGMA synchronous = FULL"))
            # Checkpoints run off the commit path, see `checkpoint`.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            # A log that was long for once is cut when it starts over.
            connection.execute(f"PRAGMA journal_size_limit = {LOG_SIZE}")
            connection.execute("PRAGMA temp_store = MEMORY")
            if reader:
                connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: Connection, path: str, url: str) -> None:
    """Create the schema in an empty file; refuse any other file that is not ours, untouched.

    Raises:
        SchemaTooNew: if a newer perdure wrote the file.
        StoreUnavailable: if the file is no store.
    """
    with translated(path):
        version = _wait(lambda: _read_version(connection, path))
        if version is not None and version > SCHEMA_VERSION:
            raise SchemaTooNew(url, version, SCHEMA_VERSION)
        if version is not None and version < SCHEMA_VERSION:
            message = (
                f"store {path}: a version of perdure before its first release wrote it; give "
                "another file, or finish its executions with that version"
            )
            raise StoreUnavailable(message)
        if path != ":memory:":
            _wait(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
        if version is None:
            in_transaction(connection, lambda: _create(connection, path))


def _create(connection: Connection, path: str) -> None:
    if _read_version(connection, path) is None:  # nobody else was faster
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)


def _read_version(connection: Connection, path: str) -> int | None:
    """Read the schema version; ``None`` if the file is empty."""
    application, used = connection.execute(
        "SELECT application_id, EXISTS (SELECT 1 FROM sqlite_master) FROM pragma_application_id"
    ).fetchone()
    if application == APPLICATION_ID:
        statement = "SELECT value FROM meta WHERE key = 'schema_version'"
        return int(connection.execute(statement).fetchone()[0])
    if application or used:
        message = f"store {path}: it is a database of something else; give a file of its own"
        raise StoreUnavailable(message)
    return None


def in_transaction(connection: Connection, work: Callable[[], T], *, kind: str = "IMMEDIATE") -> T:
    """Do `work` in a transaction, by default one that writes; whatever it raises undoes it."""
    begin(connection, kind)
    try:
        result = work()
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return result


def file_of(path: str) -> tuple[int, int] | None:
    """Tell which file stands at `path`; ``None`` if there is none any more."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def begin(connection: Connection, kind: str) -> None:
    """Begin a transaction."""
    if connection.in_transaction:  # it could not be undone when it failed; maybe it can be now
        connection.execute("ROLLBACK")
    _wait(lambda: connection.execute(f"BEGIN {kind}"))


def data_version(connection: Connection) -> int:
    """Give a number that another one follows when another connection commits."""
    version: int = _wait(lambda: connection.execute("PRAGMA data_version").fetchone())[0]
    return version


def roll_back(connection: Connection) -> None:
    """Undo the open transaction; after some errors SQLite has done so itself."""
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _wait(action: Callable[[], T]) -> T:
    """Repeat `action` while another connection holds the lock it needs, at most half a minute.

    The pauses are ours: the busy handler of SQLite sleeps up to a tenth of a second.
    """
    give_up = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(random.uniform(*LOCK_PAUSE_S))  # noqa: S311 - a pause, no secret


_ADVICE = {
    sqlite3.SQLITE_BUSY: "another process holds its lock; end it, or give another file",
    sqlite3.SQLITE_FULL: "the disk is full; make room, work goes on by itself",
    sqlite3.SQLITE_IOERR: "the disk failed; check it, and its free space",
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened; check that its directory exists and is writable, and that it is a "
        "file"
    ),
    sqlite3.SQLITE_READONLY: "it cannot be written; check its permissions",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database; give another path",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore a copy",
}


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise errors of SQLite as `StoreUnavailable`, with what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise unavailable(path, error) from error


def unavailable(path: str, error: sqlite3.Error) -> StoreUnavailable:
    """Say what an error of SQLite means, and what to do about it."""
    advice = _ADVICE.get(_code(error), "it cannot be used")
    return StoreUnavailable(f"store {path}: {advice} ({error})")


def _code(error: sqlite3.Error) -> int:
    """Give the primary error code; -1 for an error of the Python module itself."""
    return getattr(error, "sqlite_errorcode", -1) & 0xFF
