"""How is the file opened? Connections and their settings, the schema, and errors in our words."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Iterator

from perdure.errors import SchemaTooNew, StoreUnavailable
from perdure.stores.sqlite.statements import SCHEMA, SCHEMA_VERSION

LOCK_PATIENCE_S = 30.0
LOCK_PAUSE_S = (0.0005, 0.002)

Connection = sqlite3.Connection


def connect(path: str, *, reader: bool = False) -> Connection:
    """Open a connection to the file at `path`, or to memory.

    Raises:
        StoreUnavailable: if it cannot be opened.
    """
    with translated(path):
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=512, timeout=0
        )
    try:
        with translated(path):
            if path != ":memory:":
                _retry(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
            connection.execute("PRAGMA synchronous = FULL")
            # Checkpoints run off the commit path, see `store.SqliteStore`.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            if reader:
                connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: Connection, path: str, url: str) -> None:
    """Create the schema in an empty file, and refuse one that a newer perdure wrote.

    Raises:
        SchemaTooNew: if the file is of a newer version; it is left untouched.
        StoreUnavailable: if the file is no store.
    """
    with translated(path):
        version = read_version(connection)
        if version is None:
            begin(connection)
            if read_version(connection) is None:  # nobody else was faster
                _check_empty(connection, path)
                for statement in SCHEMA.split(";\n"):
                    connection.execute(statement)
            connection.execute("COMMIT")
            version = SCHEMA_VERSION
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(url, version, SCHEMA_VERSION)


def read_version(connection: Connection) -> int | None:
    """Read the schema version; ``None`` if there is no schema yet."""
    found = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    ).fetchone()
    if found is None:
        return None
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    return None if row is None else int(row[0])


def _check_empty(connection: Connection, path: str) -> None:
    if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
        connection.execute("ROLLBACK")
        message = f"{path} is a database of something else; give a file of its own"
        raise StoreUnavailable(message)


def begin(connection: Connection) -> None:
    """Begin a transaction that writes; wait for other writers, at most half a minute.

    The pauses are ours: the busy handler of SQLite sleeps up to a second.
    """
    _retry(lambda: connection.execute("BEGIN IMMEDIATE"))


def _retry(action: object) -> None:
    assert callable(action)  # noqa: S101
    give_up = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(random.uniform(*LOCK_PAUSE_S))  # noqa: S311 - a pause, no secret
        else:
            return


def roll_back(connection: Connection) -> None:
    """Undo the open transaction, if there is one."""
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


_ADVICE = {
    sqlite3.SQLITE_BUSY: "another process holds its lock; end it, or give another file",
    sqlite3.SQLITE_FULL: "the disk is full; make room, work goes on by itself",
    sqlite3.SQLITE_IOERR: "the disk failed; check it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that its directory exists and is writable",
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
    code = getattr(error, "sqlite_errorcode", None)
    advice = _ADVICE.get(code & 0xFF if code is not None else -1, "it cannot be used")
    return StoreUnavailable(f"store {path}: {advice} ({error})")
