"""Does a reader see what was written, all of it, and each thing once?"""
# ruff: noqa: S101, PLR2004 - a contract is made of assertions and of the values it expects

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

from perdure.errors import InvalidArgument, StoreUnavailable
from perdure.model.execution import ExecutionStatus, LeaseInfo
from perdure.model.instants import from_us
from perdure.ports.commands import CreateExecution, Timer
from perdure.ports.store import ExecutionQuery
from perdure.testing.contract.stage import (
    ADA,
    NOW,
    SECOND,
    Checks,
    Stage,
    append,
    complete,
    fail,
    new_eid,
    raised,
    record,
    send,
)

CHECKS = Checks()


@CHECKS.add
async def unknown_executions_are_told_apart(stage: Stage) -> None:
    """What does not exist is ``None``, or left out."""
    eid, known = new_eid(), await stage.create()
    store = stage.store
    assert await store.record(eid) is None
    assert await store.execution(eid) is None
    assert await store.lease(eid) is None
    assert await store.mail(eid) is None
    assert await store.journal(eid) == []
    assert await store.wakes([eid, known]) == {known: 0}


@CHECKS.add
async def row_shows_the_execution_as_it_is(stage: Stage) -> None:
    """A row shows what was asked for and how far it got."""
    made = record(key="k", args=b'[["a"],{"b":2}]', at=NOW - SECOND, tags={"a": "b"})
    await stage.apply(CreateExecution(made, NOW))
    row = await stage.row(made.eid)
    assert (row.eid, row.kind, row.workflow, row.version) == (made.eid, "code", "work", "1")
    assert (row.queue, row.dispatch_key, row.tags) == ("default", "k", {"a": "b"})
    assert (row.args, row.created_by) == ([["a"], {"b": 2}], ADA)
    assert (row.created_at, row.updated_at) == (from_us(NOW - SECOND), from_us(NOW))
    assert (row.started_at, row.ended_at, row.worker_id, row.epoch) == (None, None, None, 0)
    assert (row.result, row.error, row.suspended_on, row.blocked) == (None, None, (), None)


@CHECKS.add
async def ended_gives_the_ended_and_the_unknown(stage: Stage) -> None:
    """Of some executions, those are read that have ended; the unknown are named."""
    asleep = await stage.suspended()
    done, failed = await stage.own(), await stage.own()
    await stage.batch((complete(done),), (fail(failed, "E", "m"),))
    pending, unknown = await stage.create(), new_eid()
    ended = [done.record.eid, failed.record.eid]
    found = await stage.store.ended([pending, *ended, unknown, asleep])
    assert list(found) == [*ended, unknown]
    assert [found[eid] for eid in ended] == [await stage.store.execution(eid) for eid in ended]
    assert found[unknown] is None
    assert await stage.store.ended([]) == {}


@CHECKS.add
async def journal_after_gives_the_rows_that_hold_more(stage: Stage) -> None:
    """A row is given if any of its entries has a greater number."""
    owned = await stage.own()
    eid = owned.record.eid
    await stage.apply(append(owned, 2, count=3), append(owned, 5), append(owned, 6, count=2))
    after = {
        number: [row.seq for row in await stage.store.journal(eid, number)] for number in range(9)
    }
    assert after == {
        0: [1, 2, 5, 6],
        1: [2, 5, 6],
        2: [2, 5, 6],
        3: [2, 5, 6],
        4: [5, 6],
        5: [6],
        6: [6],
        7: [],
        8: [],
    }


@CHECKS.add
async def control_log_is_read_from_a_position(stage: Stage) -> None:
    """The control log is read in pieces, in order, without a gap."""
    assert await stage.store.control_end() == 0
    for _ in range(5):
        await stage.own()
    whole = await stage.store.control()
    assert len(whole) == 10
    assert await stage.store.control_end() == whole[-1].position
    pieces, after = [], 0
    while piece := await stage.store.control(after, 3):
        assert len(piece) <= 3
        pieces += piece
        after = piece[-1].position
    assert pieces == whole
    assert await stage.store.control(whole[-1].position) == []


@CHECKS.add
async def lease_tells_who_owns(stage: Stage) -> None:
    """A lease names the worker and the epoch while there is an owner."""
    eid = await stage.create()
    assert await stage.store.lease(eid) == LeaseInfo(None, 0, None, live=False)
    (claimed,) = await stage.dequeue()
    lease = await stage.store.lease(eid)
    assert lease is not None
    assert (lease.holder, lease.epoch, lease.live) == ("worker-1", 1, True)
    assert lease.deadline is not None
    await stage.apply(complete(claimed))
    assert await stage.store.lease(eid) == LeaseInfo(None, 1, None, live=False)


async def _pages(stage: Stage, limit: int, **query: Any) -> list[UUID]:
    """Read all pages, and check that each but the last is full."""
    found: list[UUID] = []
    cursor = None
    while True:
        page = await stage.store.executions(ExecutionQuery(limit=limit, cursor=cursor, **query))
        found += [row.eid for row in page.items]
        if page.cursor is None:
            return found
        assert len(page.items) == limit
        cursor = page.cursor


@CHECKS.add
async def pages_give_every_execution_once(stage: Stage) -> None:
    """Whatever the size of a page: newest first, each once, and no empty page at the end."""
    eids = [await stage.create() for _ in range(6)]
    eids.reverse()
    for limit in (1, 2, 3, 4, 5, 6, 7):
        assert await _pages(stage, limit) == eids
    first = await stage.store.executions(ExecutionQuery(limit=2))
    await stage.create()
    second = await stage.store.executions(ExecutionQuery(limit=2, cursor=first.cursor))
    assert [row.eid for row in (*first.items, *second.items)] == eids[:4]
    whole = await stage.store.executions(ExecutionQuery(limit=7))
    assert (len(whole.items), whole.cursor) == (7, None)


@CHECKS.add
async def pages_are_filtered(stage: Stage) -> None:
    """Filters hold together, on every page."""
    odd = {"who": "Ada", 'a"b\\c.d': "x\ny"}
    made = [
        record(key=f"invoice:{number}", at=NOW + number, tags=tags, workflow=workflow)
        for number, (workflow, tags) in enumerate(
            [("work", {}), ("other", odd), ("work", odd), ("work", {"who": "Bob"}), ("work", odd)]
        )
    ]
    await stage.batch(*((CreateExecution(one, NOW),) for one in made))
    eids = [one.eid for one in made]
    expected: list[tuple[dict[str, Any], list[int]]] = [
        ({"workflow": "work"}, [4, 3, 2, 0]),
        ({"workflow": "wor"}, []),
        ({"tags": (("who", "Ada"),)}, [4, 2, 1]),
        ({"tags": (("who", "Ada"), ('a"b\\c.d', "x\ny"))}, [4, 2, 1]),
        ({"tags": (("who", "Ada"), ('a"b\\c.d', "x"))}, []),
        ({"tags": (("who", ""),)}, []),
        ({"text": "voice:3"}, [3]),
        ({"text": "the"}, [1]),
        ({"text": "Bo"}, [3]),
        ({"text": "%"}, []),
        ({"since": NOW + 3}, [4, 3]),
        ({"until": NOW + 3}, [2, 1, 0]),
        ({"since": NOW + 1, "until": NOW + 3, "workflow": "work"}, [2]),
        ({"workflow": "work", "tags": (("who", "Ada"),), "text": "invoice"}, [4, 2]),
    ]
    for query, numbers in expected:
        for limit in (1, 2, 9):
            found = await _pages(stage, limit, **query)
            assert found == [eids[number] for number in numbers], f"{query} gives {found}"


@CHECKS.add
async def pages_are_filtered_by_status(stage: Stage) -> None:
    """One status or several: an execution is listed where it is now."""
    asleep = await stage.suspended(Timer("t", NOW))
    owned, done, failed = [await stage.own() for _ in range(3)]
    await stage.batch((complete(done),), (fail(failed, "E", "m"),))
    eids = {
        "suspended": asleep,
        "running": owned.record.eid,
        "completed": done.record.eid,
        "failed": failed.record.eid,
        "pending": await stage.create(),
    }
    for status, eid in eids.items():
        assert await _pages(stage, 9, status=frozenset({ExecutionStatus(status)})) == [eid]
    both = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.PENDING})
    assert await _pages(stage, 1, status=both) == [eids["pending"], eids["running"]]
    assert await _pages(stage, 1, status=frozenset()) == []


@CHECKS.add
async def malformed_cursor_is_refused(stage: Stage) -> None:
    """A cursor that no page gave raises `InvalidArgument`."""
    await stage.create()
    for cursor in ("", "nonsense", "0" * 31, "g" * 32):
        page = stage.store.executions(ExecutionQuery(cursor=cursor))
        assert repr(cursor) in str(await raised(InvalidArgument, page))


@CHECKS.add
async def info_counts_what_there_is(stage: Stage) -> None:
    """The store tells what it is and how much of what it holds."""
    await stage.suspended(Timer("a", NOW), Timer("b", NOW))
    await stage.create(not_before=from_us(NOW + SECOND))
    done = await stage.own()
    await stage.apply(complete(done))
    await stage.create()
    info = await stage.store.info()
    assert info.url == stage.store.url
    assert info.kind
    assert info.schema_version >= 1
    assert info.executions == {"completed": 1, "pending": 2, "suspended": 1}
    assert (info.ready_tasks, info.delayed_tasks, info.timers, info.sessions) == (1, 1, 2, 1)
    assert info.size_bytes is None or info.size_bytes > 0


@CHECKS.add
async def changed_is_answered(stage: Stage) -> None:
    """A store that others may write to can be asked whether they did."""
    assert isinstance(stage.store.shared, bool)
    assert isinstance(await stage.store.changed(), bool)


@CHECKS.add
async def closed_store_is_unavailable(stage: Stage) -> None:
    """After a store is closed, calls raise `StoreUnavailable`; to close it again is fine."""
    eid = await stage.create()
    store = stage.store
    own_beat = store.own_beat()
    await store.close()
    await store.close()
    calls: list[Callable[[], Awaitable[object]]] = [
        partial(store.record, eid),
        partial(store.beat, stage.worker.session),
        store.changed,
        partial(stage.apply, send(eid)),
        stage.dequeue,
    ]
    if own_beat is not None:
        calls.append(partial(asyncio.to_thread, own_beat, stage.worker.session))
    for call in calls:
        await raised(StoreUnavailable, call())
