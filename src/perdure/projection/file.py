"""Where is the projection kept? In a file that may vanish, or in memory.

What is in it can be made again from the log, so nothing that is wrong with the file stops anybody:
it is opened again, else made anew, else done without.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from perdure.projection.statements import APPLICATION_ID, SCHEMA, SCHEMA_VERSION

T = TypeVar("T")

MEMORY = ":memory:"
LOCK_PATIENCE_S = 5.0

log = logging.getLogger("perdure.projection")


class _Foreign(Exception):
    """The file is a database of something else: it is left alone."""


class Database:
    """The connection to the file, whatever becomes of it. For one thread at a time."""

    def __init__(self, path: str | None) -> None:
        """Prepare one in the file at `path`, or in memory; it is opened when it is used."""
        self._path = MEMORY if path is None else path
        self._connection: Connection | None = None

    def run(self, work: Callable[[Connection], T], *, write: bool = False) -> T:
        """Do `work` in one transaction; it may find that nothing is applied any more."""
        for connect in (self._current, self._again, self._anew):
            try:
                return _in_transaction(connect(), work, write=write)
            except sqlite3.ProgrammingError:  # a mistake of ours
                raise
            except (sqlite3.Error, OSError) as error:
                log.debug("projection %s: %s", self._path, error)
            except _Foreign:
                break
        return _in_transaction(self._in_memory(), work, write=write)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- ways to a connection, each for when the one before does not work ----------------------

    def _current(self) -> Connection:
        if self._connection is None:
            self._connection = _open(self._path)
        return self._connection

    def _again(self) -> Connection:
        """Open it once more: it may have been removed, and another process has made it anew."""
        self.close()
        return self._current()

    def _anew(self) -> Connection:
        self.close()
        if self._path != MEMORY:
            for path in (self._path, f"{self._path}-journal"):
                Path(path).unlink(missing_ok=True)
        return self._current()

    def _in_memory(self) -> Connection:
        self.close()
        if self._path != MEMORY:
            log.warning(
                "projection %s cannot be used; it is kept in memory until the engine is closed: "
                "check that its directory is writable and has room, and that the file is not "
                "something else",
                self._path,
            )
            self._path = MEMORY
        return self._current()


def _open(path: str) -> Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=LOCK_PATIENCE_S
    )
    try:
        _in_transaction(connection, _prepare, write=True)
        # There is no write-ahead log: with a rollback journal SQLite notices at the next write that
        # the file was removed, and one that is made meanwhile shares nothing with it.
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: Connection) -> None:
    """Create the schema in an empty file; refuse any other one that is not of this version."""
    application, version, used = connection.execute(
        "SELECT application_id, user_version, EXISTS (SELECT 1 FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if not application and not used:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        for statement in SCHEMA:
            connection.execute(statement)
    elif (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
        if application not in (0, APPLICATION_ID):
            raise _Foreign
        message = "another version of the schema"
        raise sqlite3.DatabaseError(message)


def _in_transaction(connection: Connection, work: Callable[[Connection], T], *, write: bool) -> T:
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise
    return result
