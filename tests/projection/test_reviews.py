"""Does the projection tell what waits for a person, what was announced, and what was enqueued?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from perdure import Actor, InvalidArgument
from perdure.model.instants import from_us
from perdure.ports.projection import Announcement, EnqueuedTask, Projection
from tests.projection.support import BEGIN, SECOND, Log

A, B = UUID(int=1), UUID(int=2)
ADA = {"kind": "human", "id": "ada@example.com"}
DECIDED_AT = "2030-02-01T10:00:00.000001Z"


def request(log: Log, rid: str, *, eid: UUID = A, queue: str = "finance", **more: Any) -> int:
    """Announce that a review is requested."""
    payload = {"rid": rid, "queue": queue, "payload": {"n": 1}, "schema": None, "deadline": None}
    return log.announce(eid, "review.requested", {**payload, **more}, f"root/review-{rid}")


def decide(log: Log, rid: str, *, eid: UUID = A, **more: Any) -> int:
    """Announce that a review is decided."""
    payload = {"rid": rid, "verdict": "yes", "data": {"x": [1]}, "decided_by": ADA}
    return log.announce(eid, "review.decided", {**payload, "decided_at": DECIDED_AT, **more})


async def inbox(view: Projection, **asked: Any) -> list[str]:
    """List the ids of reviews."""
    return [item.rid for item in (await view.reviews(**asked)).items]


async def test_an_inbox(log: Log, view: Projection) -> None:
    schema = {"type": "object"}
    request(log, "1", payload=[1, "é"], schema=schema, deadline="2030-01-02T00:00:00Z")
    request(log, "2", queue="legal", eid=B)
    request(log, "3")
    asked = await view.review("1")
    assert asked is not None
    assert (asked.rid, asked.eid, asked.fid, asked.queue) == ("1", A, "root/review-1", "finance")
    assert (asked.payload, asked.schema) == ([1, "é"], schema)
    assert asked.deadline == datetime(2030, 1, 2, tzinfo=UTC)
    assert asked.requested_at == from_us(BEGIN + SECOND)
    assert (asked.status, asked.verdict, asked.data) == ("pending", None, None)
    assert (asked.decided_by, asked.decided_at) == (None, None)
    assert await view.review("4") is None
    assert await inbox(view) == ["1", "2", "3"]
    assert await inbox(view, queue="finance") == ["1", "3"]

    decide(log, "1")
    log.announce(A, "review.expired", {"rid": "3"})
    late = await view.review("3")
    decide(log, "3")
    decided = await view.review("1")
    assert decided is not None
    assert (decided.status, decided.verdict, decided.data) == ("decided", "yes", {"x": [1]})
    assert decided.decided_by == Actor.human("ada@example.com")
    assert decided.decided_at == datetime(2030, 2, 1, 10, 0, 0, 1, tzinfo=UTC)
    assert (decided.payload, decided.deadline) == (asked.payload, asked.deadline)
    assert late is not None
    assert (late.status, late.verdict) == ("expired", None)
    assert await view.review("3") == late
    assert await inbox(view, status="pending") == ["2"]
    assert await inbox(view, status="decided") == ["1"]
    assert await inbox(view, status="expired", queue="finance") == ["3"]
    assert await inbox(view, status="expired", queue="legal") == []


async def test_duplicates_change_nothing(log: Log, view: Projection) -> None:
    request(log, "1")
    before = await view.review("1")
    request(log, "1", queue="legal", payload=2)
    assert await view.review("1") == before
    decide(log, "1")
    decided = await view.review("1")
    decide(log, "1", verdict="no")
    log.announce(A, "review.expired", {"rid": "1"})
    request(log, "1")
    assert await view.review("1") == decided


async def test_another_execution_cannot_answer(log: Log, view: Projection) -> None:
    request(log, "1")
    decide(log, "1", eid=B)
    log.announce(B, "review.expired", {"rid": "1"})
    assert await inbox(view, status="pending") == ["1"]


async def test_an_answer_without_a_request_is_skipped(log: Log, view: Projection) -> None:
    decide(log, "1")
    assert await inbox(view) == []


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "terminated"])
async def test_what_is_pending_expires_when_its_execution_ends(
    log: Log, view: Projection, end: str
) -> None:
    request(log, "1")
    request(log, "2")
    request(log, "3", eid=B)
    decide(log, "1")
    log.tell(A, f"execution.{end}")
    assert await inbox(view, status="decided") == ["1"]
    assert await inbox(view, status="expired") == ["2"]
    assert await inbox(view, status="pending") == ["3"]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        7,
        [],
        {},
        {"rid": 1, "queue": "q", "payload": 1},
        {"rid": "1", "queue": None, "payload": 1},
        {"rid": "1", "queue": "q"},
        {"rid": "1", "queue": "q", "payload": 1, "deadline": "tomorrow"},
        {"rid": "1", "queue": "q", "payload": 1, "deadline": "2030-01-01T00:00:00"},
        {"rid": "1", "queue": "q", "payload": 1, "deadline": "0001-01-01T00:00:00+14:00"},
        {"rid": "1", "queue": "q", "payload": 1, "deadline": 7},
    ],
)
async def test_a_request_that_does_not_fit_is_an_announcement_only(
    log: Log, view: Projection, payload: Any
) -> None:
    log.announce(A, "review.requested", payload)
    request(log, "2")
    assert await inbox(view) == ["2"]
    assert (await view.announcements())[0].payload == payload


@pytest.mark.parametrize(
    "facts",
    [
        {"verdict": 1},
        {"decided_by": None},
        {"decided_by": {"kind": "god", "id": "x"}},
        {"decided_by": {"kind": "human", "id": "not an address"}},
        {"decided_by": {"kind": "human", "id": "a@b", "on_behalf_of": "x"}},
        {"decided_at": "2030-01-01"},
    ],
)
async def test_a_decision_that_does_not_fit_is_skipped(
    log: Log, view: Projection, facts: Any
) -> None:
    request(log, "1")
    decide(log, "1", **facts)
    log.announce(A, "review.expired", ["1"])
    assert await inbox(view, status="pending") == ["1"]


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"null", b"[]", b'{"fid": 1, "payload": 1}', b'{"fid": "\\ud800"}']
)
async def test_bodies_that_no_store_writes_are_skipped(
    log: Log, view: Projection, body: bytes
) -> None:
    for kind in ("announce.review.requested", "announce.x", "task.enqueued", "execution.failed"):
        log.tell(A, kind, body)
    request(log, "1")
    assert await inbox(view) == ["1"]
    assert len(await view.announcements()) == 1


async def test_a_decision_for_somebody(log: Log, view: Projection) -> None:
    request(log, "1")
    by = {"kind": "system", "id": "bot", "on_behalf_of": "ada@example.com"}
    decide(log, "1", decided_by=by, decided_at="2030-02-01T11:00:00+01:00", data=None)
    decided = await view.review("1")
    assert decided is not None
    assert decided.decided_by == Actor.system("bot", on_behalf_of="ada@example.com")
    assert decided.decided_at == datetime(2030, 2, 1, 10, tzinfo=UTC)
    assert (decided.status, decided.data) == ("decided", None)


async def test_pages_of_reviews(log: Log, view: Projection) -> None:
    rids = [str(number) for number in range(10)]
    for rid in rids:
        request(log, rid)
    seen, cursor = [], None
    while True:
        page = await view.reviews(limit=3, cursor=cursor, status="pending")
        seen += [item.rid for item in page.items]
        if (cursor := page.cursor) is None:
            break
        decide(log, page.items[0].rid)  # it is not pending any more: no page shifts
    assert seen == rids


async def test_announcements(log: Log, view: Projection) -> None:
    log.create(A)
    log.announce(A, "told", {"a": 1}, "root/a#0")
    log.announce(B, "told", None)
    log.announce(A, "told.more", [2])
    first, second, third = await view.announcements()
    assert first == Announcement(2, A, "root/a#0", "told", {"a": 1}, from_us(BEGIN + 2 * SECOND))
    assert (second.position, second.eid, second.payload) == (3, B, None)
    assert (third.type, third.payload) == ("told.more", [2])
    assert await view.announcements(type="told") == [first, second]
    assert await view.announcements(eid=A) == [first, third]
    assert await view.announcements(eid=str(A), type="told") == [first]
    assert await view.announcements(after=2) == [second, third]
    assert await view.announcements(after=2, limit=1) == [second]
    assert await view.announcements(type="tol") == []


async def test_tasks(log: Log, view: Projection) -> None:
    facts = {"task_id": f"delegate:{A}:k", "queue": "q", "kind": "delegate", "fid": "root/d#0"}
    log.tell(A, "task.enqueued", facts)
    log.tell(A, "task.enqueued", {**facts, "task_id": "run_step:x", "kind": "run_step"})
    log.tell(B, "task.enqueued", facts)
    log.tell(A, "task.enqueued", {**facts, "task_id": "other", "kind": "nonsense"})
    first, second = await view.tasks(A)
    at = from_us(BEGIN + SECOND)
    assert first == EnqueuedTask(f"delegate:{A}:k", "q", "delegate", A, "root/d#0", at)
    assert (second.task_id, second.kind) == ("run_step:x", "run_step")
    assert len(await view.tasks(str(B))) == 1
    log.tell(A, "task.enqueued", {**facts, "queue": "p"})
    assert [(task.task_id, task.queue) for task in await view.tasks(A)] == [
        ("run_step:x", "q"),
        (f"delegate:{A}:k", "p"),
    ]


@pytest.mark.parametrize(
    "asked",
    [
        {"status": "open"},
        {"status": []},
        {"limit": 501},
        {"queue": 7},
        {"cursor": "-1"},
        {"cursor": str(2**63)},
        {"cursor": 7},
    ],
)
async def test_bad_questions_about_reviews_are_refused(view: Projection, asked: Any) -> None:
    with pytest.raises(InvalidArgument):
        await view.reviews(**asked)


@pytest.mark.parametrize(
    "asked", [{"after": -1}, {"after": 2**63}, {"limit": 0}, {"type": 7}, {"eid": "x"}]
)
async def test_bad_questions_about_announcements_are_refused(view: Projection, asked: Any) -> None:
    with pytest.raises(InvalidArgument):
        await view.announcements(**asked)
