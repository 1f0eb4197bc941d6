"""Who else is there, and when does it end? Two stores on one file, cancelled calls, closing."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from perdure.errors import StoreUnavailable
from perdure.ports.commands import CreateExecution, Transition
from perdure.stores.sqlite import SqliteStore, open_sqlite
from perdure.stores.sqlite import store as sqlite_store
from perdure.stores.sqlite.connection import connect
from perdure.testing.contract.stage import NOW, Stage, new_eid, record
from tests.stores.support import Patience, staged


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    """What was not closed complains when it is collected."""
    yield
    gc.collect()
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("perdure-")}


async def test_stores_on_one_file_see_each_others_commits(file_url: str) -> None:
    async with staged(file_url) as (one, store), staged(file_url) as (other, second):
        await store.changed()
        await second.changed()
        assert not await store.changed()
        eid = await other.create()
        assert await store.changed()
        assert not await store.changed()
        assert not await second.changed(), "one's own commits are known already"
        assert await store.record(eid) == await second.record(eid)
        (claimed,) = await one.dequeue()
        assert claimed.record.eid == eid
        assert await second.changed()
        assert await other.dequeue() == []
        await store.info()
        assert not await second.changed(), "who reads changes nothing"


async def test_nobody_else_commits_to_memory() -> None:
    async with staged("memory:") as (stage, store):
        await store.changed()
        await stage.create()
        assert not await store.changed()


async def test_cancelled_call_leaves_nothing_half_done(url: str) -> None:
    """What was under way is done as a whole, and the next number is the next one."""
    async with staged(url) as (stage, store):
        session = stage.engine.session
        for number in range(1, 21):
            batch = [Transition((CreateExecution(record(), NOW),)) for _ in range(50)]
            await cancelled(store.commit(session, number, batch))
        assert (await store.commit(session, 21, [])).outcomes == ()
        assert (await store.info()).executions == {"pending": 1_000}
        await cancelled(stage.dequeue(limit=7))
        assert len((await store.beat(stage.worker.session)).owned) == 7
        assert (await store.info()).executions == {"pending": 993, "running": 7}
        await cancelled(store.info())
        await cancelled(store.ended([new_eid()]))
        assert await store.changed() in (True, False)


async def cancelled(call: Coroutine[Any, Any, object]) -> None:
    """Begin a call, and give it up."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def test_close_waits_for_the_calls_under_way(file_url: str) -> None:
    """Each is done, or told that the store is closed; what was acknowledged is there."""
    for rounds in range(5):
        store = await open_sqlite(file_url)
        stage = await Stage.set_up(store)
        calls = [asyncio.create_task(stage.create(key=f"{rounds}:{n}")) for n in range(30)]
        reads = [asyncio.create_task(store.info()) for _ in range(30)]
        for _ in range(rounds):
            await asyncio.sleep(0)
        await store.close()
        outcomes = await asyncio.gather(*calls, *reads, return_exceptions=True)
        wrong = [one for one in outcomes if isinstance(one, Exception)]
        assert {type(error) for error in wrong} <= {StoreUnavailable}
        eids = [one for one in outcomes if isinstance(one, UUID)]
        async with staged(file_url) as (_, again):
            assert await again.ended(eids) == {}


async def test_close_that_is_cancelled_goes_on(file_url: str) -> None:
    store = await open_sqlite(file_url)
    await cancelled(store.close())
    with pytest.raises(StoreUnavailable, match="is closed; open it again"):
        await store.info()
    await store.close()


async def test_threads_may_beat_while_the_store_is_closed(file_url: str) -> None:
    for _ in range(10):
        store = await open_sqlite(file_url)
        stage = await Stage.set_up(store)
        own_beat = store.own_beat()
        assert own_beat is not None
        beaten = threading.Barrier(5)
        last: list[str] = []

        def beat(
            own_beat: Callable[[int], object] = own_beat,
            session: int = stage.worker.session,
            beaten: threading.Barrier = beaten,
            last: list[str] = last,
        ) -> None:
            own_beat(session)
            beaten.wait()
            try:
                while True:
                    own_beat(session)
            except StoreUnavailable as error:
                last.append(str(error))

        threads = [threading.Thread(target=beat) for _ in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(beaten.wait)
        await store.close()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert last == [f"store {file_url} is closed; open it again"] * 4


async def test_all_who_beat_share_one_connection(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that lives through many sessions does not run out of files."""
    async with staged(file_url) as (stage, store):
        opened: list[str] = []

        def count(path: str) -> sqlite3.Connection:
            opened.append(path)
            return connect(path)

        monkeypatch.setattr(sqlite_store, "connect", count)
        for number in range(1, 6):
            own_beat = store.own_beat()
            assert own_beat is not None
            await asyncio.to_thread(own_beat, stage.worker.session)
            assert [one.beat for one in await store.sessions()] == [number]
        assert len(opened) == 1


def test_answer_for_a_loop_that_is_gone(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program ends its event loop while a commit is under way: it is done all the same."""
    patience = Patience(monkeypatch)
    made = record()
    other = sqlite3.connect(file_url.removeprefix("sqlite:///"), isolation_level=None)

    async def begin() -> SqliteStore:
        store = await open_sqlite(file_url)
        stage = await Stage.set_up(store)
        other.execute("BEGIN IMMEDIATE")
        call = asyncio.create_task(stage.apply(CreateExecution(made, NOW)))
        await asyncio.to_thread(patience.waiting.wait)
        assert not call.done()
        return store

    async def end(store: SqliteStore) -> None:
        await store.close()
        async with staged(file_url) as (_, again):
            assert await again.record(made.eid) == made

    store = asyncio.run(begin())
    other.close()
    patience.over.set()
    asyncio.run(end(store))
