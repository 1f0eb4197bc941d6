"""Does a store keep the rules of children, successors and forks?"""
# ruff: noqa: S101 - a contract is made of assertions and of the values it expects

from __future__ import annotations

from uuid import UUID

import msgspec
from msgspec.structs import replace

from perdure.model.entry import ExecutionForked, entry_type, pack
from perdure.model.execution import Execution, ExecutionRow, FrameRef
from perdure.ports.commands import (
    ChildOutcome,
    CreateExecution,
    Done,
    EndExecution,
    Refused,
    RequestCancel,
    Terminate,
)
from perdure.ports.store import Claimed, ExecutionQuery, JournalRow
from perdure.testing.contract.stage import (
    ADA,
    NOW,
    SECOND,
    Checks,
    Stage,
    append,
    complete,
    consume,
    entries,
    fail,
    record,
    send,
    suspend,
)

CHECKS = Checks()

FRAME = "root/kid#0"


def child_of(parent: UUID, *, fid: str = FRAME, lives_on: bool = False) -> Execution:
    """Make the record of a child."""
    made = replace(record(queue="kids"), parent=FrameRef(parent, fid))
    return replace(made, on_parent_cancel="abandon") if lives_on else made


async def start_child(
    stage: Stage, parent: UUID, *, fid: str = FRAME, lives_on: bool = False
) -> UUID:
    """Start a child, and give its id."""
    made = child_of(parent, fid=fid, lives_on=lives_on)
    await stage.apply(CreateExecution(made, NOW))
    return made.eid


def succeed(claimed: Claimed, *returned: tuple[str, int]) -> tuple[EndExecution, Execution]:
    """End what is owned with a successor."""
    successor = replace(claimed.record, eid=record().eid)
    return replace(complete(claimed), successor=successor, returned=returned), successor


async def statuses(stage: Stage, *eids: UUID) -> list[str]:
    """Give the statuses of executions."""
    return [str((await stage.row(eid)).status) for eid in eids]


@CHECKS.add
async def child_names_its_parent(stage: Stage) -> None:
    """Record, row and list say which frame started a child."""
    parent = await stage.create()
    kid = await start_child(stage, parent)
    made = await stage.store.record(kid)
    assert made is not None
    assert (made.parent, made.on_parent_cancel) == ((parent, FRAME), "cancel")
    assert (await stage.row(kid)).parent == (parent, FRAME)
    page = await stage.store.executions(ExecutionQuery(parent=parent))
    assert [row.eid for row in page.items] == [kid]
    (claimed,) = await stage.dequeue(["kids"])
    assert claimed.record == made


@CHECKS.add
async def end_of_a_child_is_sent_to_its_parent(stage: Stage) -> None:
    """The parent gets the outcome on the channel named by the frame, and is woken with it."""
    parent = await stage.suspended()
    for index, end in enumerate(("completed", "failed")):
        await start_child(stage, parent, fid=f"root/kid#{index}")
        (kid,) = await stage.dequeue(["kids"])
        ending = complete(kid) if end == "completed" else fail(kid, "E", "why")
        assert (await stage.batch((ending,))).enqueued
    completed, failed = (await stage.mail(parent)).messages
    assert (completed.channel, failed.channel) == ("root/kid#0", "root/kid#1")
    outcomes = [msgspec.json.decode(m.payload, type=ChildOutcome) for m in (completed, failed)]
    assert [outcome.status for outcome in outcomes] == ["completed", "failed"]
    assert bytes(outcomes[0].value) == b"42"
    assert (outcomes[1].error_type, outcomes[1].message) == ("E", "why")
    (again,) = await stage.dequeue()
    assert (again.record.eid, again.mail.wake) == (parent, 2)


@CHECKS.add
async def end_of_a_child_wakes_a_parent_that_is_owned(stage: Stage) -> None:
    """An owned parent is told by its wake counter, not by a task."""
    parent = await stage.own()
    await start_child(stage, parent.record.eid)
    (kid,) = await stage.dequeue(["kids"])
    committed = await stage.batch((complete(kid),))
    assert committed.woken == (parent.record.eid,)
    assert await stage.ready() == 0
    assert await stage.apply(suspend(parent)) == Refused("wake")


@CHECKS.add
async def end_of_a_child_whose_parent_is_closed_is_told_to_nobody(stage: Stage) -> None:
    """A parent that has ended gets no message and no task."""
    parent = await stage.own()
    kid = await start_child(stage, parent.record.eid, lives_on=True)
    await stage.apply(complete(parent))
    (claimed,) = await stage.dequeue(["kids"])
    assert claimed.record.eid == kid
    await stage.apply(complete(claimed))
    assert (await stage.mail(parent.record.eid)).messages == ()
    assert await stage.ready() == 0


@CHECKS.add
async def end_asks_the_open_children_to_cancel(stage: Stage) -> None:
    """Whatever its end, its open children are asked to cancel, unless they are to live on."""
    parent = await stage.own()
    eid = parent.record.eid
    owned = await start_child(stage, eid, fid="root/kid#0")
    await stage.dequeue(["kids"])
    pending = await start_child(stage, eid, fid="root/kid#1")
    free = await start_child(stage, eid, fid="root/kid#2", lives_on=True)
    committed = await stage.batch((complete(parent),))
    assert committed.woken == (owned,)
    assert set(committed.closed) == {eid, pending}
    cancel = (await stage.mail(owned)).cancel
    assert cancel is not None
    assert cancel.reason == "its parent is completed"
    assert await statuses(stage, owned, pending, free) == ["running", "cancelled", "pending"]


@CHECKS.add
async def terminate_closes_a_tree(stage: Stage) -> None:
    """It closes the execution and its open descendants, and those that are to live on stay."""
    top = await stage.suspended()
    middle = await start_child(stage, top)
    (owned,) = await stage.dequeue(["kids"])
    bottom = await start_child(stage, middle)
    free = await start_child(stage, top, fid="root/free#0", lives_on=True)
    committed = await stage.batch((Terminate(top, ADA, "why", NOW + SECOND),))
    assert committed.outcomes == (Done(("suspended",)),)
    assert committed.closed == (top, middle, bottom)
    for eid, epoch in ((top, 2), (middle, 2), (bottom, 1)):
        row = await stage.row(eid)
        assert (row.status, row.epoch, row.worker_id) == ("terminated", epoch, None)
        assert (row.stopped_by, row.stop_reason) == (ADA, "why")
        assert _last(await stage.store.journal(eid)) == ("execution.terminated", epoch)
    assert await statuses(stage, free) == ["pending"]
    assert await stage.apply(append(owned, 2)) == Refused("journal_conflict")
    assert await stage.apply(complete(owned)) == Refused("lease_lost")
    assert (await stage.told())[-3:] == ["execution.terminated"] * 3
    assert await stage.ready() == 1, "only the START of the one that lives on is left"
    assert await stage.apply(Terminate(top, ADA, None, NOW)) == Done(("terminated",))


def _last(rows: list[JournalRow]) -> tuple[str, int]:
    """Give the type and the epoch of the last entry of a journal."""
    return entry_type(entries(rows)[-1]), rows[-1].epoch


@CHECKS.add
async def terminate_of_a_child_tells_its_parent(stage: Stage) -> None:
    """The parent of what is terminated gets the outcome."""
    parent = await stage.suspended()
    kid = await start_child(stage, parent)
    await stage.apply(Terminate(kid, ADA, "why", NOW))
    (message,) = (await stage.mail(parent)).messages
    outcome = msgspec.json.decode(message.payload, type=ChildOutcome)
    assert (outcome.status, outcome.error_type) == ("terminated", "ExecutionTerminated")
    assert outcome.message == "by human:ada@example.com: why"


@CHECKS.add
async def successor_takes_the_place(stage: Stage) -> None:
    """It has the key, the parent and the unread messages; the old one is closed."""
    parent = await stage.suspended()
    made = replace(child_of(parent), dispatch_key="the loop", queue="default")
    await stage.apply(CreateExecution(made, NOW))
    (owned,) = await stage.dequeue()
    eid = owned.record.eid
    for payload in (b"1", b"2", b"3"):
        await stage.apply(send(eid, payload))
    await stage.apply(send(eid, b"9", channel="y"))
    await stage.apply(append(owned, 2), consume(eid, 2))
    ending, successor = succeed(owned, ("x", 1))
    committed = await stage.batch((ending, append(owned, 3)))
    assert committed.closed == (eid,)
    row = await stage.row(eid)
    assert (row.status, row.continued_as) == ("completed", successor.eid)
    mail = await stage.mail(successor.eid)
    unread = [(m.channel, m.seq, bytes(m.payload)) for m in mail.messages]
    assert unread == [("x", 1, b"1"), ("x", 2, b"3"), ("y", 1, b"9")]
    assert (await stage.mail(parent)).messages == (), "the parent still waits"
    again = CreateExecution(record(key="the loop"), NOW)
    assert await stage.apply(again) == Done(((successor.eid, True),))
    (claimed,) = await stage.dequeue()
    assert claimed.record == successor
    await stage.apply(complete(claimed))
    assert len((await stage.mail(parent)).messages) == 1


@CHECKS.add
async def operations_follow_the_successors(stage: Stage) -> None:
    """A message and a request for an execution that goes on as another one reach that one."""
    first = await stage.own()
    ending, second = succeed(first)
    await stage.apply(ending)
    (claimed,) = await stage.dequeue()
    ending, third = succeed(claimed)
    await stage.apply(ending)
    eid = first.record.eid
    assert await stage.apply(send(eid, b"5")) == Done((1,))
    assert [m.seq for m in (await stage.mail(third.eid)).messages] == [1]
    assert await stage.apply(RequestCancel(eid, ADA, None, NOW)) == Done(("pending",))
    assert await statuses(stage, eid, second.eid, third.eid) == [
        "completed",
        "completed",
        "cancelled",
    ]
    assert await stage.apply(send(eid)) == Refused("already_closed", "cancelled")


@CHECKS.add
async def cancel_request_moves_to_the_successor(stage: Stage) -> None:
    """A request that its owner has not seen is not lost."""
    owned = await stage.own()
    await stage.apply(RequestCancel(owned.record.eid, ADA, "why", NOW))
    ending, _ = succeed(owned)
    await stage.apply(ending)
    (claimed,) = await stage.dequeue()
    assert claimed.mail.cancel is not None
    assert (claimed.mail.cancel.by, claimed.mail.cancel.reason) == (ADA, "why")


@CHECKS.add
async def fork_begins_with_a_journal(stage: Stage) -> None:
    """A created execution may have a journal; its first owner goes on behind it."""
    made = record()
    beginning = pack([ExecutionForked(NOW, "origin", "root/f#0", {}), *entries_of_body()])
    committed = await stage.batch((CreateExecution(made, NOW, beginning, 2), consume(made.eid, 3)))
    assert committed.outcomes == (Done(((made.eid, False), None)),)
    assert await statuses(stage, made.eid) == ["pending"]
    (claimed,) = await stage.dequeue()
    assert [row.seq for row in claimed.journal] == [1, 3]
    assert claimed.journal[0].body == beginning
    assert [entry_type(e) for e in entries(claimed.journal)][-1] == "execution.started"
    assert await stage.apply(send(made.eid)) == Done((4,)), "numbers go on behind what was consumed"
    assert [m.seq for m in (await stage.mail(made.eid)).messages] == [4]


def entries_of_body() -> list[ExecutionForked]:
    """Give one more entry for the beginning of a fork."""
    return [ExecutionForked(NOW, "another", "root", {"root/g#0": 1})]


@CHECKS.add
async def executions_are_listed_by_their_creation(stage: Stage) -> None:
    """The ids of children do not sort by time; a list does, page by page."""
    parent = await stage.create()
    kids: list[UUID] = []
    for number in range(5):
        made = replace(child_of(parent, fid=f"root/kid#{number}"), created_at=NOW + 9 - number)
        made = replace(made, eid=UUID(int=(number * 7 + 3) % 5 + 1))
        await stage.apply(CreateExecution(made, NOW))
        kids.append(made.eid)
    listed: list[ExecutionRow] = []
    cursor: str | None = None
    while True:
        query = ExecutionQuery(parent=parent, limit=2, cursor=cursor)
        page = await stage.store.executions(query)
        listed += page.items
        cursor = page.cursor
        if cursor is None:
            break
    assert [row.eid for row in listed] == kids
