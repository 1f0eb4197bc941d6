"""What if the disk is full, the lock is held, or the process dies? Nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure import Context, Registry, StoreUnavailable
from perdure.model.provenance import Actor, Site
from perdure.ports.commands import CreateExecution, Done, Transition
from perdure.ports.store import Committed
from perdure.stores.sqlite import SqliteStore, open_sqlite
from perdure.testing.contract.stage import NOW, append, complete, record, send, suspend
from tests.stores.support import ROOT, Patience, fill, make_room, staged, writer_of

BIG = b"x" * 100_000


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.db'}"


async def test_full_disk_applies_nothing_and_the_same_batch_works_when_there_is_room(
    url: str,
) -> None:
    async with staged(url) as (stage, store):
        owned = await stage.own()
        eid = owned.record.eid
        asleep = await stage.suspended()
        before = (await store.info(), await store.control(), await store.journal(eid))
        session = await store.open_session(Site("h", 1), None, NOW)
        made = record(key="k")
        batch = [
            Transition(commands)
            for commands in (
                (CreateExecution(made, NOW),),
                (send(asleep, by=Actor.human("bob@example.com")),),
                (complete(owned), append(owned, 2, body=BIG)),
            )
        ]
        fill(store)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="the disk is full; make room, work goes on"):
                await store.commit(session.session, 1, batch)
        assert not writer_of(store).in_transaction
        assert (await store.info(), await store.control(), await store.journal(eid)) == before
        assert await store.record(made.eid) is None
        make_room(store)
        committed = await store.commit(session.session, 1, batch)
        assert committed.outcomes == (Done(((made.eid, False),)), Done((1,)), Done((None, None)))
        assert [row.body for row in await store.journal(eid)][1:] == [BIG]
        _, resumed = await stage.dequeue()
        assert [message.sent_by.id for message in resumed.mail.messages] == ["bob@example.com"]


async def test_full_disk_during_a_careful_batch(url: str) -> None:
    """A batch that is applied transition by transition is undone as a whole, too."""
    async with staged(url) as (stage, store):
        owned = await stage.own()
        fill(store)
        with pytest.raises(StoreUnavailable, match="full"):
            await stage.batch(
                (append(owned, 2),), (append(owned, 2),), (append(owned, 3, body=BIG),)
            )
        assert len(await store.journal(owned.record.eid)) == 1
        make_room(store)
        assert await stage.apply(append(owned, 2)) == Done((None,))


async def test_full_disk_stops_every_kind_of_write_and_no_read(url: str) -> None:
    async with staged(url) as (stage, store):
        eids = [await stage.create(queue="q" * 200, args=b'[["%s"],{}]' % BIG) for _ in range(50)]
        fill(store)
        with pytest.raises(StoreUnavailable, match="full"):
            await stage.dequeue(("q" * 200,), limit=50)
        with pytest.raises(StoreUnavailable, match="full"):
            await store.open_session(Site("x" * 20_000, 1), None, NOW)
        assert (await store.info()).ready_tasks == 50
        assert await store.ended(eids) == {}
        make_room(store)
        assert len(await stage.dequeue(("q" * 200,), limit=50)) == 50
        assert len((await store.beat(stage.worker.session)).owned) == 50


async def test_executions_wait_for_room_and_finish(
    file_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry()
    entered, go = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    async def grow(number: int) -> str:
        runs.append(number)
        entered.set()
        await go.wait()
        return "x" * 100_000

    @registry.workflow("grow", version="1")
    async def workflow(ctx: Context) -> int:
        texts = await ctx.gather(*(ctx.step(grow, number) for number in range(5)))
        return sum(map(len, texts))

    async with perdure.open(file_url, registry) as engine, engine.worker():
        assert isinstance(engine.store, SqliteStore)
        eid = await engine.start(workflow)
        await entered.wait()
        fill(engine.store)
        go.set()
        with pytest.raises(StoreUnavailable, match="full"):
            await engine.signal(eid, "filler", "x" * 100_000)
        assert await engine.status(eid) == "running"
        make_room(engine.store)
        assert await engine.result(eid) == 500_000
        assert sorted(runs) == list(range(5))
        entries = await engine.journal(eid)
        assert [entry.type for entry in entries].count("frame.completed") == 5
        assert {entry.epoch for entry in entries} == {1}
    assert "the disk is full" in caplog.text


COMMITTING = """
import asyncio, sys
from perdure.ports.commands import CreateExecution, Transition
from perdure.testing.contract.stage import ENGINE_SITE, NOW, record
from perdure.wiring import open_store

async def main():
    store = await open_store(sys.argv[1])
    session = (await store.open_session(ENGINE_SITE, None, NOW)).session
    number = 0
    while True:
        number += 1
        creations = [CreateExecution(record(key=f"{number}:{part}"), NOW) for part in range(3)]
        await store.commit(session, number, [Transition((one,)) for one in creations])
        print(number, flush=True)

asyncio.run(main())
"""


def commit_until_killed(url: str) -> int:
    """Give the last number that a process acknowledged before it was killed."""
    command = [sys.executable, "-c", COMMITTING, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for _ in range(150):
            process.stdout.readline()
        process.kill()
        rest = process.stdout.read().split("\n")[:-1]
    return int(rest[-1]) if rest else 150


async def test_killed_process_leaves_all_that_it_acknowledged(file_url: str) -> None:
    acknowledged = await asyncio.to_thread(commit_until_killed, file_url)
    async with staged(file_url) as (stage, store):
        pending = (await store.info()).executions["pending"]
        assert pending % 3 == 0, "a batch is there as a whole or not at all"
        assert acknowledged <= pending // 3 <= acknowledged + 1
        for number in range(1, acknowledged + 1):
            again = record(key=f"{number}:2")
            outcome = await stage.apply(CreateExecution(again, NOW))
            assert isinstance(outcome, Done)
            assert outcome.results != ((again.eid, False),)
        assert len(await stage.dequeue(limit=pending)) == pending
        check = "PRAGMA integrity_check"
        assert writer_of(store).execute(check).fetchone() == ("ok",)


async def test_lost_answer_is_had_by_repeating_the_batch(file_url: str) -> None:
    """The one who committed is gone before the answer comes; a second connection asks for it."""
    async with staged(file_url) as (stage, store):
        owned = await stage.own()
        asleep = await stage.suspended()
        made = record()
        batch = [
            Transition(commands)
            for commands in (
                (CreateExecution(made, NOW),),
                (send(asleep),),
                (append(owned, 2),),
                (append(owned, 2),),
                (suspend(owned),),
            )
        ]
        session = await store.open_session(Site("h", 1), None, NOW)
        lost = asyncio.create_task(store.commit(session.session, 1, batch))
        await asyncio.sleep(0)
        lost.cancel()
        other = await open_sqlite(file_url)
        await asyncio.wait([lost])
        assert lost.cancelled()
        await store.beat(stage.worker.session)  # behind the commit
        committed = await other.commit(session.session, 1, batch)
        outcomes = [type(outcome).__name__ for outcome in committed.outcomes]
        assert outcomes == ["Done", "Done", "Done", "Refused", "Done"]
        assert (committed.enqueued, committed.closed) == (True, ())
        assert await store.commit(session.session, 1, []) == committed
        mail = await other.mail(asleep)
        assert mail is not None
        assert len(mail.messages) == 1
        await other.close()


async def test_commit_waits_for_the_lock(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience(monkeypatch)
    async with staged(file_url) as (stage, store):
        with closing(sqlite3.connect(file_url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("UPDATE sessions SET beat = beat + 1")
            commit = asyncio.create_task(stage.create())
            await asyncio.to_thread(patience.waiting.wait)
            assert (await store.info()).executions == {}, "who reads waits for nobody"
            assert not commit.done()
            other.execute("COMMIT")
            patience.over.set()
            assert await store.execution(await commit) is not None


async def test_lock_that_is_never_released_is_told(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Patience(monkeypatch, seconds=31.0)
    async with staged(file_url) as (stage, store):
        with closing(sqlite3.connect(file_url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            own_beat = store.own_beat()
            assert own_beat is not None
            calls = [
                asyncio.create_task(stage.batch((CreateExecution(record(), NOW),))),
                asyncio.create_task(asyncio.to_thread(own_beat, stage.worker.session)),
            ]
            await asyncio.to_thread(patience.waiting.wait)
            patience.over.set()
            for call in calls:
                with pytest.raises(StoreUnavailable, match="another process holds its lock"):
                    await call
            assert (await store.info()).executions == {}
            other.execute("ROLLBACK")
        assert isinstance(await stage.batch((CreateExecution(record(), NOW),)), Committed)


async def test_file_that_is_damaged_is_told(file_url: str) -> None:
    async with staged(file_url) as (stage, _):
        await stage.create()
    damage(Path(file_url.removeprefix("sqlite:///")))
    with pytest.raises(StoreUnavailable, match="it is damaged; restore a copy"):
        await open_sqlite(file_url)


def damage(path: Path) -> None:
    """Overwrite all of a file but its first page."""
    body = path.read_bytes()
    path.write_bytes(body[:4096] + b"\xff" * (len(body) - 4096))
