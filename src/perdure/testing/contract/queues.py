"""Who gets which task, and under which epoch? The rules of a dequeue, and what a fence is for."""
# ruff: noqa: S101, PLR2004 - a contract is made of assertions and of the values it expects

from __future__ import annotations

import msgspec

from perdure.model.entry import ExecutionResumed, ExecutionStarted
from perdure.model.instants import from_us
from perdure.model.queue_task import QueueDepth
from perdure.ports.commands import (
    DequeueDelegated,
    Done,
    Enqueue,
    ExpireSession,
    FireTimers,
    Refused,
    Timer,
)
from perdure.ports.store import Claimed, JournalRow, MissingWorkflow, SessionGone
from perdure.testing.contract.stage import (
    BODY,
    ENGINE_SITE,
    KNOWN,
    NOW,
    SECOND,
    TTL_S,
    WORKER_SITE,
    Checks,
    Stage,
    append,
    complete,
    entries,
    raised,
    release,
    send,
    suspend,
)

CHECKS = Checks()


def _eids(claimed: list[Claimed]) -> list[object]:
    return [one.record.eid for one in claimed]


@CHECKS.add
async def dequeue_goes_by_queue_then_priority_then_age(stage: Stage) -> None:
    """Tasks come in the order of the queues as listed, then priority, then age."""
    last = await stage.create(queue="b", priority=1)
    third = await stage.create(queue="a", priority=9)
    first = await stage.create(queue="a", priority=0)
    second = await stage.create(queue="a", priority=0)
    await stage.create(queue="c", priority=0)
    assert _eids(await stage.dequeue(("a", "b"))) == [first, second, third, last]
    assert await stage.dequeue(("a", "b")) == []


@CHECKS.add
async def dequeue_takes_at_most_the_limit(stage: Stage) -> None:
    """No more than `limit` tasks are taken; the rest stay in order, over all queues."""
    eids = [await stage.create(queue=queue) for queue in ("a", "a", "a", "b", "b")]
    assert await stage.dequeue(("a", "b"), limit=0) == []
    assert _eids(await stage.dequeue(("a", "b"), limit=2)) == eids[:2]
    assert _eids(await stage.dequeue(("a", "b"), limit=2)) == eids[2:4]
    assert _eids(await stage.dequeue(("a", "b"), limit=2)) == eids[4:]


@CHECKS.add
async def dequeue_takes_only_what_is_known(stage: Stage) -> None:
    """A task is taken by name and version together; an unknown one stays, in nobody's way."""
    unknown = [
        await stage.create(workflow="work", version="2", priority=0),
        await stage.create(workflow="other", version="1", priority=0),
    ]
    known = [await stage.create(priority=5), await stage.create(priority=5)]
    pairs = KNOWN | {("other", "2"), ('odd"name', "1")}
    assert _eids(await stage.dequeue(known=pairs, limit=1)) == known[:1]
    assert _eids(await stage.dequeue(known=pairs)) == known[1:]
    assert await stage.dequeue(known=frozenset()) == []
    assert await stage.ready() == 2
    pairs = frozenset({("work", "2"), ("other", "1")})
    assert _eids(await stage.dequeue(known=pairs)) == unknown


@CHECKS.add
async def missing_names_what_ready_tasks_wait_for(stage: Stage) -> None:
    """Versions outside `known` for which tasks are ready on these queues are named once each."""
    for version in ("2", "3", "3"):
        await stage.create(version=version)
    await stage.create(workflow="elsewhere", queue="other")
    await stage.create(workflow="later", not_before=from_us(NOW + SECOND))
    await stage.create()
    known = KNOWN | {("work", "2")}
    assert await stage.store.missing(("default",), known) == [MissingWorkflow("work", "3")]
    named = await stage.store.missing(("default", "other"), KNOWN)
    assert sorted((one.workflow, one.version) for one in named) == [
        ("elsewhere", "1"),
        ("work", "2"),
        ("work", "3"),
    ]


@CHECKS.add
async def start_appends_its_fence(stage: Stage) -> None:
    """A START makes the session owner under epoch 1 and appends ``execution.started``."""
    eid = await stage.create()
    (claimed,) = await stage.dequeue(now=NOW + SECOND)
    assert (claimed.kind, claimed.epoch) == ("start", 1)
    assert claimed.record == await stage.store.record(eid)
    assert [(row.seq, row.epoch, row.site) for row in claimed.journal] == [
        (1, 1, stage.worker.site)
    ]
    assert entries(claimed.journal) == [ExecutionStarted(NOW + SECOND, claimed.record.args)]
    assert await stage.store.journal(eid) == list(claimed.journal)
    row = await stage.row(eid)
    assert (row.status, row.epoch, row.worker_id) == ("running", 1, "worker-1")
    assert row.started_at == row.updated_at == from_us(NOW + SECOND)
    twin = (await stage.store.control())[-1]
    assert (twin.type, twin.epoch, twin.at) == ("execution.started", 1, NOW + SECOND)


@CHECKS.add
async def resume_appends_its_fence(stage: Stage) -> None:
    """A RESUME gives the whole journal and appends ``execution.resumed`` with its reason."""
    owned = await stage.own()
    eid = owned.record.eid
    await stage.apply(append(owned, 2, count=3))
    await stage.apply(suspend(owned), append(owned, 5, count=2))
    await stage.apply(send(eid))
    (again,) = await stage.dequeue(now=NOW + SECOND)
    assert (again.kind, again.epoch) == ("resume", 2)
    assert [(row.seq, row.epoch) for row in again.journal] == [(1, 1), (2, 1), (5, 1), (7, 2)]
    assert entries(again.journal[-1:]) == [ExecutionResumed(NOW + SECOND, "message")]
    assert await stage.store.journal(eid) == list(again.journal)
    row = await stage.row(eid)
    assert (row.status, row.epoch, row.started_at) == ("running", 2, from_us(NOW))
    twin = (await stage.store.control())[-1]
    assert (twin.type, twin.epoch) == ("execution.resumed", 2)
    assert msgspec.json.decode(twin.body) == {"reason": "message"}


@CHECKS.add
async def dequeue_brings_the_mail(stage: Stage) -> None:
    """A claim holds the wake counter and the unread messages as of that moment."""
    eid = await stage.suspended()
    await stage.apply(send(eid, b"7"))
    (claimed,) = await stage.dequeue()
    assert claimed.mail == await stage.mail(eid)
    assert [bytes(message.payload) for message in claimed.mail.messages] == [b"7"]
    assert await stage.apply(suspend(claimed)) == Done((None,))


@CHECKS.add
async def many_are_dequeued_at_once(stage: Stage) -> None:
    """A dequeue of many gives each its own journal and mail."""
    eids = [await stage.suspended() for _ in range(20)]
    fresh = [await stage.create() for _ in range(20)]
    for number, eid in enumerate(eids):
        await stage.apply(send(eid, str(number).encode()))
    claimed = await stage.dequeue(limit=100)
    assert _eids(claimed) == fresh + eids
    assert [bytes(one.mail.messages[0].payload) for one in claimed[20:]] == [
        str(number).encode() for number in range(20)
    ]
    assert [len(one.journal) for one in claimed] == [1] * 20 + [2] * 20
    owned = (await stage.store.beat(stage.worker.session)).owned
    assert {one.eid for one in owned} == {*eids, *fresh}


@CHECKS.add
async def dequeue_needs_a_live_session(stage: Stage) -> None:
    """A dequeue by a session that has expired, was closed or never was takes nothing."""
    await stage.create()
    expired = await stage.store.open_session(WORKER_SITE, TTL_S, NOW)
    await stage.apply(ExpireSession(expired.session, 0, NOW))
    await stage.store.close_session(stage.engine.session)
    for session in (expired.session, stage.engine.session, 999_999):
        dequeue = stage.store.dequeue(session, ("default",), KNOWN, 10, NOW)
        await raised(SessionGone, dequeue)
        assert await stage.ready() == 1


@CHECKS.add
async def fence_shuts_out_the_owner_before(stage: Stage) -> None:
    """After another session has taken over, nothing of the owner before is applied."""
    before = await stage.own()
    eid = before.record.eid
    await stage.apply(append(before, 2))
    await stage.apply(ExpireSession(stage.worker.session, 0, NOW))
    heir = await stage.store.open_session(WORKER_SITE, TTL_S, NOW)
    (after,) = await stage.dequeue(session=heir)
    assert (after.kind, after.epoch) == ("resume", 2)
    committed = await stage.batch(
        (append(before, 3),),
        (suspend(before, Timer("t", NOW)), append(before, 3)),
        (complete(before), append(before, 3)),
        (release(before, stage.worker),),
        (append(after, 4),),
    )
    lost = Refused("lease_lost")
    assert committed.outcomes == (
        Refused("journal_conflict"),
        lost,
        lost,
        Done((False,)),
        Done((None,)),
    )
    (owned,) = (await stage.store.beat(heir.session)).owned
    assert (owned.eid, owned.epoch) == (eid, 2)
    assert await stage.apply(FireTimers(NOW, 10)) == Done((0,))


@CHECKS.add
async def append_just_before_the_fence_is_kept(stage: Stage) -> None:
    """What an owner appends before another takes over is part of the journal."""
    before = await stage.own()
    await stage.apply(ExpireSession(stage.worker.session, 0, NOW))
    assert await stage.apply(append(before, 2, count=4)) == Done((None,))
    heir = await stage.store.open_session(WORKER_SITE, TTL_S, NOW)
    (after,) = await stage.dequeue(session=heir)
    assert after.journal[1] == JournalRow(2, 1, stage.worker.site, BODY)
    assert after.journal[-1].seq == 6


@CHECKS.add
async def sessions_share_the_work(stage: Stage) -> None:
    """A task goes to one session only."""
    other = await stage.store.open_session(ENGINE_SITE, TTL_S, NOW)
    eids = [await stage.create() for _ in range(3)]
    one = await stage.dequeue(limit=1)
    two = await stage.dequeue(session=other)
    assert _eids(one) + _eids(two) == eids
    beats = [await stage.store.beat(taker.session) for taker in (stage.worker, other)]
    assert [{own.eid for own in beat.owned} for beat in beats] == [{eids[0]}, set(eids[1:])]


@CHECKS.add
async def a_queue_is_counted_by_what_its_tasks_are(stage: Stage) -> None:
    """Ready, delayed or leased: each task is one of them, as the list of the tasks says."""
    owned = await stage.own()
    eid, epoch = owned.record.eid, owned.epoch
    for key in ("one", "two", "three"):
        fid = f"root/{key}#0"
        await stage.apply(Enqueue(eid, epoch, fid, "delegate", key, "agents", b"1", NOW))
    await stage.apply(DequeueDelegated(("agents",), "holder", TTL_S, NOW))
    await stage.create(queue="agents", not_before=from_us(NOW + SECOND))
    await stage.create(queue="other")
    assert await stage.store.queue_depth("agents") == QueueDepth(ready=2, delayed=1, leased=1)
    assert await stage.store.queue_depth("nosuch") == QueueDepth(0, 0, 0)
    states = [task.state for task in await stage.store.queue_tasks("agents", 10)]
    assert sorted(states) == ["delayed", "leased", "ready", "ready"]
