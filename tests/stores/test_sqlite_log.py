"""Does the write-ahead log stay small? However long, and by whomever, the file is written to."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.ports.commands import Append
from perdure.stores.sqlite import checkpoint, open_sqlite
from perdure.testing.contract.stage import Stage, new_eid
from tests.stores.support import staged

LOG_PAGES_MAX = 100
COMMITS_MAX = 5_000
ROUNDS = 3


@pytest.fixture(autouse=True)
def _short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "LOG_PAGES_MAX", LOG_PAGES_MAX)
    monkeypatch.setattr(checkpoint, "PAUSE_S", 0.001)


def round_of(path: Path) -> int:
    """Tell how often the log beside a file has started over: its header counts that."""
    with path.with_name(path.name + "-wal").open("rb") as log:
        return int.from_bytes(log.read(16)[12:])


async def write(stage: Stage, path: Path) -> bool:
    """Commit without a rest until the log has started over a few times; tell whether it has."""
    eid, site = new_eid(), stage.worker.site
    first = round_of(path)
    for number in range(1, COMMITS_MAX):
        await stage.apply(Append(eid, 1, site, number, 1, b"x" * 3_000))
        if round_of(path) >= first + ROUNDS:
            return True
    return False


async def test_log_starts_over_while_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    async with staged(f"sqlite:///{path}") as (stage, _):
        assert await write(stage, path)


async def test_log_starts_over_while_several_write_and_read(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    url = f"sqlite:///{path}"
    started_over: list[bool] = []
    done = threading.Event()

    async def work() -> None:
        async with staged(url) as (stage, _):
            started_over.append(await write(stage, path))

    async def read() -> None:
        store = await open_sqlite(url)
        while not done.is_set():
            await store.info()
        await store.close()

    store = await open_sqlite(url)
    writers = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(2)]
    reader = threading.Thread(target=asyncio.run, args=(read(),))
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        await asyncio.to_thread(thread.join)
    done.set()
    await asyncio.to_thread(reader.join)
    await store.close()
    assert started_over == [True, True]


async def test_log_starts_over_while_a_worker_only_beats(tmp_path: Path) -> None:
    """An idle worker writes nothing else for weeks."""
    path = tmp_path / "x.db"
    async with staged(f"sqlite:///{path}") as (stage, store):
        own_beat = store.own_beat()
        assert own_beat is not None

        def beat() -> bool:
            first = round_of(path)
            for _ in range(COMMITS_MAX):
                own_beat(stage.worker.session)
                if round_of(path) >= first + ROUNDS:
                    return True
            return False

        assert await asyncio.to_thread(beat)


async def test_log_is_gone_when_the_last_one_closes(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    async with staged(f"sqlite:///{path}") as (stage, _):
        await stage.create()
        assert round_of(path) == 0
    assert [file.name for file in path.parent.iterdir()] == ["x.db"]


async def test_store_may_be_closed_while_its_log_is_about_to_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word that it is over must not get lost in the word that there is something to do."""
    reached, closing = threading.Event(), threading.Event()
    sets: list[threading.Event] = []

    class Slow(threading.Event):
        def clear(self) -> None:
            reached.set()
            closing.wait()
            super().clear()

        def set(self) -> None:
            super().set()
            if reached.is_set():
                sets.append(self)
            if len(sets) == 2:
                closing.set()

    threads = SimpleNamespace(Event=Slow, Thread=threading.Thread)
    monkeypatch.setattr(checkpoint, "threading", threads)
    async with staged(f"sqlite:///{tmp_path / 'x.db'}"):
        await asyncio.to_thread(reached.wait)
    assert len(sets) == 2
