"""Reviews: a person decides, exactly one decision counts, and the inbox shows what waits."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import (
    Actor,
    AlreadyClosed,
    Conflict,
    Context,
    Engine,
    InvalidArgument,
    NotSerializable,
    Registry,
    UnknownReview,
)
from perdure.patterns import review
from perdure.ports.commands import Claim, Command
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import cluster, holds, nothing_left
from tests.engine.support import Machine, result_of, trace_of

ADA = Actor.human("ada@example.com")
CFO = Actor.human("cfo@example.com")
DAY = 86_400


def asking() -> Registry:
    """Give a workflow that asks for a review."""
    registry = Registry()

    @registry.workflow("ask", version="1")
    async def ask(
        ctx: Context,
        queue: str = "finance",
        timeout: float | None = 3 * DAY,
        key: str | None = None,
    ) -> Any:
        schema = {"type": "object"}
        decision = await review(ctx, queue, {"n": 7}, schema=schema, timeout=timeout, key=key)
        if decision is None:
            return None
        return [decision.verdict, decision.data, decision.by.id, decision.at.isoformat()]

    @registry.workflow("announce", version="1")
    async def announce(ctx: Context, request: Any) -> None:
        await ctx.announce("review.requested", request)
        await ctx.receive("x")

    return registry


async def told(engine: Engine, eid: UUID) -> list[str]:
    """List what an execution has announced."""
    return [entry.type for entry in await engine.projection.announcements(eid=eid)]


async def test_a_person_decides(url: str) -> None:
    """C142: requested, then decided; the task is gone, and the decision says who and when."""
    async with engine_under_test(asking(), url=url) as under:
        engine = under.engine
        eid = await engine.start("ask", key="my-key")
        await under.run_until_idle()
        (pending,) = await engine.reviews.pending()
        assert (pending.eid, pending.queue, pending.payload) == (eid, "finance", {"n": 7})
        assert pending.schema == {"type": "object"}
        assert pending.deadline == under.clock.now() + timedelta(days=3)
        assert await engine.reviews.pending("other") == []
        (task,) = await engine.store.queue_tasks("finance", 10)
        assert task.task_id == f"delegate:{eid}:{pending.rid}"
        under.clock.advance(timedelta(hours=1))
        decision = await engine.reviews.decide(
            pending.rid, verdict="approve", data={"limit": 5}, by=CFO
        )
        assert (decision.rid, decision.verdict, decision.by) == (pending.rid, "approve", CFO)
        assert decision.at == under.clock.now()
        assert await engine.reviews.pending() == []  # at once, though no worker has seen it
        assert await engine.store.queue_tasks("finance", 10) == []
        await under.run_until_idle()
        assert await result_of(under, eid) == [
            "approve",
            {"limit": 5},
            "cfo@example.com",
            under.clock.now().isoformat(),
        ]
        assert await told(engine, eid) == ["review.requested", "review.decided"]
        assert await nothing_left(engine.store)


async def test_the_first_decision_counts(url: str) -> None:
    """However many decide, everybody is given the one that was first."""
    async with cluster(asking(), url) as machines:
        process, other = await machines.boot(), await machines.boot(worker=False)
        eid = await process.engine.start("ask")
        await process.run_until_idle()
        (pending,) = await other.engine.reviews.pending()
        decided = await asyncio.gather(
            *(
                engine.reviews.decide(pending.rid, verdict=f"v{n}", by=Actor.human(f"p{n}@x.org"))
                for n in range(10)
                for engine in (process.engine, other.engine)
            )
        )
        assert len({decision.verdict for decision in decided}) == 1
        assert len({decision.by.id for decision in decided}) == 1
        await process.run_until_idle()
        late = await other.engine.reviews.decide(pending.rid, verdict="late")
        assert late == decided[0]
        assert (await result_of(process, eid))[0] == decided[0].verdict
        assert await told(process.engine, eid) == ["review.requested", "review.decided"]


async def test_a_review_expires(url: str) -> None:
    """C144: nobody has decided; a late decision changes neither workflow nor inbox."""
    async with engine_under_test(asking(), url=url) as under:
        engine = under.engine
        eid = await engine.start("ask", "finance", 7200)
        other = await engine.start("ask", "finance", 7200, key="b")
        await under.run_until_idle()
        expiring = next(r for r in await engine.reviews.pending() if r.eid == eid)
        await under.advance(7200)
        assert await result_of(under, eid) is None
        assert await result_of(under, other) is None
        assert await told(engine, eid) == ["review.requested", "review.expired"]
        before = await trace_of(under, eid)
        assert before.endswith(
            "CL review-receive#0 FS review-claim#0/1 FC review-claim#0 FS review-expired#0/1 "
            "FC review-expired#0 FS review-withdraw#0/1 FC review-withdraw#0 XC"
        )
        for _ in range(2):
            with pytest.raises(Conflict, match="has expired"):
                await engine.reviews.decide(expiring.rid, verdict="late", by=ADA)
        await under.run_until_idle()
        assert await trace_of(under, eid) == before
        shown = await engine.projection.review(expiring.rid)
        assert shown is not None
        assert (shown.status, shown.verdict) == ("expired", None)
        assert await nothing_left(engine.store)


async def test_a_decision_at_the_last_moment_counts(url: str) -> None:
    """It comes after the workflow has looked, and before it could say that it has expired."""
    async with cluster(asking(), url) as machines:
        process, person = await machines.boot(), await machines.boot(worker=False)
        eid = await process.engine.start("ask", "finance", 60)
        await process.run_until_idle()
        (pending,) = await person.engine.reviews.pending()
        done: list[Any] = []

        async def decide(commands: list[Command]) -> None:
            if holds(commands, Claim) and not done:
                done.append(None)
                done[0] = await person.engine.reviews.decide(pending.rid, verdict="yes", by=ADA)

        process.wire.before_commit = decide
        await process.advance(60)
        assert done[0].verdict == "yes"
        assert (await result_of(process, eid))[:3] == ["yes", None, "ada@example.com"]
        assert await told(process.engine, eid) == ["review.requested", "review.decided"]


@pytest.mark.parametrize(
    ("answer", "verdict", "data"),
    [
        ({"verdict": "no", "data": [1]}, "no", [1]),
        ({"verdict": "no"}, "no", None),
        ("just text", "answered", "just text"),
        ({"verdict": 7}, "answered", {"verdict": 7}),
    ],
)
async def test_a_consumer_of_the_queue_can_decide(
    url: str, answer: Any, verdict: str, data: Any
) -> None:
    async with engine_under_test(asking(), url=url) as under:
        engine = under.engine
        eid = await engine.start("ask")
        await under.run_until_idle()
        (pending,) = await engine.reviews.pending()
        held = await engine.consumer(["finance"], holder="bot").dequeue()
        assert held is not None
        assert held.task.payload["rid"] == pending.rid
        await held.complete(answer)
        await under.run_until_idle()
        assert (await result_of(under, eid))[:3] == [verdict, data, "bot"]
        assert await told(engine, eid) == ["review.requested", "review.decided"]
        shown = await engine.projection.review(pending.rid)
        assert shown is not None
        assert (shown.status, shown.verdict, shown.data) == ("decided", verdict, data)
        again = await engine.reviews.decide(pending.rid, verdict="other", by=ADA)
        assert (again.verdict, again.by.id) == (verdict, "bot")


async def test_a_person_is_faster_than_the_consumer(url: str) -> None:
    """The consumer answered, but the workflow has not run yet: the claim decides, and all agree."""
    async with engine_under_test(asking(), url=url) as under:
        engine = under.engine
        eid = await engine.start("ask")
        await under.run_until_idle()
        (pending,) = await engine.reviews.pending()
        held = await engine.consumer(["finance"], holder="bot").dequeue()
        assert held is not None
        await held.complete({"verdict": "bot says no"})
        decision = await engine.reviews.decide(pending.rid, verdict="yes", by=ADA)
        await under.run_until_idle()
        assert decision.verdict == "yes"
        assert (await result_of(under, eid))[:3] == ["yes", None, "ada@example.com"]
        assert await told(engine, eid) == ["review.requested", "review.decided"]


async def test_the_inbox_of_two_queues(url: str) -> None:
    """C139: pending, decided and expired ones, by queue."""
    async with engine_under_test(asking(), url=url) as under:
        engine = under.engine
        eids = [
            await engine.start("ask", "finance", None),
            await engine.start("ask", "legal", 60),
            await engine.start("ask", "finance", None),
        ]
        await under.run_until_idle()
        finance = await engine.reviews.pending("finance")
        assert [r.eid for r in finance] == [eids[0], eids[2]]
        assert [r.deadline for r in finance] == [None, None]
        await engine.reviews.decide(finance[0].rid, verdict="ok", by=ADA)
        await under.advance(60)
        page = await engine.projection.reviews(status=None)
        assert [(r.queue, r.status) for r in page.items] == [
            ("finance", "decided"),
            ("legal", "expired"),
            ("finance", "pending"),
        ]
        assert (page.items[0].decided_by, page.items[0].verdict) == (ADA, "ok")


@pytest.mark.parametrize("stop", ["cancel", "terminate"])
async def test_nobody_decides_for_an_execution_that_has_ended(url: str, stop: str) -> None:
    async with engine_under_test(asking(), url=url) as under:
        engine = under.engine
        eid = await engine.start("ask")
        await under.run_until_idle()
        (pending,) = await engine.reviews.pending()
        await getattr(engine, stop)(eid)
        await under.run_until_idle()
        assert await engine.reviews.pending() == []
        with pytest.raises(AlreadyClosed):
            await engine.reviews.decide(pending.rid, verdict="late")
        assert await engine.store.queue_tasks("finance", 10) == []


async def test_bad_input_is_refused(url: str) -> None:
    async with engine_under_test(asking(), url=url) as under:
        decide: Any = under.engine.reviews.decide
        for rid in ("nonsense", "", None, 7):
            with pytest.raises(UnknownReview):
                await decide(rid, verdict="ok")
        eid = await under.engine.start("ask")
        await under.run_until_idle()
        (pending,) = await under.engine.reviews.pending()
        for verdict in ("", None, 7, "x" * 201, "\ud800"):
            with pytest.raises(InvalidArgument, match="verdict"):
                await decide(pending.rid, verdict=verdict)
        with pytest.raises(NotSerializable):
            await decide(pending.rid, verdict="ok", data=object())
        with pytest.raises(InvalidArgument, match="Actor"):
            await decide(pending.rid, verdict="ok", by="ada")
        assert (await under.engine.execution(eid)).status == "suspended"


@pytest.mark.parametrize(
    "more",
    [{}, {"reply_channel": "x"}, {"reply_channel": "reply.x", "task_id": "no id"}],
    ids=["no channel", "no reply channel", "no task"],
)
async def test_a_request_of_another_make_cannot_be_decided(url: str, more: dict[str, str]) -> None:
    """Anybody can announce; a decision never reaches a channel that is not for answers."""
    async with engine_under_test(asking(), url=url) as under:
        request = {"rid": "mine", "queue": "finance", "payload": None, **more}
        await under.engine.start("announce", request)
        await under.run_until_idle()
        assert [r.rid for r in await under.engine.reviews.pending()] == ["mine"]
        with pytest.raises((Conflict, InvalidArgument)):
            await under.engine.reviews.decide("mine", verdict="ok")


@pytest.mark.parametrize("decided", [True, False], ids=["decided", "expired"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_crash_at_any_commit_changes_nothing(
    url: str, *, before: bool, decided: bool
) -> None:
    """Each announcement is there once, and so is the decision."""
    crash_at = 0
    while True:
        crash_at += 1
        machine = await Machine.open(asking(), url)
        eid: list[UUID] = []

        async def work(under: EngineUnderTest, eid: list[UUID] = eid) -> None:
            if not eid:
                eid.append(await under.engine.start("ask", "finance", 60))
            await under.advance(1)
            if decided:
                for one in await under.engine.reviews.pending():
                    await under.engine.reviews.decide(one.rid, verdict="ok", by=ADA)
            await under.advance(120)

        died = await machine.until_death(work(await machine.boot(crash_at=crash_at, before=before)))
        if died:
            await machine.bury()
            await work(await machine.boot())
        under = machine.under
        assert under is not None
        row = await under.engine.execution(eid[0])
        expected = "ok" if decided and row.result is not None else None
        assert (row.result and row.result[0]) == expected
        end = "review.expired" if row.result is None else "review.decided"
        assert await told(under.engine, eid[0]) == ["review.requested", end]
        assert await nothing_left(machine.store)
        await machine.bury()
        await machine.store.close()
        if not died:
            assert crash_at > 8
            return
