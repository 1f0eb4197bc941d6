"""Is a batch all that it should be? Creations, appends, whole transitions, answers that repeat."""
# ruff: noqa: S101, PLR2004 - a contract is made of assertions and of the values it expects

from __future__ import annotations

from perdure.errors import InvalidArgument
from perdure.model.instants import from_us
from perdure.model.provenance import Actor
from perdure.ports.commands import (
    CreateExecution,
    Done,
    ExpireSession,
    FireTimers,
    Refused,
    Transition,
)
from perdure.ports.store import Committed, JournalRow, SessionGone
from perdure.testing.contract.stage import (
    BODY,
    ENGINE_SITE,
    NOW,
    SECOND,
    WORKER_SITE,
    Checks,
    Stage,
    append,
    complete,
    consume,
    new_eid,
    raised,
    record,
    send,
    suspend,
)

CHECKS = Checks()


@CHECKS.add
async def create_enqueues_a_start(stage: Stage) -> None:
    """A created execution is pending, and its START is ready."""
    made = record(key="k", tags={"a": "b"}, baggage={"c": "d"}, priority=3)
    committed = await stage.batch((CreateExecution(made, NOW),))
    assert committed == Committed((Done(((made.eid, False),)),), enqueued=True)
    assert await stage.store.record(made.eid) == made
    assert (await stage.row(made.eid)).status == "pending"
    assert await stage.told() == ["execution.created"]
    (claimed,) = await stage.dequeue()
    assert claimed.kind == "start"
    assert claimed.record == made


@CHECKS.add
async def create_under_a_taken_key_gives_the_first(stage: Stage) -> None:
    """A second creation under a dispatch key writes nothing, in the same batch or later."""
    first, second, third = (record(key="k") for _ in range(3))
    committed = await stage.batch((CreateExecution(first, NOW),), (CreateExecution(second, NOW),))
    assert committed.outcomes == (Done(((first.eid, False),)), Done(((first.eid, True),)))
    committed = await stage.batch((CreateExecution(third, NOW),))
    assert committed == Committed((Done(((first.eid, True),)),))
    assert await stage.store.record(second.eid) is None
    assert await stage.store.record(third.eid) is None
    assert await stage.ready() == 1
    assert await stage.told() == ["execution.created"]


@CHECKS.add
async def create_under_the_key_of_an_ended_execution_gives_it(stage: Stage) -> None:
    """A dispatch key belongs to its execution for good."""
    claimed = await stage.own(key="k")
    await stage.apply(complete(claimed))
    again = await stage.apply(CreateExecution(record(key="k"), NOW))
    assert again == Done(((claimed.record.eid, True),))


@CHECKS.add
async def create_under_the_key_of_another_workflow_is_refused(stage: Stage) -> None:
    """A dispatch key of another workflow is refused as `key_taken`, naming the execution."""
    first = await stage.create(key="k")
    other = record(workflow="other", key="k")
    committed = await stage.batch((CreateExecution(other, NOW),))
    assert committed == Committed((Refused("key_taken", str(first)),))
    assert await stage.store.record(other.eid) is None


@CHECKS.add
async def create_of_an_id_that_exists_writes_nothing(stage: Stage) -> None:
    """A second creation of an id leaves the first, and takes no dispatch key."""
    first = record(args=b"[[1],{}]")
    await stage.apply(CreateExecution(first, NOW))
    again = record(eid=first.eid, args=b"[[2],{}]", key="k")
    committed = await stage.batch((CreateExecution(again, NOW),))
    assert committed == Committed((Done(((first.eid, True),)),))
    assert await stage.store.record(first.eid) == first
    third = record(key="k")
    assert await stage.apply(CreateExecution(third, NOW)) == Done(((third.eid, False),))


@CHECKS.add
async def create_for_later_is_delayed(stage: Stage) -> None:
    """A START with a `not_before` in the future is nobody's until it is promoted."""
    due = NOW + 60 * SECOND
    made = record(not_before=from_us(due))
    assert not (await stage.batch((CreateExecution(made, NOW),))).enqueued
    assert await stage.dequeue(now=due) == []
    assert await stage.store.next_due() == due
    assert await stage.apply(FireTimers(due - 1, 10)) == Done((0,))
    assert await stage.batch((FireTimers(due, 10),)) == Committed((Done((1,)),), enqueued=True)
    assert await stage.store.next_due() is None
    assert [one.record for one in await stage.dequeue(now=due)] == [made]


@CHECKS.add
async def create_for_an_instant_that_is_over_is_ready(stage: Stage) -> None:
    """A START with a `not_before` that is not after now is ready."""
    committed = await stage.batch((CreateExecution(record(not_before=from_us(NOW)), NOW),))
    assert committed.enqueued
    assert len(await stage.dequeue()) == 1


@CHECKS.add
async def appended_rows_are_read_as_they_were_written(stage: Stage) -> None:
    """A row keeps its number, epoch, site and bytes; rows stand in the order of numbers."""
    owned = await stage.own()
    bodies = [BODY, b"\x00\xff" * 100_000, "größer 🜂".encode()]
    assert await stage.apply(append(owned, 2, count=2, body=bodies[0])) == Done((None,))
    await stage.apply(append(owned, 4, body=bodies[1]), append(owned, 5, body=bodies[2]))
    rows = await stage.store.journal(owned.record.eid)
    site = stage.worker.site
    assert rows[0] == owned.journal[0]
    assert rows[1:] == [
        JournalRow(seq, 1, site, body) for seq, body in zip((2, 4, 5), bodies, strict=True)
    ]


@CHECKS.add
async def appends_of_a_batch_may_be_many(stage: Stage) -> None:
    """A batch may hold hundreds of transitions; each lands in its own journal."""
    eids = [await stage.create() for _ in range(3)]
    owned = await stage.dequeue()
    committed = await stage.batch(
        *((append(one, seq),) for seq in range(2, 102) for one in owned),
    )
    assert committed == Committed((Done((None,)),) * 300)
    for eid in eids:
        assert [row.seq for row in await stage.store.journal(eid)] == list(range(1, 102))


@CHECKS.add
async def conflict_undoes_the_whole_transition_and_no_other(stage: Stage) -> None:
    """A number that is taken refuses the whole transition as `journal_conflict`, and only that."""
    await stage.create()
    await stage.create()
    ours, other = await stage.dequeue()
    eid = ours.record.eid
    await stage.apply(append(ours, 2))
    await stage.apply(send(eid, channel="read"))
    committed = await stage.batch(
        (append(other, 2),),
        (complete(ours), append(ours, 2)),
        (consume(eid, 1, channel="read"), append(ours, 2)),
        (send(eid), append(ours, 2)),
        (CreateExecution(record(), NOW), append(ours, 2)),
        (complete(other), append(other, 3)),
    )
    refused = Refused("journal_conflict")
    done = Done((None, None))
    expected = (Done((None,)), refused, refused, refused, refused, done)
    assert committed == Committed(expected, closed=(other.record.eid,))
    assert (await stage.row(eid)).status == "running"
    assert [row.seq for row in await stage.store.journal(eid)] == [1, 2]
    assert [row.seq for row in await stage.store.journal(other.record.eid)] == [1, 2, 3]
    mail = await stage.mail(eid)
    assert mail.wake == 1
    assert [message.channel for message in mail.messages] == ["read"]
    assert await stage.ready() == 0
    assert (await stage.told()).count("execution.created") == 2
    assert (await stage.told()).count("execution.completed") == 1


@CHECKS.add
async def conflict_within_a_batch_refuses_the_later_one(stage: Stage) -> None:
    """Of two appends of one number in a batch the first wins."""
    owned = await stage.own()
    committed = await stage.batch(
        (append(owned, 2, body=b"first"),), (append(owned, 2, body=b"second"),)
    )
    assert committed.outcomes == (Done((None,)), Refused("journal_conflict"))
    assert (await stage.store.journal(owned.record.eid))[-1].body == b"first"


@CHECKS.add
async def refusal_undoes_what_stood_before_it(stage: Stage) -> None:
    """A transition is applied as a whole or not at all, wherever it is refused."""
    owned = await stage.own()
    waiting = await stage.suspended()
    made = record()
    committed = await stage.batch(
        (append(owned, 2), complete(owned, epoch=7)),
        (CreateExecution(made, NOW), send(new_eid())),
        (send(waiting), complete(owned, epoch=7)),
        (append(owned, 2, body=b"kept"),),
    )
    assert committed == Committed(
        (
            Refused("lease_lost", at=1),
            Refused("unknown_execution", at=1),
            Refused("lease_lost", at=1),
            Done((None,)),
        )
    )
    assert await stage.store.record(made.eid) is None
    assert (await stage.mail(waiting)).messages == ()
    assert [row.body for row in await stage.store.journal(owned.record.eid)][1:] == [b"kept"]
    assert await stage.ready() == 0


@CHECKS.add
async def who_acted_survives_a_refusal(stage: Stage) -> None:
    """What a refused transition was the first to name is named rightly by a later one."""
    waiting = await stage.suspended()
    ended = await stage.own()
    await stage.apply(complete(ended))
    letter = send(waiting, by=Actor.human("bob@example.com"))
    await stage.batch((letter, send(ended.record.eid)), (letter,))
    await stage.apply(letter, send(ended.record.eid))
    await stage.apply(letter)
    (claimed,) = await stage.dequeue()
    assert [message.sent_by.id for message in claimed.mail.messages] == ["bob@example.com"] * 2


@CHECKS.add
async def repeated_batch_gives_the_stored_answer(stage: Stage) -> None:
    """The last number again, with the same batch or another one, applies nothing more."""
    waiting = await stage.suspended()
    await stage.create()
    (owned,) = await stage.dequeue()
    made = record(key="k")
    batch = [
        Transition(commands)
        for commands in (
            (CreateExecution(made, NOW),),
            (send(waiting), send(owned.record.eid)),
            (append(owned, 2),),
            (append(owned, 2),),
            (suspend(owned, wake=0),),
            (complete(owned), append(owned, 3)),
            (CreateExecution(record(key="k", workflow="other"), NOW),),
        )
    ]
    other = await stage.store.open_session(ENGINE_SITE, None, NOW)
    first = await stage.store.commit(other.session, 1, batch)
    assert first == Committed(
        (
            Done(((made.eid, False),)),
            Done((1, 1)),
            Done((None,)),
            Refused("journal_conflict"),
            Refused("wake"),
            Done((None, None)),
            Refused("key_taken", str(made.eid)),
        ),
        enqueued=True,
        woken=(owned.record.eid,),
        closed=(owned.record.eid,),
    )
    told = await stage.told()
    assert await stage.store.commit(other.session, 1, batch) == first
    assert await stage.store.commit(other.session, 1, []) == first
    assert await stage.told() == told
    assert len((await stage.mail(waiting)).messages) == 1


@CHECKS.add
async def empty_batch_uses_its_number_up(stage: Stage) -> None:
    """After an empty batch its number applies nothing: so a lost batch is given up for good."""
    session = stage.engine.session
    assert await stage.store.commit(session, 1, []) == Committed(())
    made = record()
    creation = [Transition((CreateExecution(made, NOW),))]
    assert await stage.store.commit(session, 1, creation) == Committed(())
    assert await stage.store.record(made.eid) is None
    assert (await stage.store.commit(session, 2, creation)).enqueued


@CHECKS.add
async def numbers_of_batches_belong_to_their_session(stage: Stage) -> None:
    """The same number under another session is another batch."""
    for session in (stage.engine, stage.worker, await stage.store.open_session(WORKER_SITE, 9, 1)):
        creation = [Transition((CreateExecution(record(), NOW),))]
        assert (await stage.store.commit(session.session, 1, creation)).enqueued
    assert await stage.ready() == 3


@CHECKS.add
async def commit_needs_a_live_session(stage: Stage) -> None:
    """A commit under a session that has expired, was closed or never was applies nothing."""
    expired = await stage.store.open_session(WORKER_SITE, 9.0, NOW)
    await stage.apply(ExpireSession(expired.session, 0, NOW))
    await stage.store.close_session(stage.engine.session)
    for session in (expired.session, stage.engine.session, 999_999):
        made = record()
        creation = [Transition((CreateExecution(made, NOW),))]
        await raised(SessionGone, stage.store.commit(session, 1, creation))
        assert await stage.store.record(made.eid) is None


@CHECKS.add
async def values_come_back_as_they_went_in(stage: Stage) -> None:
    """Values of any size and script survive."""
    args = '[["ünïcode 🜂 \\u0000", null, 1e300], {"k": "%s"}]' % ("x" * 300_000)
    made = record(args=args.encode(), key="schlüssel 🜂", tags={'a"b\\c': "d.e'f"})
    await stage.apply(CreateExecution(made, NOW))
    row = await stage.row(made.eid)
    assert row.args == [["ünïcode 🜂 \x00", None, 1e300], {"k": "x" * 300_000}]
    assert (row.dispatch_key, row.tags) == ("schlüssel 🜂", {'a"b\\c': "d.e'f"})
    assert (await stage.dequeue())[0].record == made


# -- transactions with a user's function -----------------------------------------------------


@CHECKS.add
async def a_transaction_applies_what_the_function_gives(stage: Stage) -> None:
    """The transition that the function gives is applied, under the numbers that are free."""
    owner = await stage.own()
    given: list[object] = []

    def run(connection: object) -> Transition:
        given.append(connection)
        return Transition((append(owner, 2, count=2),))

    assert await stage.store.transact(run, 5.0) == Done((None,))
    assert given != [None]
    assert [row.seq for row in await stage.store.journal(owner.record.eid)] == [1, 2]


@CHECKS.add
async def a_transaction_that_fails_applies_nothing(stage: Stage) -> None:
    """Whatever the function raises comes through; a number that is taken is refused."""
    owner = await stage.own()

    class Odd(Exception):
        pass

    def fail(_: object) -> Transition:
        raise Odd

    await raised(Odd, stage.store.transact(fail, 5.0))
    outcome = await stage.store.transact(lambda _: Transition((append(owner, 1),)), 5.0)
    assert outcome == Refused("journal_conflict")
    assert len(await stage.store.journal(owner.record.eid)) == 1


@CHECKS.add
async def a_foreign_connection_is_refused(stage: Stage) -> None:
    """An execution is created on a connection to this very database only."""
    creation = CreateExecution(record(), NOW)
    await raised(InvalidArgument, stage.store.create_in(object(), creation))
    assert await stage.ready() == 0
