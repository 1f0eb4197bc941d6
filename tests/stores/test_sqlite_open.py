"""What can a SQLite URL name, and what is refused? A file that is not ours is left as it is."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.errors import InvalidArgument, SchemaTooNew, StoreUnavailable
from perdure.ports.store import Session
from perdure.stores.sqlite import SqliteStore, connection, open_sqlite
from perdure.stores.sqlite import store as sqlite_store
from perdure.stores.sqlite.statements import SCHEMA_VERSION
from perdure.testing.contract.stage import ENGINE_SITE, NOW, TTL_S, WORKER_SITE, Stage
from perdure.wiring import open_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _nothing_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a directory of its own. What was not closed complains when it is collected."""
    monkeypatch.chdir(tmp_path)
    yield
    gc.collect()
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("perdure-")}


def files(folder: Path) -> list[str]:
    """List what is in a folder."""
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:x",
        "perdure.db",
        "postgresql://db",
        "sqlite",
        "sqlite:",
        "sqlite:perdure.db",
        "sqlite:/perdure.db",
        "sqlite://",
        "sqlite://perdure.db",
        "sqlite:///",
        "sqlite:////",
        "sqlite:///folder/",
        "sqlite:///:memory:",
        "sqlite:///perdure.db?mode=ro",
        "sqlite:///perdure\0.db",
        None,
        7,
    ],
)
async def test_malformed_url_is_refused_and_creates_nothing(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await open_store(url)
    assert repr(url) in str(caught.value)
    assert "give" in str(caught.value)
    assert "sqlite:///perdure.db" in str(caught.value)
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["missing/x.db", "file/x.db", "file/y/x.db", "folder", "."])
async def test_place_that_can_hold_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreUnavailable) as caught:
        await open_store(f"sqlite:///{name}")
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert "check that its directory exists and is writable, and that it is a file" in message
    assert files(tmp_path) == ["file", "folder"]


@pytest.mark.parametrize("body", [b"hello\n", b"not a database" * 1_000])
async def test_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(body)
    with pytest.raises(StoreUnavailable, match="it is no SQLite database; give another path"):
        await open_store("sqlite:///notes.txt")
    assert path.read_bytes() == body
    assert files(tmp_path) == [path.name]


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE customers (id INTEGER PRIMARY KEY)",
        "CREATE TABLE meta (key TEXT, value); INSERT INTO meta VALUES ('schema_version', 'x')",
        "PRAGMA application_id = 7",
        "PRAGMA application_id = 7; CREATE TABLE meta (value)",
    ],
)
async def test_database_of_something_else_is_left_as_it_is(tmp_path: Path, script: str) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="a database of something else; give a file of its"):
        await open_store("sqlite:///shop.db")
    assert path.read_bytes() == before
    assert files(tmp_path) == [path.name]


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
async def test_newer_schema_is_left_as_it_is(tmp_path: Path, journal_mode: str) -> None:
    path = tmp_path / "new.db"
    await (await open_store("sqlite:///new.db")).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE key = 'schema_version'")
        connection.execute(f"PRAGMA journal_mode = {journal_mode}")
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match="upgrade perdure") as caught:
        await open_store("sqlite:///new.db")
    assert (caught.value.found, caught.value.supported) == (99, SCHEMA_VERSION)
    assert path.read_bytes() == before
    assert files(tmp_path) == [path.name]


async def test_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    for url in ("sqlite:///x.db", "memory:"):
        with pytest.raises(StoreUnavailable) as caught:
            await open_store(url)
        assert str(caught.value) == (
            "this Python comes with SQLite 3.34.1, perdure needs 3.35 or newer; use another Python"
        )
    assert files(tmp_path) == []


async def test_file_says_what_it_is(tmp_path: Path) -> None:
    await (await open_store("sqlite:///x.db")).close()
    path = tmp_path / "x.db"
    assert files(tmp_path) == [path.name], "the log is gone when the last one closes"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x70657264,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT * FROM meta").fetchall() == [
            ("schema_version", SCHEMA_VERSION)
        ]


async def test_relative_path_stays_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may change its directory while the store is open."""
    store = await open_sqlite("sqlite:///x.db")
    stage = await Stage.set_up(store)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    own_beat = store.own_beat()
    assert own_beat is not None
    await asyncio.to_thread(own_beat, stage.worker.session)
    assert [one.beat for one in await store.sessions()] == [1]
    await store.close()
    assert files(tmp_path) == ["elsewhere", "x.db"]


async def test_open_again_finds_everything(url: str) -> None:
    if url == "memory:":
        return
    stage = await Stage.set_up(await open_store(url))
    eids = [await stage.create() for _ in range(3)]
    await stage.dequeue(limit=2)
    await stage.store.close()
    again = await open_store(url)
    assert (await again.info()).executions == {"pending": 1, "running": 2}
    assert {own.eid for own in (await again.beat(stage.worker.session)).owned} == set(eids[:2])
    await again.close()


async def test_memory_is_empty_each_time() -> None:
    stage = await Stage.set_up(await open_store("memory:"))
    other = await open_store("memory:")
    await stage.create()
    assert (await other.info()).executions == {}
    assert not stage.store.shared
    await other.close()
    await stage.store.close()


def test_threads_may_open_a_fresh_file_at_once() -> None:
    barrier = threading.Barrier(6)
    opened: list[Session] = []

    async def work(number: int) -> None:
        barrier.wait()
        store = await open_store("sqlite:///fresh.db")
        opened.append(await store.open_session(WORKER_SITE, TTL_S, NOW + number))
        await store.close()

    threads = [threading.Thread(target=asyncio.run, args=(work(n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.session for one in opened}) == 6


PROCESS = """
import asyncio, sys
from perdure.model.provenance import Site
from perdure.wiring import open_store

async def main():
    store = await open_store(sys.argv[1])
    print((await store.open_session(Site("h", 1), 30.0, 1)).session)
    await store.close()

print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""


def test_processes_may_open_a_fresh_file_at_once(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROCESS, f"sqlite:///{tmp_path / 'fresh.db'}"]
    processes = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    sessions = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len({*sessions}) == 3


async def test_connections_that_were_opened_are_closed_if_another_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three are opened, one after the other; each may find that no more files can be open."""
    connect = connection.connect
    left = 0

    def fail(path: str, *, reader: bool = False) -> sqlite3.Connection:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreUnavailable("no more files")
        return connect(path, reader=reader)

    monkeypatch.setattr(sqlite_store, "connect", fail)
    for number in range(3):
        left = number
        with pytest.raises(StoreUnavailable, match="no more files"):
            await open_sqlite("sqlite:///x.db")


async def test_sessions_of_those_who_vanished_are_forgotten_after_a_day(url: str) -> None:
    store = await open_sqlite(url)
    day = 86_400_000_000
    keeps = await store.open_session(WORKER_SITE, TTL_S, NOW)
    for _ in range(5):
        await store.open_session(ENGINE_SITE, None, NOW)
    assert sessions_in(store) == 6
    await store.open_session(ENGINE_SITE, None, NOW + day)
    assert sessions_in(store) == 7
    await store.open_session(ENGINE_SITE, None, NOW + day + 1)
    assert sessions_in(store) == 3
    assert [one.session for one in await store.sessions()] == [keeps.session]
    await store.close()


def sessions_in(store: SqliteStore) -> int:
    rows = store._connection.execute("SELECT id FROM sessions").fetchall()  # noqa: SLF001
    return len(rows)
