"""Does the projection tell which executions exist, and where they are?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import ErrorInfo, ExecutionStatus, InvalidArgument
from perdure.model.ids import new_eid
from perdure.model.instants import from_us
from perdure.ports.projection import Projection
from tests.projection.support import BEGIN, SECOND, Log

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


async def only(view: Projection) -> Any:
    """Give the one execution that there is."""
    (item,) = (await view.executions()).items
    return item


async def test_a_life(log: Log, view: Projection) -> None:
    log.create(A, key="k", parent=str(B))
    created = await only(view)
    assert (created.eid, created.workflow, created.version) == (A, "w", "1")
    assert (created.queue, created.dispatch_key, created.parent) == ("default", "k", B)
    assert created.status is ExecutionStatus.PENDING
    assert created.created_at == created.updated_at == from_us(BEGIN + SECOND)
    assert created.started_at is None
    log.tell(A, "execution.started")
    started = await only(view)
    assert started.status == "running"
    assert started.started_at == started.updated_at == from_us(BEGIN + 2 * SECOND)
    log.tell(A, "execution.suspended", {"on": ["channel:a"], "reason": "no step"})
    suspended = await only(view)
    assert suspended.status == "suspended"
    assert (suspended.suspended_on, suspended.blocked) == (("channel:a",), "no step")
    log.tell(A, "execution.resumed", {"reason": "message"})
    resumed = await only(view)
    assert resumed.status == "running"
    assert (resumed.suspended_on, resumed.blocked) == ((), None)
    assert resumed.started_at == started.started_at
    log.tell(A, "execution.completed", {"continued_as": str(C)})
    ended = await only(view)
    assert (ended.status, ended.continued_as, ended.error) == ("completed", C, None)
    assert ended.ended_at == ended.updated_at == from_us(BEGIN + 5 * SECOND)
    assert ended.created_at == created.created_at


@pytest.mark.parametrize(
    ("kind", "facts", "error"),
    [
        ("failed", {"error_type": "E", "message": "m"}, ErrorInfo("E", "m")),
        ("cancelled", {"error_type": "Cancelled", "message": "m"}, ErrorInfo("Cancelled", "m")),
        (
            "terminated",
            {"by": {"kind": "human", "id": "ada@example.com"}, "reason": "wrong"},
            ErrorInfo("ExecutionTerminated", "by human:ada@example.com: wrong"),
        ),
    ],
)
async def test_an_end_has_its_error(
    log: Log, view: Projection, kind: str, facts: object, error: ErrorInfo
) -> None:
    log.create(A)
    log.tell(A, f"execution.{kind}", facts)
    ended = await only(view)
    assert (ended.status, ended.error) == (kind, error)


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "terminated"])
async def test_an_end_stays(log: Log, view: Projection, end: str) -> None:
    log.create(A)
    log.tell(A, f"execution.{end}")
    before = await only(view)
    for late in ("suspended", "started", "resumed", "created", "failed", "completed"):
        log.tell(A, f"execution.{late}", {"on": ["timer:a"]})
    assert await only(view) == before


async def test_an_end_that_is_seen_first_gives_a_row(log: Log, view: Projection) -> None:
    """What was before it has been pruned."""
    log.create(A)
    log.tell(A, "execution.failed", {"error_type": "E", "message": "m"})
    del log.entries[0]
    row = await only(view)
    assert (row.eid, row.status, row.error) == (A, "failed", ErrorInfo("E", "m"))
    assert (row.workflow, row.version, row.queue, row.started_at) == (None, None, None, None)
    assert row.created_at == row.updated_at == row.ended_at
    assert await view.counts() == {"failed": 1}


@pytest.mark.parametrize("status", ["pending", "suspended", "completed"])
async def test_a_migration_changes_the_version_and_not_the_status(
    log: Log, view: Projection, status: str
) -> None:
    log.create(A)
    if status != "pending":
        log.tell(A, f"execution.{status}", {"on": ["timer:a"]})
    before = await only(view)
    log.tell(A, "execution.migrated", {"from_version": "1", "version": "2"})
    after = await only(view)
    assert (after.version, after.status, after.updated_at) == ("2", status, before.updated_at)
    assert after.suspended_on == before.suspended_on


async def test_archived_sets_a_time_only(log: Log, view: Projection) -> None:
    log.create(A)
    log.tell(A, "execution.completed")
    before = await only(view)
    assert before.archived_at is None
    log.tell(A, "execution.archived")
    log.tell(B, "execution.archived")  # it was never seen
    after = await only(view)
    assert after.archived_at == from_us(BEGIN + 3 * SECOND)
    assert (after.status, after.updated_at) == ("completed", before.updated_at)


async def test_unknown_types_and_facts_that_do_not_fit_are_skipped(
    log: Log, view: Projection
) -> None:
    log.create(A)
    before = await only(view)
    log.tell(A, "execution.interrupted", {"status": "completed"})
    log.tell(A, "weather.changed", b"\xff")
    log.tell(A, "execution.suspended", {"on": 7})
    log.tell(A, "execution.migrated", {})
    log.tell(B, "execution.created", b"[]")
    last = log.tell(A, "execution.terminated", {"by": {"kind": "human", "id": "nobody"}})
    assert await only(view) == before
    assert await view.refresh() == last


async def test_counts_and_filters(log: Log, view: Projection) -> None:
    log.create(A, "invoice", key="order-7")
    log.create(B, "invoice", parent=str(A))
    log.create(C, "payment", parent=str(A))
    log.tell(B, "execution.started")
    assert await view.counts() == {"pending": 2, "running": 1}

    async def found(**asked: Any) -> list[UUID]:
        return [item.eid for item in (await view.executions(**asked)).items]

    assert await found() == [B, C, A]
    assert await found(status="running") == [B]
    assert await found(status=["pending", ExecutionStatus.RUNNING]) == [B, C, A]
    assert await found(workflow="invoice") == [B, A]
    assert await found(parent=str(A)) == [B, C]
    assert await found(parent=A, status="pending") == [C]
    assert await found(text="voic") == [B, A]
    assert await found(text="order") == [A]
    at = [from_us(BEGIN + number * SECOND) for number in (1, 2, 3)]
    assert await found(since=at[1]) == [B, C]
    assert await found(until=at[1]) == [A]
    assert await found(since=at[1], until=at[2]) == [B]
    assert [item.eid for item in await view.children(A)] == [B, C]
    assert await view.children(str(B)) == []


@pytest.mark.parametrize(
    "asked",
    [
        {"limit": 0},
        {"limit": 501},
        {"limit": True},
        {"status": "done"},
        {"status": 7},
        {"workflow": 7},
        {"text": "\ud800"},
        {"parent": "x"},
        {"since": "now"},
        {"cursor": "x"},
        {"cursor": f"{2**63}-{A.hex}"},
        {"cursor": 7},
    ],
)
async def test_bad_questions_are_refused(log: Log, view: Projection, asked: Any) -> None:
    with pytest.raises(InvalidArgument):
        await view.executions(**asked)
    assert log.read == 0


async def test_pages_show_each_row_once_though_rows_are_added(log: Log, view: Projection) -> None:
    """500 rows, most of them with one time of change, in pages of 7."""
    rows = {new_eid() for _ in range(500)}
    for number, eid in enumerate(sorted(rows, key=lambda one: one.int % 1009)):
        at = BEGIN + (number // 100 if number < 300 else 9)
        log.tell(eid, "execution.started", at=at)
    seen: list[Any] = []
    cursor = None
    while True:
        page = await view.executions(limit=7, cursor=cursor)
        seen += page.items
        for shift in (-1, 0, 9, 100):  # before, among and behind those that are there
            log.tell(new_eid(), "execution.started", at=BEGIN + shift)
        if (cursor := page.cursor) is None:
            break
    listed = [item for item in seen if item.eid in rows]
    assert len(listed) == 500
    assert {item.eid for item in listed} == rows
    assert len({item.eid for item in seen}) == len(seen)
    order = [(-item.updated_at.timestamp(), item.eid.bytes) for item in seen]
    assert order == sorted(order)


async def test_a_page_that_is_just_full_is_the_last(log: Log, view: Projection) -> None:
    for eid in (A, B):
        log.create(eid)
    assert (await view.executions(limit=2)).cursor is None
    first = await view.executions(limit=1)
    assert first.cursor is not None
    second = await view.executions(limit=1, cursor=first.cursor)
    assert (second.items[0].eid, second.cursor) == (A, None)


async def test_instants_before_1970_are_instants(log: Log, view: Projection) -> None:
    log.tell(A, "execution.started", at=-SECOND)
    log.tell(B, "execution.started", at=-2 * SECOND)
    first = await view.executions(limit=1)
    second = await view.executions(limit=1, cursor=first.cursor)
    assert [page.items[0].eid for page in (first, second)] == [A, B]
    assert first.items[0].updated_at - second.items[0].updated_at == timedelta(seconds=1)
