"""How does a user's function write in our transaction? On a connection that is lent to it.

A lent connection cannot end the transaction, nor write our tables. When its time is over nothing
can be done on it any more, and the transaction is undone at once, whatever the function is doing.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from perdure.errors import InvalidArgument
from perdure.ports.commands import CreateExecution, Outcome, Refused, Transition
from perdure.ports.store import OutOfTime
from perdure.stores.sqlite.connection import (
    Lendable,
    begin,
    connect,
    file_of,
    roll_back,
    unavailable,
)
from perdure.stores.sqlite.core import Core
from perdure.stores.sqlite.statements import SCHEMA

OWN_TABLES = frozenset(name.lower() for name in re.findall(r"CREATE TABLE (\w+)", SCHEMA))

_ENDS = frozenset({sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH})
_READS = frozenset(
    {
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_SAVEPOINT,
    }
)
_ROWS = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})

Run = Callable[[Any], Transition]


def _lent(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Say what a user may do: all but to end the transaction, or to change what is ours."""
    if action in _READS:
        return sqlite3.SQLITE_OK
    denied = action in _ENDS
    if action == sqlite3.SQLITE_PRAGMA:
        denied = second is not None
    elif action in _ROWS:
        denied = (first or "").lower() in OWN_TABLES
    elif not denied:
        denied = bool({(first or "").lower(), (second or "").lower()} & OWN_TABLES)
    return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK


def _over(action: int, first: str | None, *_: object) -> int:
    """Say what may be done when the time is over: to undo the transaction."""
    undo = action == sqlite3.SQLITE_TRANSACTION and first == "ROLLBACK"
    return sqlite3.SQLITE_OK if undo else sqlite3.SQLITE_DENY


class Loan:
    """One transaction that a user's function takes part in."""

    def __init__(self, path: str, run: Run, seconds: float) -> None:
        """Prepare it: `run` is given the connection, and gives the transition to apply with it."""
        self._path = path
        self._run = run
        self._seconds = seconds
        self._lock = threading.Lock()
        self._ended = False

    def make(
        self, connection: Lendable | None = None, *, expired: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Make the transaction: on `connection`, or on one of its own, which it closes.

        Args:
            connection: the connection of a store in memory.
            expired: is called when the time is over, and everything is undone; the function may
                still run then.

        Raises:
            OutOfTime: if the function took too long; the transaction was undone.
            StoreUnavailable: if the store cannot write.
            BaseException: whatever the function raised; the transaction was undone.
        """
        if connection is not None:
            return self._transact(connection, None)
        own = connect(self._path)
        try:
            return self._transact(own, expired)
        finally:
            own.lent = False
            own.close()

    def _transact(self, connection: Lendable, expired: Callable[[], None] | None) -> Outcome:
        try:
            begin(connection, "IMMEDIATE")
        except sqlite3.Error as error:
            raise unavailable(self._path, error) from error
        timer = threading.Timer(self._seconds, self._expire, (connection, expired))
        timer.daemon = True
        if expired is not None:
            timer.start()
        began = time.monotonic()
        try:
            connection.lend(_lent)
            transition = self._run(connection)
            late = time.monotonic() - began > self._seconds
        except BaseException:
            if self._end():
                connection.take_back()
                roll_back(connection)
                raise
            raise OutOfTime from None
        finally:
            timer.cancel()
        if not self._end():
            raise OutOfTime
        connection.take_back()
        try:
            return self._finish(connection, transition, late=late)
        except sqlite3.Error as error:
            roll_back(connection)
            raise unavailable(self._path, error) from error
        except BaseException:
            roll_back(connection)
            raise

    def _finish(self, connection: Lendable, transition: Transition, *, late: bool) -> Outcome:
        if late:
            raise OutOfTime
        if not connection.in_transaction:
            message = (
                "the function's SQL has ended the transaction (a conflict clause OR ROLLBACK does "
                "that); leave it to perdure"
            )
            raise InvalidArgument(message)
        outcome = Core(connection).apply(transition)
        if isinstance(outcome, Refused):
            roll_back(connection)
        else:
            connection.execute("COMMIT")
        return outcome

    def _end(self) -> bool:
        """End the loan; tell whether it was still in time."""
        with self._lock:
            in_time, self._ended = not self._ended, True
            return in_time

    def _expire(self, connection: Lendable, expired: Callable[[], None]) -> None:
        """Take the connection away from a function that has taken too long."""
        if self._end():
            connection.interrupt()
            connection.lent = False
            connection.set_authorizer(_over)
            connection.lent = True
            roll_back(connection)
            expired()


def create_in(path: str, connection: object, creation: CreateExecution) -> Outcome:
    """Create an execution on the connection of somebody else, who commits.

    Raises:
        InvalidArgument: if it is no connection to the file at `path`.
    """
    if not isinstance(connection, sqlite3.Connection):
        message = f"connection is {connection!r}; give a sqlite3.Connection to the store's file"
        raise InvalidArgument(message)
    factories = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        files = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
        if file_of(files[0]) != file_of(path) or not files[0]:
            message = f"connection is open on {files[0]!r}; open it on the store's file, {path}"
            raise InvalidArgument(message)
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        return Core(connection).apply(Transition((creation,)))
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    finally:
        connection.row_factory, connection.text_factory = factories
