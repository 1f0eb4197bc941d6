"""When does the log move into the file? Off the commit path, a few times a second.

The log starts over only when all of it is copied and nobody reads from it. A writer that never
rests is always ahead of the copy, so once the log is long it lends a hand, between two commits.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading

from perdure.stores.sqlite.connection import Connection

PAUSE_S = 0.25
LOG_PAGES_MAX = 8_000


class Checkpointer:
    """Copies the log into the file, in a thread with a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        """Start the thread; it closes the connection when it ends."""
        self._connection = connection
        self._dirty = threading.Event()
        self._stopped = threading.Event()
        self._too_long = False
        self._thread = threading.Thread(target=self._run, name="perdure-checkpoint", daemon=True)
        self._thread.start()

    def written(self, writer: Connection) -> None:
        """Take notice of a commit of `writer`, which is between two transactions."""
        if not self._dirty.is_set():
            self._dirty.set()
        if self._too_long:
            self._too_long = False
            _checkpoint(writer, "RESTART")

    def close(self) -> None:
        """End the thread, and wait for that."""
        self._stopped.set()
        self._dirty.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._dirty.wait()
            if not self._stopped.wait(PAUSE_S):
                self._dirty.clear()
                self._too_long = _checkpoint(self._connection, "PASSIVE") > LOG_PAGES_MAX
        self._connection.close()


def _checkpoint(connection: Connection, mode: str) -> int:
    """Copy what can be copied; give the length of the log in pages, or 0 if nobody can tell."""
    with contextlib.suppress(sqlite3.Error):  # whoever writes meets the same trouble, and tells it
        _, pages, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return int(pages)
    return 0
