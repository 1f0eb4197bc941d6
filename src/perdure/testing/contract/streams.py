"""Is what is published on a stream there in order, and in nobody's way?"""
# ruff: noqa: S101 - a contract is made of assertions

from __future__ import annotations

from perdure.ports.commands import Command, Done, ExpireSession, Publish, Refused, Terminate
from perdure.ports.store import Claimed, Committed
from perdure.testing.contract.stage import (
    ADA,
    NOW,
    Checks,
    Stage,
    append,
    complete,
    new_eid,
    release,
    send,
    suspend,
)
from perdure.testing.contract.trees import succeed

CHECKS = Checks()

LEASE_LOST = Refused("lease_lost")


def publish(
    claimed: Claimed, payload: bytes = b"1", *, stream: str = "s", at: int = NOW
) -> Publish:
    """Publish under the epoch of an owner."""
    return Publish(claimed.record.eid, claimed.epoch, stream, payload, ADA, at)


@CHECKS.add
async def items_are_numbered_on_each_stream(stage: Stage) -> None:
    """The result of a publish is the item's number, from 1, on each stream of each execution."""
    one, other = await stage.own(), await stage.own()
    assert await stage.apply(publish(one), publish(one), publish(one, stream="t")) == Done(
        (1, 2, 1)
    )
    assert await stage.apply(publish(other), publish(one)) == Done((1, 3))


@CHECKS.add
async def items_are_read_in_order(stage: Stage) -> None:
    """A read gives what stands behind a number, at most so many, with who published it and when."""
    owned = await stage.own()
    eid, read = owned.record.eid, stage.store.stream
    assert await read(eid, "s", 0, 10) == []
    for number in range(12):
        await stage.apply(publish(owned, b"%d" % number, at=NOW + number))
    await stage.apply(publish(owned, b'"elsewhere"', stream="s.t"))
    items = await read(eid, "s", 0, 100)
    assert [(item.seq, bytes(item.payload)) for item in items] == [
        (number + 1, b"%d" % number) for number in range(12)
    ]
    assert {item.sent_by for item in items} == {ADA}
    assert [item.sent_at for item in items] == list(range(NOW, NOW + 12))
    assert [item.seq for item in await read(eid, "s", 9, 2)] == [10, 11]
    assert await read(eid, "s", 12, 2) == []
    assert await read(new_eid(), "s", 0, 2) == []


@CHECKS.add
async def items_are_nobodys_mail(stage: Stage) -> None:
    """An item is not unread, wakes nobody and is no message of a channel with the stream's name."""
    owned = await stage.own()
    eid = owned.record.eid
    before = await stage.mail(eid)
    committed = await stage.batch((publish(owned), publish(owned, stream="x"), publish(owned)))
    assert committed == Committed((Done((1, 1, 2)),))
    assert await stage.mail(eid) == before
    assert await stage.apply(suspend(owned)) == Done((None,)), "its wake counter has not moved"
    await stage.apply(send(eid, b"2"))
    assert [(m.channel, m.seq) for m in (await stage.mail(eid)).messages] == [("x", 1)]
    assert len(await stage.store.stream(eid, "x", 0, 10)) == 1
    (again,) = await stage.dequeue()
    assert [(m.channel, m.seq) for m in again.mail.messages] == [("x", 1)]


@CHECKS.add
async def publishing_needs_the_lease(stage: Stage) -> None:
    """Whoever does not own the execution under that epoch writes nothing, nor its other entries."""
    owned = await stage.own()
    eid = owned.record.eid
    strangers: list[Command] = [
        Publish(eid, owned.epoch + 1, "s", b"1", ADA, NOW),
        Publish(new_eid(), 1, "s", b"1", ADA, NOW),
    ]
    for stranger in strangers:
        assert await stage.apply(stranger) == LEASE_LOST
    await stage.apply(release(owned, stage.worker))
    assert await stage.apply(publish(owned)) == LEASE_LOST
    (again,) = await stage.dequeue()
    refused = await stage.batch((append(owned, 3), publish(owned)), (publish(again, b"2"),))
    assert refused.outcomes == (Refused("lease_lost", at=1), Done((1,)))
    await stage.apply(suspend(again))
    assert await stage.apply(publish(again)) == LEASE_LOST
    assert [bytes(item.payload) for item in await stage.store.stream(eid, "s", 0, 9)] == [b"2"]
    assert len(await stage.store.journal(eid)) == len(again.journal)


@CHECKS.add
async def nothing_is_published_by_those_who_were_closed_or_expired(stage: Stage) -> None:
    """An operator who terminates, and a sweeper who expires the session, take the lease away."""
    closed, lost = await stage.own(), await stage.own()
    await stage.apply(Terminate(closed.record.eid, ADA, None, NOW))
    (beat,) = await stage.store.sessions()
    await stage.apply(ExpireSession(beat.session, beat.beat, NOW))
    for claimed in (closed, lost):
        assert await stage.apply(publish(claimed)) == LEASE_LOST
        assert await stage.store.stream(claimed.record.eid, "s", 0, 9) == []


@CHECKS.add
async def last_items_go_with_what_gives_the_execution_up(stage: Stage) -> None:
    """In the transition that suspends, releases or ends it, the execution still counts as owned."""
    suspended, released, ended = [await stage.own() for _ in range(3)]
    for claimed, guard in (
        (suspended, suspend(suspended)),
        (released, release(released, stage.worker)),
        (ended, complete(ended)),
    ):
        last = (guard, append(claimed, 2), publish(claimed))
        outcome, late = (await stage.batch(last, (publish(claimed),))).outcomes
        assert isinstance(outcome, Done), outcome
        assert outcome.results[2] == 1
        assert late == LEASE_LOST, "that was the last moment"
    refused = await stage.apply(suspend(ended), publish(ended))
    assert refused == LEASE_LOST


@CHECKS.add
async def items_stay_with_the_execution_that_published_them(stage: Stage) -> None:
    """The successor begins with empty streams; those of what has ended can still be read."""
    owned = await stage.own()
    eid = owned.record.eid
    await stage.apply(publish(owned, b"1"), send(eid))
    ending, successor = succeed(owned)
    await stage.apply(ending, publish(owned, b"2"))
    assert [(m.channel, m.seq) for m in (await stage.mail(successor.eid)).messages] == [("x", 1)]
    assert await stage.store.stream(successor.eid, "s", 0, 9) == []
    items = await stage.store.stream(eid, "s", 0, 9)
    assert [(item.seq, bytes(item.payload)) for item in items] == [(1, b"1"), (2, b"2")]
    (claimed,) = await stage.dequeue()
    assert await stage.apply(publish(claimed)) == Done((1,))
