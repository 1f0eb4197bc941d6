"""Does each command of an owner or an operator do what it says, and refuse what it must?"""
# ruff: noqa: S101, PLR2004 - a contract is made of assertions and of the values it expects

from __future__ import annotations

import msgspec

from perdure.model.execution import ErrorInfo
from perdure.model.instants import from_us
from perdure.ports.commands import Done, FireTimers, Refused, Timer
from perdure.ports.store import Committed, Mail
from perdure.testing.contract.stage import (
    ADA,
    ENGINE_SITE,
    NOW,
    SECOND,
    Checks,
    Stage,
    append,
    complete,
    consume,
    entries,
    fail,
    new_eid,
    release,
    send,
    suspend,
)

CHECKS = Checks()

LEASE_LOST = Refused("lease_lost")


@CHECKS.add
async def suspend_releases_and_tells_what_it_waits_on(stage: Stage) -> None:
    """A suspended execution has no owner, and its row and its timers say what it waits on."""
    owned = await stage.own()
    eid = owned.record.eid
    soon, later = Timer("b", NOW + 5 * SECOND), Timer("a", NOW + 9 * SECOND)
    committed = await stage.batch((suspend(owned, later, soon), append(owned, 2)))
    assert committed == Committed((Done((None, None)),))
    row = await stage.row(eid)
    assert (row.status, row.suspended_on, row.blocked) == (
        "suspended",
        ("timer:a", "timer:b"),
        None,
    )
    assert (row.epoch, row.worker_id) == (1, None)
    assert await stage.store.next_due() == soon.due
    assert (await stage.store.beat(stage.worker.session)).owned == ()
    assert (await stage.told())[-1] == "execution.suspended"
    assert await stage.ready() == 0


@CHECKS.add
async def suspend_tells_why_it_is_blocked(stage: Stage) -> None:
    """The reason of a block is shown until the execution is owned again."""
    owned = await stage.own()
    eid = owned.record.eid
    await stage.apply(suspend(owned, blocked="the code has changed"))
    assert (await stage.row(eid)).blocked == "the code has changed"
    await stage.apply(send(eid))
    await stage.dequeue()
    row = await stage.row(eid)
    assert (row.status, row.blocked, row.suspended_on) == ("running", None, ())


@CHECKS.add
async def suspend_of_what_is_not_owned_is_refused(stage: Stage) -> None:
    """Without an owner, or under another epoch, a suspension is refused as `lease_lost`."""
    owned = await stage.own()
    assert await stage.apply(suspend(owned, epoch=0)) == LEASE_LOST
    assert await stage.apply(suspend(owned, epoch=2)) == LEASE_LOST
    assert (await stage.row(owned.record.eid)).status == "running"
    await stage.apply(suspend(owned))
    told = await stage.told()
    assert await stage.apply(suspend(owned, Timer("late", NOW))) == LEASE_LOST
    assert await stage.store.next_due() is None
    assert await stage.told() == told


@CHECKS.add
async def suspend_with_something_unread_is_refused(stage: Stage) -> None:
    """If the wake counter has moved, a suspension is refused as `wake`; the owner stays."""
    owned = await stage.own()
    await stage.apply(send(owned.record.eid))
    committed = await stage.batch((suspend(owned, Timer("t", NOW)), append(owned, 2)))
    assert committed == Committed((Refused("wake"),))
    assert (await stage.row(owned.record.eid)).status == "running"
    assert len(await stage.store.journal(owned.record.eid)) == 1
    assert await stage.store.next_due() is None
    assert await stage.apply(suspend(owned, wake=1)) == Done((None,))


@CHECKS.add
async def suspend_replaces_the_whole_wait_set(stage: Stage) -> None:
    """No timer of an earlier suspension is left."""
    eid = await stage.suspended(Timer("a", NOW + 10), Timer("b", NOW + 20))
    await stage.apply(send(eid))
    (again,) = await stage.dequeue()
    await stage.apply(suspend(again, Timer("b", NOW + 30), wake=1))
    assert (await stage.row(eid)).suspended_on == ("timer:b",)
    assert await stage.store.next_due() == NOW + 30
    assert await stage.apply(FireTimers(NOW + 29, 10)) == Done((0,))
    assert await stage.apply(FireTimers(NOW + 30, 10)) == Done((1,))


@CHECKS.add
async def end_closes_with_the_result(stage: Stage) -> None:
    """A completed execution keeps its result, has no owner, and is reported as closed."""
    owned = await stage.own()
    eid = owned.record.eid
    committed = await stage.batch((complete(owned, result=b'{"a":[1]}'), append(owned, 2)))
    assert committed == Committed((Done((None, None)),), closed=(eid,))
    row = await stage.row(eid)
    assert (row.status, row.result, row.error) == ("completed", {"a": [1]}, None)
    assert (row.ended_at, row.worker_id) == (from_us(NOW + SECOND), None)
    assert (await stage.told())[-1] == "execution.completed"
    assert (await stage.store.beat(stage.worker.session)).owned == ()
    assert await stage.ready() == 0


@CHECKS.add
async def end_closes_with_the_error(stage: Stage) -> None:
    """A failed execution keeps its error."""
    owned = await stage.own()
    committed = await stage.batch((fail(owned, "ValueError", "no such invoice"),))
    assert committed.closed == (owned.record.eid,)
    row = await stage.row(owned.record.eid)
    assert (row.status, row.result) == ("failed", None)
    assert row.error == ErrorInfo("ValueError", "no such invoice")
    assert (await stage.told())[-1] == "execution.failed"


@CHECKS.add
async def end_of_what_is_not_owned_is_refused(stage: Stage) -> None:
    """Without an owner, or under another epoch, an end is refused as `lease_lost`."""
    owned = await stage.own()
    committed = await stage.batch((complete(owned, epoch=2), append(owned, 2)))
    assert committed == Committed((LEASE_LOST,))
    await stage.apply(suspend(owned))
    assert await stage.apply(complete(owned)) == LEASE_LOST
    assert (await stage.row(owned.record.eid)).status == "suspended"
    await stage.apply(send(owned.record.eid))
    (again,) = await stage.dequeue()
    await stage.apply(complete(again))
    assert await stage.apply(fail(again, "E", "m")) == LEASE_LOST
    assert (await stage.row(owned.record.eid)).status == "completed"


@CHECKS.add
async def end_leaves_neither_task_nor_timer(stage: Stage) -> None:
    """Nothing of an ended execution is on a queue or due."""
    eid = await stage.suspended(Timer("a", NOW + 10), Timer("b", NOW + 20))
    await stage.apply(FireTimers(NOW + 10, 10))
    (again,) = await stage.dequeue(now=NOW + 10)
    await stage.apply(complete(again))
    info = await stage.store.info()
    assert (info.ready_tasks, info.delayed_tasks, info.timers) == (0, 0, 0)
    assert await stage.apply(FireTimers(NOW + 99, 10)) == Done((0,))
    assert list(await stage.store.ended([eid])) == [eid]


@CHECKS.add
async def release_hands_the_execution_on(stage: Stage) -> None:
    """What is released is resumed by whoever dequeues next, for the reason given."""
    owned = await stage.own()
    committed = await stage.batch((release(owned, stage.worker, "drain"),))
    assert committed == Committed((Done((True,)),), enqueued=True)
    assert (await stage.row(owned.record.eid)).worker_id is None
    (again,) = await stage.dequeue()
    assert (again.kind, again.epoch) == ("resume", 2)
    assert getattr(entries(again.journal)[-1], "reason", None) == "drain"


@CHECKS.add
async def release_of_what_is_owned_otherwise_does_nothing(stage: Stage) -> None:
    """A release by another session, of another epoch, or twice is no error, and changes nothing."""
    owned = await stage.own()
    nothing = Committed((Done((False,)),))
    assert await stage.batch((release(owned, stage.engine),)) == nothing
    await stage.apply(release(owned, stage.worker))
    assert await stage.batch((release(owned, stage.worker),)) == nothing
    (again,) = await stage.dequeue()
    assert await stage.batch((release(owned, stage.worker),)) == nothing
    (still,) = (await stage.store.beat(stage.worker.session)).owned
    assert (still.eid, still.epoch) == (owned.record.eid, again.epoch)


@CHECKS.add
async def send_numbers_each_channel_by_itself(stage: Stage) -> None:
    """Messages are numbered from 1 on each channel of each execution."""
    one, other = await stage.create(), await stage.create()
    sends = [send(one), send(one), send(one, channel="y"), send(other), send(one)]
    committed = await stage.batch(*((each,) for each in sends))
    assert [getattr(each, "results", None) for each in committed.outcomes] == [
        (1,),
        (2,),
        (1,),
        (1,),
        (3,),
    ]


@CHECKS.add
async def send_wakes_a_suspended_execution_once(stage: Stage) -> None:
    """However many messages arrive, one RESUME is enqueued."""
    eid = await stage.suspended()
    committed = await stage.batch((send(eid),), (send(eid),))
    assert (committed.enqueued, committed.woken) == (True, ())
    await stage.apply(send(eid))
    assert await stage.ready() == 1
    (again,) = await stage.dequeue()
    assert again.mail.wake == 3
    assert [message.seq for message in again.mail.messages] == [1, 2, 3]
    assert await stage.dequeue() == []


@CHECKS.add
async def send_tells_an_owner(stage: Stage) -> None:
    """A message to an owned execution raises its wake counter and reports it; no task is needed."""
    owned = await stage.own()
    eid = owned.record.eid
    committed = await stage.batch((send(eid),), (send(eid),))
    assert not committed.enqueued
    assert set(committed.woken) == {eid}
    assert await stage.store.wakes([eid]) == {eid: 2}
    (known,) = (await stage.store.beat(stage.worker.session)).owned
    assert known.wake == 2
    assert await stage.ready() == 0


@CHECKS.add
async def send_to_a_pending_execution_waits_for_its_start(stage: Stage) -> None:
    """A message before the start is there at the start; it makes no second task."""
    eid = await stage.create()
    assert await stage.batch((send(eid, b'"early"'),)) == Committed((Done((1,)),))
    assert await stage.ready() == 1
    (claimed,) = await stage.dequeue()
    assert claimed.mail == await stage.mail(eid)
    assert [bytes(message.payload) for message in claimed.mail.messages] == [b'"early"']


@CHECKS.add
async def send_to_nobody_is_refused(stage: Stage) -> None:
    """A message to an unknown execution is refused as `unknown_execution`."""
    assert await stage.batch((send(new_eid()),)) == Committed((Refused("unknown_execution"),))


@CHECKS.add
async def send_to_a_closed_execution_is_refused(stage: Stage) -> None:
    """A message to an ended execution is refused as `already_closed`, with its status."""
    done, failed = await stage.own(), await stage.own()
    await stage.batch((complete(done),), (fail(failed, "E", "m"),))
    committed = await stage.batch((send(done.record.eid),), (send(failed.record.eid),))
    assert committed == Committed(
        (Refused("already_closed", "completed"), Refused("already_closed", "failed"))
    )
    assert await stage.mail(done.record.eid) == Mail(0, ())


@CHECKS.add
async def mail_holds_what_was_sent(stage: Stage) -> None:
    """Unread messages come back whole, by channel and number."""
    eid = await stage.create()
    await stage.apply(send(eid, b"null", channel="y"), send(eid, b'{"a":"\xc3\xbc"}', at=NOW + 1))
    mail = await stage.mail(eid)
    assert mail.wake == 2
    assert [(one.channel, one.seq, bytes(one.payload)) for one in mail.messages] == [
        ("x", 1, b'{"a":"\xc3\xbc"}'),
        ("y", 1, b"null"),
    ]
    first = mail.messages[0]
    assert (first.sent_by, first.sent_at, first.correlation) == (ADA, NOW + 1, "letter-7")
    assert await stage.store.mail(new_eid()) is None


@CHECKS.add
async def consumed_messages_are_not_read_again(stage: Stage) -> None:
    """A channel is read from what was consumed on; other channels are not touched by that."""
    owned = await stage.own()
    eid = owned.record.eid
    await stage.apply(*(send(eid) for _ in range(3)), send(eid, channel="y"))
    assert await stage.apply(consume(eid, 2)) == Done((None,))
    unread = [("x", 3), ("y", 1)]
    assert [(one.channel, one.seq) for one in (await stage.mail(eid)).messages] == unread
    await stage.apply(consume(eid, 1))
    assert [(one.channel, one.seq) for one in (await stage.mail(eid)).messages] == unread
    await stage.apply(suspend(owned, wake=4), consume(eid, 3), send(eid, channel="y"))
    (again,) = await stage.dequeue()
    assert [(one.channel, one.seq) for one in again.mail.messages] == [("y", 1), ("y", 2)]
    assert await stage.apply(send(eid)) == Done((4,))


@CHECKS.add
async def control_log_tells_the_whole_life(stage: Stage) -> None:
    """What happens to an execution stands in the control log, with the facts and its epoch."""
    owned = await stage.own(key="k")
    eid = owned.record.eid
    await stage.apply(suspend(owned, blocked="why"))
    await stage.apply(send(eid))
    (again,) = await stage.dequeue()
    await stage.apply(fail(again, "ValueError", "no"))
    log = await stage.store.control()
    assert {entry.eid for entry in log} == {eid}
    assert [(entry.type, entry.epoch, msgspec.json.decode(entry.body)) for entry in log] == [
        (
            "execution.created",
            0,
            {"workflow": "work", "version": "1", "queue": "default", "key": "k"},
        ),
        ("execution.started", 1, {}),
        ("execution.suspended", 1, {"on": ["channel:x"], "reason": "why"}),
        ("execution.resumed", 2, {"reason": "message"}),
        ("execution.failed", 2, {"error_type": "ValueError", "message": "no"}),
    ]
    assert [entry.at for entry in log] == [NOW, NOW, NOW, NOW, NOW + SECOND]
    assert [entry.position for entry in log] == sorted({entry.position for entry in log})
    assert await stage.store.sites([stage.engine.site]) == {stage.engine.site: ENGINE_SITE}
