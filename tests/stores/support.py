"""What do the tests of the SQLite store share? A store on a file, and ways to break it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.stores.sqlite import SqliteStore, connection, open_sqlite
from perdure.testing.contract.stage import Stage

ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def staged(url: str) -> AsyncIterator[tuple[Stage, SqliteStore]]:
    """Open a store with sessions, and close it."""
    store = await open_sqlite(url)
    try:
        yield await Stage.set_up(store), store
    finally:
        await store.close()


def writer_of(store: SqliteStore) -> sqlite3.Connection:
    """Give the connection that writes, which has no public door."""
    return store._connection  # noqa: SLF001


def fill(store: SqliteStore) -> None:
    """Let the disk be full: the file may not grow any more."""
    (pages,) = writer_of(store).execute("PRAGMA page_count").fetchone()
    writer_of(store).execute(f"PRAGMA max_page_count = {pages}")


def make_room(store: SqliteStore) -> None:
    """Let the file grow again."""
    writer_of(store).execute("PRAGMA max_page_count = 1000000")


class Patience:
    """Takes the place of the pauses in which a writer waits for a lock.

    Attributes:
        waiting: is set when somebody waits.
        over: ends the pause.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, seconds: float = 0.0) -> None:
        """Let each pause take so many seconds of a clock that nothing else moves."""
        self.waiting = threading.Event()
        self.over = threading.Event()
        self._seconds = seconds
        self._now = 0.0
        clock = SimpleNamespace(sleep=self._sleep, monotonic=lambda: self._now)
        monkeypatch.setattr(connection, "time", clock)

    def _sleep(self, _: float) -> None:
        self.waiting.set()
        self.over.wait()
        self._now += self._seconds
