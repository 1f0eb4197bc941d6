"""Does a store keep the rules of effects, cancel requests, migrations and kept executions?"""
# ruff: noqa: S101, PLR2004 - a contract is made of assertions and of the values it expects

from __future__ import annotations

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from perdure.model.entry import FrameCompleted, entry_type, pack
from perdure.model.provenance import Actor
from perdure.ports.commands import (
    Announce,
    Broadcast,
    Claim,
    Done,
    FireTimers,
    Migrate,
    Refused,
    RequestCancel,
    Resume,
)
from perdure.ports.store import Claimed
from perdure.testing.contract.stage import (
    ADA,
    NOW,
    SECOND,
    Checks,
    Stage,
    append,
    complete,
    entries,
    new_eid,
    release,
    send,
    suspend,
)

CHECKS = Checks()

BOB = Actor.human("bob@example.com")
VERSIONS = frozenset({("work", "1"), ("work", "2")})


def broadcast(payload: bytes = b"1", channel: str = "news") -> Broadcast:
    """Send a message to everybody."""
    return Broadcast(channel, payload, ADA, NOW)


def memo(claimed: Claimed, count: int) -> bytes:
    """Pack entries whose values are to be filled in."""
    fid = "root/effect#0"
    return pack([FrameCompleted(NOW, fid, claimed.epoch, Raw(b"null")) for _ in range(count)])


# -- effects -----------------------------------------------------------------------------------


@CHECKS.add
async def results_of_effects_become_memos(stage: Stage) -> None:
    """An append may refer to the results of the commands before it."""
    receiver = await stage.suspended()
    owned = await stage.own()
    eid = owned.record.eid
    effects = (
        send(receiver, b"7"),
        broadcast(),
        Announce(eid, owned.epoch, "root/effect#0", "told", b"[1]", NOW),
        Claim("key", eid, b'"mine"', NOW),
        Claim("key", eid, b'"again"', NOW),
    )
    appended = append(owned, 2, count=5, body=memo(owned, 5))
    appended = replace(appended, memos=tuple((index, index) for index in range(5)))
    outcome = await stage.apply(*effects, appended)
    told = [entry for entry in await stage.store.control() if entry.type == "announce.told"]
    assert len(told) == 1
    assert isinstance(outcome, Done)
    claims = (b'[true,"mine"]', b'[false,"mine"]')
    assert outcome.results[:5] == (1, 1, told[0].position, *claims)
    values = [
        msgspec.json.decode(entry.value)
        for entry in entries(await stage.store.journal(eid))
        if isinstance(entry, FrameCompleted)
    ]
    assert values == [1, 1, told[0].position, [True, "mine"], [False, "mine"]]


@CHECKS.add
async def refused_effect_refuses_all_and_says_which(stage: Stage) -> None:
    """Nothing of a transition is applied if one of its effects is refused."""
    owned = await stage.own()
    eid = owned.record.eid
    effects = (broadcast(), send(new_eid()))
    appended = replace(append(owned, 2, count=2, body=memo(owned, 2)), memos=((0, 0), (1, 1)))
    committed = await stage.batch((*effects, appended), (broadcast(b"2"),))
    assert committed.outcomes == (Refused("unknown_execution", at=1), Done((1,)))
    assert committed.heard == ("news",)
    assert len(await stage.store.journal(eid)) == 1


@CHECKS.add
async def announcement_has_a_place_among_the_others(stage: Stage) -> None:
    """The position is that of the entry, and everything told before stands before it."""
    owned = await stage.own()
    eid = owned.record.eid
    command = Announce(eid, 1, "root/a#0", "x", b"null", NOW)
    outcomes = (await stage.batch((complete(owned),), (command,), (command,))).outcomes
    log = await stage.store.control()
    assert [entry.type for entry in log[-3:]] == [
        "execution.completed",
        "announce.x",
        "announce.x",
    ]
    assert outcomes[1:] == (Done((log[-2].position,)), Done((log[-1].position,)))
    assert msgspec.json.decode(log[-1].body) == {"fid": "root/a#0", "payload": None}


@CHECKS.add
async def answer_with_effects_is_repeated(stage: Stage) -> None:
    """A batch that asks again gets the results of its effects, and has no effect."""
    eid = await stage.suspended()
    batch = ((broadcast(),), (Claim("k", eid, b"1", NOW),), (RequestCancel(eid, ADA, None, NOW),))
    first = await stage.batch(*batch)
    stage.repeat()
    assert await stage.batch(*batch) == first
    assert first.heard == ("news",)
    assert await stage.apply(broadcast()) == Done((2,))


# -- global channels ---------------------------------------------------------------------------


@CHECKS.add
async def broadcast_wakes_those_who_wait(stage: Stage) -> None:
    """Suspended executions that named the channel are resumed; whoever is acquired is let off."""
    waiting = [await stage.own() for _ in range(2)]
    for owned in waiting:
        await stage.apply(replace(suspend(owned), channels=(("news", 0),)))
    other = await stage.suspended()
    committed = await stage.batch((broadcast(),))
    assert (committed.enqueued, committed.heard) == (True, ("news",))
    claimed = await stage.dequeue()
    assert {one.record.eid for one in claimed} == {one.record.eid for one in waiting}
    assert {one.mail.wake for one in claimed} == {1}
    assert (await stage.mail(other)).wake == 0
    committed = await stage.batch((broadcast(),))
    assert (committed.enqueued, committed.woken) == (False, ())


@CHECKS.add
async def suspension_is_refused_if_a_global_channel_went_on(stage: Stage) -> None:
    """What was sent after the owner read it must not be missed."""
    owned = await stage.own()
    await stage.apply(broadcast())
    stale = replace(suspend(owned), channels=(("news", 0),))
    assert await stage.apply(stale) == Refused("wake")
    assert str((await stage.row(owned.record.eid)).status) == "running"
    assert isinstance(await stage.apply(replace(stale, channels=(("news", 1),))), Done)


@CHECKS.add
async def global_messages_are_read_by_channel_and_number(stage: Stage) -> None:
    """A look names the channels and how far each is known; other channels stay apart."""
    eid = await stage.create()
    for payload in (b"1", b"2", b"3"):
        await stage.apply(broadcast(payload))
    await stage.apply(broadcast(channel="other"))
    await stage.apply(send(eid, channel="news"))
    mail = await stage.store.mail(eid, {"news": 1, "silent": 0})
    assert mail is not None
    assert [(m.channel, m.seq, bytes(m.payload)) for m in mail.heard] == [
        ("news", 2, b"2"),
        ("news", 3, b"3"),
    ]
    assert [(m.channel, m.seq) for m in mail.messages] == [("news", 1)]
    assert (await stage.mail(eid)).heard == ()


# -- cancel ------------------------------------------------------------------------------------


@CHECKS.add
async def pending_execution_is_cancelled_at_once(stage: Stage) -> None:
    """It is closed without an owner, with its entry and its twin, and its START is gone."""
    eid = await stage.create()
    committed = await stage.batch((RequestCancel(eid, ADA, "why", NOW + SECOND),))
    assert committed.outcomes == (Done(("pending",)),)
    assert committed.closed == (eid,)
    row = await stage.row(eid)
    assert (row.status, row.stopped_by, row.stop_reason) == ("cancelled", ADA, "why")
    (entry,) = entries(await stage.store.journal(eid))
    assert entry_type(entry) == "execution.cancelled"
    assert (await stage.told())[-1] == "execution.cancelled"
    assert await stage.ready() == 0


@CHECKS.add
async def request_wakes_and_the_first_one_counts(stage: Stage) -> None:
    """A suspended execution is resumed, an owned one is told; a second request changes nothing."""
    suspended, owned = await stage.suspended(), await stage.own()
    eid = owned.record.eid
    committed = await stage.batch(
        (RequestCancel(suspended, ADA, "one", NOW),),
        (RequestCancel(suspended, BOB, "two", NOW),),
        (RequestCancel(eid, ADA, None, NOW),),
    )
    assert committed.outcomes == (Done(("suspended",)), Done(("suspended",)), Done(("running",)))
    assert (committed.enqueued, committed.woken) == (True, (eid,))
    (claimed,) = await stage.dequeue()
    assert claimed.mail.cancel is not None
    assert (claimed.mail.cancel.by, claimed.mail.cancel.reason) == (ADA, "one")
    assert claimed.mail.wake == 1
    assert await stage.apply(suspend(owned)) == Refused("wake")


@CHECKS.add
async def request_of_nobody_and_of_the_ended_is_told(stage: Stage) -> None:
    """The status before is the result, and nothing is stored."""
    owned = await stage.own()
    await stage.apply(complete(owned))
    eid = owned.record.eid
    assert await stage.apply(RequestCancel(eid, ADA, None, NOW)) == Done(("completed",))
    assert await stage.apply(RequestCancel(new_eid(), ADA, None, NOW)) == Done((None,))
    assert await stage.apply(Resume(new_eid(), ADA, NOW)) == Done((None,))
    assert await stage.apply(Resume(eid, ADA, NOW)) == Done(("completed",))
    assert (await stage.row(eid)).stopped_by is None
    assert await stage.ready() == 0


@CHECKS.add
async def resume_wakes(stage: Stage) -> None:
    """A suspended execution gets its RESUME, with who asked for it as the reason."""
    eid = await stage.suspended()
    assert await stage.apply(Resume(eid, ADA, NOW)) == Done(("suspended",))
    (claimed,) = await stage.dequeue()
    fence = entries(claimed.journal)[-1]
    assert getattr(fence, "reason", None) == "resume by human:ada@example.com"


# -- versions ----------------------------------------------------------------------------------


@CHECKS.add
async def migration_without_an_owner_is_at_once(stage: Stage) -> None:
    """It fences, appends its entry, and the execution goes on with the new version."""
    suspended, pending = await stage.suspended(), await stage.create()
    committed = await stage.batch(
        (Migrate(suspended, "2", ADA, NOW),), (Migrate(pending, "2", ADA, NOW),)
    )
    assert committed.outcomes == (Done(("1",)), Done(("1",)))
    assert [(await stage.row(eid)).version for eid in (suspended, pending)] == ["2", "2"]
    assert str((await stage.row(suspended)).status) == "suspended"
    assert await stage.dequeue() == [], "version 1 is not asked for any more"
    claimed = {one.record.eid: one for one in await stage.dequeue(known=VERSIONS)}
    assert claimed[suspended].epoch == 3
    kinds = [entry_type(e) for e in entries(claimed[suspended].journal)]
    assert kinds[-2:] == ["execution.migrated", "execution.resumed"]
    kinds = [entry_type(e) for e in entries(claimed[pending].journal)]
    assert kinds == ["execution.migrated", "execution.started"]
    assert {one.record.version for one in claimed.values()} == {"2"}


@CHECKS.add
async def migration_of_what_is_owned_waits(stage: Stage) -> None:
    """The owner is not disturbed; the next one acquires the new version, with its entry."""
    owned = await stage.own()
    eid = owned.record.eid
    committed = await stage.batch((Migrate(eid, "2", ADA, NOW),))
    assert (committed.outcomes, committed.woken) == ((Done(("1",)),), (eid,))
    assert (await stage.row(eid)).version == "1"
    assert isinstance(await stage.apply(append(owned, 2)), Done)
    released = await stage.batch((release(owned, stage.worker),))
    assert released.enqueued
    assert await stage.dequeue() == []
    (claimed,) = await stage.dequeue(known=VERSIONS)
    assert claimed.record.version == "2"
    kinds = [entry_type(e) for e in entries(claimed.journal)]
    assert kinds[-2:] == ["execution.migrated", "execution.resumed"]
    assert (await stage.row(eid)).version == "2"
    assert isinstance(await stage.apply(append(claimed, 5)), Done)


@CHECKS.add
async def migration_while_it_suspends_resumes_it(stage: Stage) -> None:
    """An owner that has taken notice suspends, and the new version takes over at once."""
    owned = await stage.own()
    eid = owned.record.eid
    await stage.apply(Migrate(eid, "2", ADA, NOW))
    committed = await stage.batch((suspend(owned, wake=1),))
    assert committed.enqueued
    assert len(await stage.dequeue(known=VERSIONS)) == 1


@CHECKS.add
async def migration_is_refused(stage: Stage) -> None:
    """To the same version, of what has ended, and of nobody."""
    owned = await stage.own()
    eid = owned.record.eid
    assert await stage.apply(Migrate(eid, "1", ADA, NOW)) == Refused("same_version", "1")
    await stage.apply(complete(owned))
    assert await stage.apply(Migrate(eid, "2", ADA, NOW)) == Refused("already_closed", "completed")
    unknown = Migrate(new_eid(), "2", ADA, NOW)
    assert await stage.apply(unknown) == Refused("unknown_execution")


# -- what a worker has kept --------------------------------------------------------------------


@CHECKS.add
async def journal_of_a_kept_execution_is_not_read_again(stage: Stage) -> None:
    """Only its fence comes, as long as nobody has acquired it since."""
    owned = await stage.own()
    eid = owned.record.eid
    await stage.apply(suspend(owned), append(owned, 2))
    await stage.apply(Resume(eid, ADA, NOW))
    (claimed,) = await stage.dequeue(kept={eid: 1})
    assert (claimed.kept, [row.seq for row in claimed.journal]) == (True, [3])
    await stage.apply(suspend(claimed), append(claimed, 4))
    await stage.apply(Resume(eid, ADA, NOW))
    (again,) = await stage.dequeue(kept={eid: 1})
    assert (again.kept, [row.seq for row in again.journal]) == (False, [1, 2, 3, 4, 5])


@CHECKS.add
async def migrated_execution_is_not_kept(stage: Stage) -> None:
    """Its code is another one now."""
    owned = await stage.own()
    eid = owned.record.eid
    await stage.apply(Migrate(eid, "2", ADA, NOW))
    await stage.apply(suspend(owned, wake=1))
    (claimed,) = await stage.dequeue(known=VERSIONS, kept={eid: 1})
    assert not claimed.kept
    assert len(claimed.journal) == 2


# -- timeouts ----------------------------------------------------------------------------------


@CHECKS.add
async def timeout_terminates(stage: Stage) -> None:
    """An execution that takes too long is terminated when timers are fired, whoever owns it."""
    owned = await stage.own(timeout=60.0)
    eid = owned.record.eid
    due = NOW + 60 * SECOND
    assert await stage.store.next_due() == due
    assert await stage.apply(FireTimers(due - 1, 10)) == Done((0,))
    committed = await stage.batch((FireTimers(due, 10),))
    assert (committed.outcomes, committed.closed) == ((Done((1,)),), (eid,))
    row = await stage.row(eid)
    assert (row.status, row.stop_reason) == ("terminated", "timeout")
    assert await stage.apply(append(owned, 2)) == Refused("journal_conflict")
    assert await stage.store.next_due() is None
    assert await stage.apply(FireTimers(due, 10)) == Done((0,))
