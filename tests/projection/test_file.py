"""What if something is wrong with the file? It is opened again, made anew, or done without."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from perdure.projection import SqliteProjection
from perdure.projection.statements import SCHEMA_VERSION
from perdure.stores.sqlite import open_sqlite
from perdure.testing import ManualClock
from tests.projection.support import Log, names

A, B = UUID(int=1), UUID(int=2)


@asynccontextmanager
async def opened(log: Log, path: Path) -> AsyncIterator[SqliteProjection]:
    """Open a view in a file."""
    view = SqliteProjection(log.store, str(path), ManualClock())
    try:
        yield view
    finally:
        await view.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db-projection"


def body_of(path: Path) -> bytes:
    """Read a file."""
    return path.read_bytes()


def version_of(path: Path) -> int:
    """Read the schema version of a file."""
    connection = sqlite3.connect(path)
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return found


async def test_nothing_is_opened_before_it_is_used(log: Log, path: Path) -> None:
    async with opened(log, path):
        pass
    assert names(path.parent) == []


async def test_what_was_applied_is_kept(log: Log, path: Path) -> None:
    log.create(A)
    async with opened(log, path) as view:
        await view.refresh()
    log.create(B)
    del log.entries[0]  # only the file knows of it now
    async with opened(log, path) as view:
        assert await view.counts() == {"pending": 2}
    assert names(path.parent) == [path.name]


def damage_all(path: Path) -> None:
    path.write_bytes(b"no database, but something" * 1_000)


def damage_inside(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[1024:] = b"\xee" * (len(body) - 1024)
    path.write_bytes(body)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def execute(statement: str) -> Callable[[Path], None]:
    """Give a change that a statement makes."""

    def change(path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.commit()
        connection.close()

    change.__name__ = statement
    return change


@pytest.mark.parametrize(
    "break_it",
    [
        damage_all,
        damage_inside,
        cut,
        empty,
        Path.unlink,
        execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}"),
        execute("PRAGMA application_id = 0"),
        execute("DROP TABLE reviews"),
        execute("DROP TABLE progress"),
        execute("UPDATE progress SET position = 0, eid = x'', at = 0"),
    ],
    ids=lambda change: change.__name__,
)
@pytest.mark.parametrize("when", ["closed", "open"])
async def test_a_broken_file_is_made_anew(
    log: Log,
    path: Path,
    break_it: Callable[[Path], None],
    when: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in range(300):
        log.create(UUID(int=number + 10), key=f"key {number}")
    log.announce(A, "told", 1)
    async with opened(log, path) as view:
        await view.refresh()
        if when == "open":
            break_it(path)
            log.create(A)
            assert await view.counts() == {"pending": 301}
            assert (await view.reviews()).items == ()
    if when == "closed":
        break_it(path)
        log.create(A)
    async with opened(log, path) as view:
        assert await view.counts() == {"pending": 301}
        assert (await view.reviews()).items == ()
    assert version_of(path) == SCHEMA_VERSION
    assert not caplog.records


async def test_a_file_that_another_process_made_anew_is_shared_again(log: Log, path: Path) -> None:
    log.create(A)
    async with opened(log, path) as one, opened(log, path) as other:
        await one.refresh()
        Path.unlink(path)
        await other.refresh()
        execute("CREATE TABLE mark (x)")(path)
        log.create(B)
        assert await one.counts() == await other.counts() == {"pending": 2}
        execute("DROP TABLE mark")(path)


@pytest.mark.parametrize("obstacle", ["no folder", "a folder of that name"])
async def test_without_a_file_it_is_kept_in_memory(
    log: Log, tmp_path: Path, obstacle: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gone" / "view" if obstacle == "no folder" else tmp_path
    log.create(A)
    async with opened(log, path) as view:
        with caplog.at_level(logging.WARNING, "perdure.projection"):
            assert await view.counts() == {"pending": 1}
            log.create(B)
            assert await view.counts() == {"pending": 2}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(path) in caplog.text
    assert names(tmp_path) == []


async def test_a_disk_that_is_full_is_done_without(
    log: Log, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect = sqlite3.connect

    def full(target: str, **settings: object) -> sqlite3.Connection:
        connection = connect(target, **settings)  # type: ignore[call-overload]
        if target != ":memory:":
            connection.execute("PRAGMA max_page_count = 2")
        assert isinstance(connection, sqlite3.Connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", full)
    log.create(A)
    async with opened(log, path) as view:
        assert await view.counts() == {"pending": 1}
    assert "in memory" in caplog.text


async def test_a_store_in_its_place_is_left_alone(
    log: Log, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await (await open_sqlite(f"sqlite:///{path}")).close()
    before = body_of(path)
    log.create(A)
    async with opened(log, path) as view:
        assert await view.counts() == {"pending": 1}
    assert body_of(path) == before
    assert "something else" in caplog.text
