"""Does every statement find its rows by an index, and is what only SQL can bring about handled?"""

from __future__ import annotations

import inspect
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from perdure.ports.commands import Done, FireTimers, RepairPending, Timer
from perdure.ports.store import Committed
from perdure.stores.sqlite import (
    batch,
    core,
    dequeue,
    executions,
    messages,
    reads,
    statements,
    tasks,
)
from perdure.stores.sqlite import store as store_module
from perdure.stores.sqlite.statements import SCHEMA, SQL
from perdure.testing.contract.stage import NOW, WORKER_SITE, complete, suspend
from tests.stores.support import staged, writer_of

# Statements that read a whole table, and why they may.
SCANS = {
    "mark_idle_sessions": "sessions are few",
    "purge_sessions": "sessions are few",
    "sessions": "sessions are few",
    "count_sessions": "sessions are few",
    "count_executions": "counts everything",
    "count_ready": "counts everything",
    "count_timers": "counts everything",
    "pending_without_task": "runs once for each sweeper",
    "queue_depth": "a person looks at a queue",
    "queue_tasks": "a person looks at a queue",
}
# Statements that sort what they have found, and why they may.
SORTS = {
    "owned": "a session owns a thousand at most",
    "count_executions": "counts everything",
    "unread": "what is unread of one execution, channel by channel",
    "queue_tasks": "a person looks at a queue",
    "missing": "each version once; runs once a second, while there is nothing else to do",
}


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        yield connection


def plan(database: sqlite3.Connection, statement: str) -> list[str]:
    """Give the steps by which SQLite would run a statement."""
    names = re.findall(r":(\w+)", statement)
    numbers = {int(number) for number in re.findall(r"\?(\d+)", statement)}
    count = max(numbers) if numbers else statement.count("?")
    values = dict.fromkeys(names) if names else [None] * count
    return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


@pytest.mark.parametrize("name", SQL)
def test_rows_are_found_by_an_index(database: sqlite3.Connection, name: str) -> None:
    steps = plan(database, SQL[name])
    tables = [step for step in steps if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"]
    scans = [step for step in tables if "VIRTUAL TABLE" not in step]
    sorts = [step for step in steps if "TEMP B-TREE" in step]
    assert bool(scans) == (name in SCANS), steps
    assert bool(sorts) == (name in SORTS), steps


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ready", "SEARCH t USING INDEX tasks_ready (queue=?)"),
        ("due_timers", "SEARCH timers USING COVERING INDEX timers_due (due<?)"),
        ("next_timer", "SEARCH timers USING COVERING INDEX timers_due"),
        ("next_delayed", "SEARCH tasks USING COVERING INDEX tasks_delayed (not_before>?)"),
        ("promote", "SEARCH tasks USING COVERING INDEX tasks_delayed (not_before<?)"),
        ("owned", "SEARCH executions USING INDEX executions_owner (owner=?)"),
        ("disown", "SEARCH executions USING INDEX executions_owner (owner=?)"),
        ("unread", "SEARCH m USING PRIMARY KEY (eid=? AND channel=? AND seq>?)"),
        ("journal", "SEARCH journal USING PRIMARY KEY (eid=? AND seq>?)"),
        ("rows", "SEARCH e USING INDEX executions_created ((created_at,eid)<(?,?))"),
        ("unread", "SEARCH c USING INDEX channels_unread (eid=?)"),
        ("open_children", "SEARCH executions USING INDEX executions_parent (parent=?)"),
        ("delete_waiter", "SEARCH waiters USING COVERING INDEX waiters_eid (eid=?)"),
    ],
)
def test_hot_statements_use_the_index_made_for_them(
    database: sqlite3.Connection, name: str, step: str
) -> None:
    assert step in plan(database, SQL[name])


@pytest.mark.parametrize("name", SQL)
def test_every_statement_that_picks_rows_has_an_order(name: str) -> None:
    """The same rows in the same order in every process: nothing depends on a plan."""
    statement = SQL[name]
    if "LIMIT" in statement or name in {"owned", "sessions", "unread", "journal", "missing"}:
        assert "ORDER BY" in statement


def test_every_statement_is_used() -> None:
    """A name that no code has is left over."""
    modules = (batch, core, dequeue, executions, messages, reads, statements, tasks, store_module)
    code = "".join(inspect.getsource(module) for module in modules)
    interned = {"intern_site", "site_id", "intern_actor", "actor_id"}
    assert [name for name in SQL if f'"{name}"' not in code and name not in interned] == []


def enqueue(connection: sqlite3.Connection, eid: bytes, kind: str) -> None:
    """Put a task on the queue that the store itself would not."""
    connection.execute(
        "INSERT INTO tasks (eid, kind, queue, workflow, version, priority, reason, enqueued_at) "
        "VALUES (?, ?, 'default', 'work', '1', 100, 'test', 0)",
        (eid, kind),
    )


async def test_task_of_an_owned_execution_is_dropped(url: str) -> None:
    async with staged(url) as (stage, store):
        owned = await stage.own()
        enqueue(writer_of(store), owned.record.eid.bytes, "resume")
        other = await stage.create()
        claimed = await stage.dequeue(limit=1)
        assert [one.record.eid for one in claimed] == [other]
        assert await stage.ready() == 0
        assert len(await store.journal(owned.record.eid)) == 1
        assert len((await store.beat(stage.worker.session)).owned) == 2


async def test_execution_with_two_tasks_is_owned_once(url: str) -> None:
    async with staged(url) as (stage, store):
        eid = await stage.create()
        enqueue(writer_of(store), eid.bytes, "resume")
        assert [one.record.eid for one in await stage.dequeue()] == [eid]
        assert await stage.ready() == 0
        assert [row.seq for row in await store.journal(eid)] == [1]


async def test_task_of_an_ended_execution_is_dropped(url: str) -> None:
    async with staged(url) as (stage, store):
        owned = await stage.own()
        await stage.apply(complete(owned))
        enqueue(writer_of(store), owned.record.eid.bytes, "resume")
        assert await stage.dequeue() == []
        assert await stage.ready() == 0
        assert (await stage.row(owned.record.eid)).status == "completed"


async def test_task_of_no_execution_is_dropped(url: str) -> None:
    async with staged(url) as (stage, store):
        for number in range(5):
            enqueue(writer_of(store), bytes([number]) * 16, "start")
        eid = await stage.create()
        assert [one.record.eid for one in await stage.dequeue(limit=2)] == [eid]
        assert await stage.ready() == 0


async def test_execution_of_an_owner_that_is_gone_is_free(url: str) -> None:
    """A row may name an owner whose session nobody knows: a copy of a damaged file, say."""
    async with staged(url) as (stage, store):
        owned = await stage.own()
        writer_of(store).execute("DELETE FROM sessions WHERE id = ?", (stage.worker.session,))
        lease = await store.lease(owned.record.eid)
        assert lease is not None
        assert not lease.live
        enqueue(writer_of(store), owned.record.eid.bytes, "resume")
        heir = await store.open_session(WORKER_SITE, 30.0, NOW)
        (again,) = await stage.dequeue(session=heir)
        assert again.epoch == 2


async def test_end_deletes_a_task_that_is_there(url: str) -> None:
    async with staged(url) as (stage, store):
        owned = await stage.own()
        enqueue(writer_of(store), owned.record.eid.bytes, "resume")
        await stage.apply(complete(owned))
        assert await stage.ready() == 0


async def test_repair_enqueues_what_is_missing_up_to_the_limit(url: str) -> None:
    async with staged(url) as (stage, store):
        eids = [await stage.create() for _ in range(5)]
        writer_of(store).execute("DELETE FROM tasks WHERE id < 5")
        done = [await stage.batch((RepairPending(NOW, 3),)) for _ in range(3)]
        assert done == [
            Committed((Done((3,)),), enqueued=True),
            Committed((Done((1,)),), enqueued=True),
            Committed((Done((0,)),)),
        ]
        claimed = await stage.dequeue()
        assert {one.record.eid for one in claimed} == set(eids)
        assert {one.kind for one in claimed} == {"start"}


async def test_timer_that_is_listed_twice_is_set_once(url: str) -> None:
    async with staged(url) as (stage, store):
        owned = await stage.own()
        twice = suspend(owned, Timer("t", NOW + 1), Timer("t", NOW + 2))
        assert await stage.apply(twice) == Done((None,))
        assert await store.next_due() == NOW + 2
        assert await stage.apply(FireTimers(NOW + 2, 10)) == Done((1,))


async def test_closing_a_session_enqueues_at_an_instant_that_was(url: str) -> None:
    """No instant comes with it, and no store calls a clock."""
    async with staged(url) as (stage, store):
        await stage.own()
        await store.close_session(stage.worker.session)
        (at,) = writer_of(store).execute("SELECT enqueued_at FROM tasks").fetchone()
        assert at == NOW
