"""Who is alive, what is due, and what was left behind? Sessions, timers, expiry and repair."""
# ruff: noqa: S101, PLR2004 - a contract is made of assertions and of the values it expects

from __future__ import annotations

import asyncio

from perdure.model.entry import ExecutionResumed
from perdure.model.instants import from_us
from perdure.ports.commands import Done, ExpireSession, FireTimers, RepairPending, Timer
from perdure.ports.store import Committed, Owned, SessionBeat, SessionGone
from perdure.testing.contract.stage import (
    ENGINE_SITE,
    NOW,
    SECOND,
    TTL_S,
    WORKER_SITE,
    Checks,
    Stage,
    complete,
    entries,
    raised,
    release,
    send,
    suspend,
)

CHECKS = Checks()


@CHECKS.add
async def session_knows_its_site(stage: Stage) -> None:
    """A site is interned: the same one has the same id, and is read by it."""
    again = await stage.store.open_session(WORKER_SITE, None, NOW)
    assert again.session not in (stage.worker.session, stage.engine.session)
    assert again.site == stage.worker.site != stage.engine.site
    ids = [stage.worker.site, stage.engine.site, 999_999]
    found = await stage.store.sites(ids)
    assert found == {stage.worker.site: WORKER_SITE, stage.engine.site: ENGINE_SITE}


@CHECKS.add
async def sessions_lists_those_that_beat(stage: Stage) -> None:
    """A session with a ttl is listed with its beat; one without is not."""
    before = await stage.store.sessions()
    assert [(one.session, one.ttl) for one in before] == [(stage.worker.session, TTL_S)]
    await stage.store.beat(stage.worker.session)
    (after,) = await stage.store.sessions()
    assert after.beat > before[0].beat
    await stage.store.close_session(stage.worker.session)
    assert await stage.store.sessions() == []


@CHECKS.add
async def beat_lists_what_is_owned(stage: Stage) -> None:
    """A beat tells every execution that the session owns, with epoch and wake counter."""
    assert (await stage.store.beat(stage.worker.session)).owned == ()
    first, second, done = [await stage.own() for _ in range(3)]
    await stage.apply(release(first, stage.worker))
    await stage.dequeue()
    await stage.apply(send(second.record.eid))
    await stage.apply(complete(done))
    owned = (await stage.store.beat(stage.worker.session)).owned
    assert set(owned) == {Owned(first.record.eid, 2, 0), Owned(second.record.eid, 1, 1)}
    assert len(owned) == 2
    assert (await stage.store.beat(stage.engine.session)).owned == ()


@CHECKS.add
async def beat_needs_a_live_session(stage: Stage) -> None:
    """A beat of a session that has expired, was closed or never was raises."""
    expired = await stage.store.open_session(WORKER_SITE, TTL_S, NOW)
    await stage.apply(ExpireSession(expired.session, 0, NOW))
    await stage.store.close_session(stage.worker.session)
    for session in (expired.session, stage.worker.session, 999_999):
        await raised(SessionGone, stage.store.beat(session))


@CHECKS.add
async def own_beat_is_a_beat(stage: Stage) -> None:
    """A store that gives a beat for a thread counts it like any other."""
    own_beat = stage.store.own_beat()
    if own_beat is None:
        return
    owned = await stage.own()
    (before,) = await stage.store.sessions()
    beat = await asyncio.to_thread(own_beat, stage.worker.session)
    assert beat.owned == (Owned(owned.record.eid, 1, 0),)
    (after,) = await stage.store.sessions()
    assert after.beat > before.beat
    await stage.apply(ExpireSession(stage.worker.session, after.beat, NOW))
    await raised(SessionGone, asyncio.to_thread(own_beat, stage.worker.session))


@CHECKS.add
async def expiry_recovers_all_that_was_owned(stage: Stage) -> None:
    """An expired session owns nothing any more; each execution is resumed by whoever comes."""
    owned = [await stage.own() for _ in range(3)]
    asleep = await stage.suspended()
    committed = await stage.batch((ExpireSession(stage.worker.session, 0, NOW + SECOND),))
    assert committed == Committed((Done((3,)),), enqueued=True)
    assert await stage.store.sessions() == []
    assert await stage.ready() == 3
    heir = await stage.store.open_session(WORKER_SITE, TTL_S, NOW)
    claimed = await stage.dequeue(session=heir)
    assert [(one.record.eid, one.kind, one.epoch) for one in claimed] == [
        (one.record.eid, "resume", 2) for one in owned
    ]
    assert {type(entry) for one in claimed for entry in entries(one.journal[-1:])} == {
        ExecutionResumed
    }
    assert (await stage.row(asleep)).status == "suspended"


@CHECKS.add
async def expiry_needs_a_beat_that_stands_still(stage: Stage) -> None:
    """If the session has beaten meanwhile, is gone, or has expired already, nothing happens."""
    owned = await stage.own()
    (seen,) = await stage.store.sessions()
    await stage.store.beat(stage.worker.session)
    (moved,) = await stage.store.sessions()
    nothing = Committed((Done((0,)),))
    assert await stage.batch((ExpireSession(seen.session, seen.beat, NOW),)) == nothing
    assert len((await stage.store.beat(seen.session)).owned) == 1
    beat = SessionBeat(moved.session, moved.beat + 1, TTL_S)
    assert await stage.store.sessions() == [beat]
    assert await stage.apply(ExpireSession(beat.session, beat.beat, NOW)) == Done((1,))
    heir = await stage.store.open_session(WORKER_SITE, TTL_S, NOW)
    await stage.dequeue(session=heir)
    assert await stage.batch((ExpireSession(beat.session, beat.beat, NOW),)) == nothing
    assert await stage.batch((ExpireSession(999_999, 0, NOW),)) == nothing
    lease = await stage.store.lease(owned.record.eid)
    assert lease is not None
    assert (lease.epoch, lease.live) == (2, True)


@CHECKS.add
async def closing_a_session_is_final(stage: Stage) -> None:
    """A closed session does nothing more; to close it again, or one that never was, is fine."""
    await stage.store.close_session(stage.worker.session)
    await stage.store.close_session(stage.worker.session)
    await stage.store.close_session(999_999)
    assert await stage.apply(ExpireSession(stage.worker.session, 0, NOW)) == Done((0,))


@CHECKS.add
async def closing_a_session_loses_nothing(stage: Stage) -> None:
    """What a session still owned when it was closed is resumed by whoever comes."""
    owned = await stage.own()
    await stage.store.close_session(stage.worker.session)
    lease = await stage.store.lease(owned.record.eid)
    assert lease is not None
    assert not lease.live
    heir = await stage.store.open_session(WORKER_SITE, TTL_S, NOW)
    (claimed,) = await stage.dequeue(session=heir)
    assert (claimed.record.eid, claimed.kind, claimed.epoch) == (owned.record.eid, "resume", 2)


@CHECKS.add
async def timers_resume_an_execution_once(stage: Stage) -> None:
    """Several due timers of one execution make one RESUME; each counts as fired, once."""
    eid = await stage.suspended(
        Timer("a", NOW + 1), Timer("b", NOW + 2), Timer("c", NOW + 3), Timer("d", NOW + 99)
    )
    assert await stage.apply(FireTimers(NOW, 10)) == Done((0,))
    committed = await stage.batch((FireTimers(NOW + 3, 10),), (FireTimers(NOW + 3, 10),))
    assert committed == Committed((Done((3,)), Done((0,))), enqueued=True)
    await stage.apply(send(eid))
    assert await stage.ready() == 1
    (claimed,) = await stage.dequeue()
    assert entries(claimed.journal[-1:]) == [ExecutionResumed(NOW, "timer")]
    assert await stage.ready() == 0


@CHECKS.add
async def timers_of_owned_executions_do_not_fire(stage: Stage) -> None:
    """Once an execution is owned again, the timers it had been waiting on are nobody's matter."""
    eid = await stage.suspended(Timer("a", NOW + 1))
    await stage.apply(send(eid))
    (claimed,) = await stage.dequeue()
    committed = await stage.batch((FireTimers(NOW + 5, 10),))
    assert committed == Committed((Done((0,)),))
    assert await stage.ready() == 0
    await stage.apply(suspend(claimed))
    assert await stage.apply(FireTimers(NOW + 5, 10)) == Done((0,))


@CHECKS.add
async def timers_fire_in_order_up_to_the_limit(stage: Stage) -> None:
    """The earliest come first. As long as `limit` or more fired, there may be others."""
    dues = [NOW + 3, NOW + 1, NOW + 2, NOW + 4]
    eids = [await stage.suspended(Timer("a", due), Timer("b", due)) for due in dues]
    by_due = [eid for _, eid in sorted(zip(dues, eids, strict=True))]
    passes = 0
    while True:
        outcome = await stage.apply(FireTimers(NOW + 9, 3))
        assert isinstance(outcome, Done)
        assert isinstance(outcome.results[0], int)
        passes += 1
        if outcome.results[0] < 3:
            break
    assert 2 <= passes <= 4
    assert [one.record.eid for one in await stage.dequeue()] == by_due


@CHECKS.add
async def delayed_tasks_are_promoted_up_to_the_limit(stage: Stage) -> None:
    """Delayed tasks become ready when they are due, at most `limit` with each command."""
    dues = [NOW + 3, NOW + 1, NOW + 2, NOW + 50]
    eids = [await stage.create(not_before=from_us(due)) for due in dues]
    assert await stage.store.next_due() == NOW + 1
    assert await stage.apply(FireTimers(NOW + 9, 2)) == Done((2,))
    assert {one.record.eid for one in await stage.dequeue()} == {eids[1], eids[2]}
    assert await stage.apply(FireTimers(NOW + 9, 2)) == Done((1,))
    assert await stage.store.next_due() == NOW + 50
    info = await stage.store.info()
    assert (info.ready_tasks, info.delayed_tasks) == (1, 1)


@CHECKS.add
async def next_due_is_the_earliest_of_all(stage: Stage) -> None:
    """Timers and delayed tasks count alike; without either there is none."""
    assert await stage.store.next_due() is None
    await stage.create(not_before=from_us(NOW + 30))
    assert await stage.store.next_due() == NOW + 30
    await stage.suspended(Timer("a", NOW + 20), Timer("b", NOW + 10))
    assert await stage.store.next_due() == NOW + 10
    await stage.apply(FireTimers(NOW + 10, 10))
    assert await stage.store.next_due() == NOW + 20
    assert await stage.apply(FireTimers(NOW + 30, 10)) == Done((2,))
    assert await stage.store.next_due() is None
    assert await stage.ready() == 2


@CHECKS.add
async def repair_leaves_what_is_sound(stage: Stage) -> None:
    """A pending execution that has its START, ready or delayed, gets no other."""
    await stage.suspended()
    await stage.create()
    await stage.create(not_before=from_us(NOW + SECOND))
    before = await stage.store.info()
    assert await stage.batch((RepairPending(NOW, 10),)) == Committed((Done((0,)),))
    assert await stage.store.info() == before
