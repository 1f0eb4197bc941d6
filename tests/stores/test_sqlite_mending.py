"""Does the SQLite store get over what has failed, and leave others alone while it has no work?"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from perdure.errors import StoreUnavailable
from perdure.model.provenance import Site
from perdure.ports.commands import Append, Transition
from perdure.stores.sqlite import SqliteStore, open_sqlite
from perdure.stores.sqlite.connection import in_transaction

DAY_US = 86_400_000_000
SITE = Site("host", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await open_sqlite(f"sqlite:///{path}")
    yield store
    await store.close()


class Failing:
    """A connection on which the next commit fails, and the rollback after it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._left = ["COMMIT", "ROLLBACK"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if self._left and sql == self._left[0]:
            del self._left[0]
            message = "disk I/O error"
            raise sqlite3.OperationalError(message)
        return self._connection.execute(sql, *args)


def test_a_transaction_that_could_not_be_undone_is_undone_by_the_next_one() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as real:
        real.execute("CREATE TABLE t (x)")
        connection: Any = Failing(real)
        with pytest.raises(sqlite3.OperationalError):
            in_transaction(connection, lambda: real.execute("INSERT INTO t VALUES (1)"))
        in_transaction(connection, lambda: real.execute("INSERT INTO t VALUES (2)"))
        assert real.execute("SELECT x FROM t").fetchall() == [(2,)]


async def test_a_dequeue_in_vain_does_not_wait_for_the_lock(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.open_session(SITE, 30.0, 0)
    monkeypatch.setattr("perdure.stores.sqlite.connection.LOCK_PATIENCE_S", 0.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await store.dequeue(session.session, ["default"], frozenset(), 10, 0) == []
        with pytest.raises(StoreUnavailable):
            await store.beat(session.session)


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
async def test_a_store_that_was_just_opened_has_not_changed(url: str, path: Path) -> None:
    store = await open_sqlite(f"sqlite:///{path}" if url == "sqlite" else url)
    assert await store.changed() is False
    await store.close()


async def test_a_session_that_only_appends_is_not_purged(store: SqliteStore) -> None:
    session = (await store.open_session(SITE, None, 0)).session
    eid = UUID(int=1)
    for day in range(1, 4):
        batch = [Transition((Append(eid, 1, 1, day, 1, b"[]"),))]
        await store.commit(session, day, batch)
        await store.open_session(SITE, None, day * DAY_US)
    await store.commit(session, 4, [])
