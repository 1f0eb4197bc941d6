"""What becomes of the tasks that frames enqueue? Leases, epochs, and what an end does to them."""
# ruff: noqa: S101, PLR2004 - a contract is made of assertions and of the values it expects

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from perdure.model.execution import ExecutionStatus
from perdure.model.ids import session_holder, task_id
from perdure.model.queue_task import DELEGATE, RUN_STEP, EnqueuedKind, LeasedTask
from perdure.ports.commands import (
    AckTask,
    Claim,
    Command,
    DequeueDelegated,
    DequeueSteps,
    Done,
    Enqueue,
    ExpireSession,
    ExpireTask,
    FireTimers,
    HoldTask,
    NackTask,
    Publish,
    Refused,
    RenewTask,
    RequestCancel,
    Tell,
    Terminate,
    Withdraw,
)
from perdure.ports.store import Claimed, MissingWorkflow
from perdure.testing.contract.stage import (
    ADA,
    NOW,
    SECOND,
    WORKER_SITE,
    Checks,
    Stage,
    append,
    complete,
    fail,
    send,
)

CHECKS = Checks()

NOT_HOLDER: Final = "not_holder"


def enqueue(
    owner: Claimed,
    key: str = "k",
    *,
    kind: EnqueuedKind = DELEGATE,
    queue: str = "agents",
    payload: bytes = b"1",
    step: str = "",
) -> Enqueue:
    """Enqueue a task for a frame of what is owned."""
    eid, epoch = owner.record.eid, owner.epoch
    return Enqueue(eid, epoch, "root/f#0", kind, key, queue, payload, NOW, step)


async def delegated(stage: Stage, *keys: str) -> Claimed:
    """Give an execution that is owned and has delegated tasks."""
    owner = await stage.own()
    for key in keys or ("k",):
        await stage.apply(enqueue(owner, key))
    return owner


async def take(stage: Stage, *queues: str, holder: str = "a") -> LeasedTask | None:
    """Dequeue a delegated task."""
    outcome = await stage.apply(DequeueDelegated(queues or ("agents",), holder, 300.0, NOW))
    assert isinstance(outcome, Done)
    found: Any = outcome.results[0]
    return None if found is None else msgspec.json.decode(found, type=LeasedTask)


async def taken(stage: Stage, *queues: str, holder: str = "a") -> LeasedTask:
    """Dequeue a delegated task that is there."""
    found = await take(stage, *queues, holder=holder)
    assert found is not None
    return found


async def steps_of(
    stage: Stage, *steps: str, limit: int = 10, session: int | None = None
) -> list[LeasedTask]:
    """Dequeue tasks that run steps."""
    taker = stage.worker.session if session is None else session
    outcome = await stage.apply(DequeueSteps(("agents",), steps or ("s",), taker, limit, NOW))
    assert isinstance(outcome, Done)
    found: Any = outcome.results[0]
    return msgspec.json.decode(found, type=list[LeasedTask])


def calls_of(task: LeasedTask, holder: str = "a") -> list[Command]:
    """Give every command that only the holder of a task may apply."""
    lease = (task.task, holder, task.epoch)
    return [
        HoldTask(*lease),
        RenewTask(*lease, b'"stolen"', NOW),
        NackTask(*lease, None, NOW),
        AckTask(*lease),
    ]


async def keys_on(stage: Stage, queue: str = "agents") -> list[str]:
    """List the keys of the tasks of a queue."""
    return [task.key for task in await stage.store.queue_tasks(queue, 100)]


# -- enqueue and dequeue ---------------------------------------------------------------------


@CHECKS.add
async def a_task_is_enqueued_once(stage: Stage) -> None:
    """An id that is on the queue is not added again; on another queue it is a task of its own."""
    owner = await stage.own()
    eid = owner.record.eid
    for payload, queue in ((b"1", "agents"), (b"2", "agents"), (b"3", "people")):
        outcome = await stage.apply(enqueue(owner, payload=payload, queue=queue))
        assert outcome == Done((task_id(DELEGATE, eid, "k"),))
    (task,) = await stage.store.queue_tasks("agents", 10)
    assert (task.task_id, task.payload, task.fid) == (f"delegate:{eid}:k", 1, "root/f#0")
    assert (task.state, task.holder, task.kind) == ("ready", None, "delegate")
    assert [t.payload for t in await stage.store.queue_tasks("people", 10)] == [3]
    told = [e for e in await stage.store.control() if e.type == "task.enqueued"]
    assert [msgspec.json.decode(entry.body) for entry in told] == [
        {"task_id": task.task_id, "queue": queue, "kind": "delegate", "fid": "root/f#0"}
        for queue in ("agents", "people")
    ]


@CHECKS.add
async def tasks_are_taken_by_queue_priority_and_age(stage: Stage) -> None:
    """Delegated tasks come in the order of the queues, then of priority, then of age."""
    for priority, key in ((5, "late"), (1, "first"), (1, "second")):
        await stage.create(priority=priority)
        (owner,) = await stage.dequeue()
        await stage.apply(enqueue(owner, key))
        await stage.apply(enqueue(owner, f"{key}-b", queue="b"))
    order = [await taken(stage, "b", "agents") for _ in range(6)]
    assert [task.key for task in order] == [
        "first-b",
        "second-b",
        "late-b",
        "first",
        "second",
        "late",
    ]
    assert await take(stage, "b", "agents") is None
    assert not await stage.store.has_delegated(("b", "agents"))


@CHECKS.add
async def nobody_takes_what_is_for_others(stage: Stage) -> None:
    """Workers, pools and consumers share a queue without being in each other's way."""
    start = await stage.create(queue="agents")
    owner = await stage.own()
    await stage.apply(enqueue(owner, "d"), enqueue(owner, "s", kind=RUN_STEP, step="s"))
    assert await stage.store.has_delegated(("agents",))
    assert await stage.store.has_steps(("agents",), ("s",))
    assert not await stage.store.has_steps(("agents",), ("other",))
    assert not await stage.store.has_steps(("default",), ("s",))
    assert (await taken(stage)).key == "d"
    assert await take(stage) is None
    assert await steps_of(stage, "other") == []
    assert [task.key for task in await steps_of(stage)] == ["s"]
    (claimed,) = await stage.dequeue(("agents",))
    assert claimed.record.eid == start


@CHECKS.add
async def missing_names_steps_too(stage: Stage) -> None:
    """A step that no worker knows is named, with no version; what is delegated is not."""
    owner = await delegated(stage)
    await stage.apply(enqueue(owner, "s", kind=RUN_STEP, step="render"))
    known = frozenset({("work", "1")})
    missing = await stage.store.missing(("agents",), known)
    assert missing == [MissingWorkflow("render", "")]
    assert await stage.store.missing(("agents",), known | {("render", "")}) == []
    await steps_of(stage, "render")
    assert await stage.store.missing(("agents",), known) == []


@CHECKS.add
async def a_repeated_dequeue_gives_the_same_task(stage: Stage) -> None:
    """Whoever asks again for the answer to a batch is given the task that it has leased."""
    await delegated(stage, "k1", "k2")
    first = await taken(stage)
    stage.repeat()
    assert await taken(stage) == first
    assert (await taken(stage)).key == "k2"


# -- leases ----------------------------------------------------------------------------------


@CHECKS.add
async def a_lease_has_the_next_epoch_and_the_state(stage: Stage) -> None:
    """Each dequeue raises the epoch; what a holder kept in the task is there for the next one."""
    await delegated(stage)
    first = await taken(stage)
    assert (first.epoch, bytes(first.state), first.stop) == (1, b"null", False)
    assert await stage.apply(RenewTask(first.task, "a", 1, b'{"at":7}', NOW)) == Done((False,))
    assert await stage.apply(RenewTask(first.task, "a", 1, None, NOW)) == Done((False,))
    (held,) = await stage.store.held("a")
    assert (held.epoch, bytes(held.state), held.key) == (1, b'{"at":7}', "k")
    assert await stage.store.held("b") == []
    await stage.apply(NackTask(first.task, "a", 1, None, NOW))
    second = await taken(stage, holder="b")
    assert (second.epoch, bytes(second.state)) == (2, b'{"at":7}')


@CHECKS.add
async def only_the_holder_may(stage: Stage) -> None:
    """Everybody else is refused, alone and in a transition, and nothing is written."""
    owner = await delegated(stage)
    task = await taken(stage)
    eid = owner.record.eid
    wrong = [*calls_of(task, "b"), *calls_of(msgspec.structs.replace(task, epoch=2))]
    for call in wrong:
        outcome = await stage.apply(call)
        assert isinstance(outcome, Refused)
        assert outcome.code == NOT_HOLDER
        outcome = await stage.apply(send(eid), call)
        assert outcome == Refused(NOT_HOLDER, at=1)
        assert await stage.apply(call, send(eid)) == Refused(NOT_HOLDER)
    assert (await stage.mail(eid)).messages == ()
    (held,) = await stage.store.held("a")
    assert held == task
    for call in calls_of(task)[:2]:
        assert isinstance(await stage.apply(call), Done)
    assert isinstance(await stage.apply(AckTask(task.task, "a", 1), send(eid)), Done)
    assert len((await stage.mail(eid)).messages) == 1
    assert await keys_on(stage) == []
    for call in calls_of(task):
        assert await stage.apply(call) == Refused(NOT_HOLDER)


@CHECKS.add
async def a_returned_task_can_be_delayed(stage: Stage) -> None:
    """A task that is returned is there at once, or when its instant has come."""
    await delegated(stage)
    task = await taken(stage)
    later = NOW + 60 * SECOND
    await stage.apply(NackTask(task.task, "a", 1, later, NOW))
    assert await take(stage) is None
    assert [t.state for t in await stage.store.queue_tasks("agents", 10)] == ["delayed"]
    assert await stage.store.next_due() == later
    assert await stage.apply(FireTimers(later - 1, 10)) == Done((0,))
    assert await stage.apply(FireTimers(later, 10)) == Done((1,))
    assert (await taken(stage)).epoch == 2


@CHECKS.add
async def a_lease_expires_at_the_renewal_that_was_seen(stage: Stage) -> None:
    """Only a lease that was not renewed since is expired; then the next holder has the task."""
    await delegated(stage)
    task = await taken(stage)
    (lease,) = await stage.store.leases()
    assert (lease.task, lease.epoch, lease.ttl) == (task.task, 1, 300.0)
    await stage.apply(RenewTask(task.task, "a", 1, None, NOW))
    (renewed,) = await stage.store.leases()
    assert renewed.renewal > lease.renewal
    for epoch, renewal in ((1, lease.renewal), (2, renewed.renewal)):
        assert await stage.apply(ExpireTask(task.task, epoch, renewal, NOW)) == Done((False,))
    assert await take(stage, holder="b") is None
    assert await stage.apply(ExpireTask(task.task, 1, renewed.renewal, NOW)) == Done((True,))
    assert await stage.store.leases() == []
    assert await stage.apply(ExpireTask(task.task, 1, renewed.renewal, NOW)) == Done((False,))
    assert (await taken(stage, holder="b")).epoch == 2


@CHECKS.add
async def a_step_is_held_as_long_as_the_session(stage: Stage) -> None:
    """Its lease needs no renewal; when the session expires or is closed, the task is visible."""
    owner = await stage.own()
    other = await stage.store.open_session(WORKER_SITE, 30.0, NOW)
    await stage.apply(*(enqueue(owner, key, kind=RUN_STEP, step="s") for key in ("s1", "s2")))
    (first,) = await steps_of(stage, limit=1, session=other.session)
    assert (first.key, first.step, first.epoch) == ("s1", "s", 1)
    assert await stage.store.leases() == []
    assert [t.key for t in await stage.store.held(session_holder(other.session))] == ["s1"]
    assert [t.key for t in await steps_of(stage)] == ["s2"]
    assert await steps_of(stage) == []
    await stage.apply(ExpireSession(other.session, 0, NOW))
    assert [(t.key, t.epoch) for t in await steps_of(stage, limit=1)] == [("s1", 2)]
    assert await steps_of(stage, session=other.session) == []
    closing = await stage.store.open_session(WORKER_SITE, 30.0, NOW)
    await stage.apply(enqueue(owner, "s3", kind=RUN_STEP, step="s"))
    assert len(await steps_of(stage, session=closing.session)) == 1
    await stage.store.close_session(closing.session)
    assert [t.key for t in await steps_of(stage)] == ["s3"]


@CHECKS.add
async def a_task_is_withdrawn_whoever_holds_it(stage: Stage) -> None:
    """The result says whether it was there; its holder has lost it."""
    owner = await delegated(stage)
    one = task_id(DELEGATE, owner.record.eid, "k")
    task = await taken(stage)
    assert await stage.apply(Withdraw("other", one)) == Done((False,))
    assert await stage.apply(Withdraw("agents", one)) == Done((True,))
    assert await stage.apply(Withdraw("agents", one)) == Done((False,))
    assert await stage.apply(AckTask(task.task, "a", 1)) == Refused(NOT_HOLDER)


# -- ends ------------------------------------------------------------------------------------


@CHECKS.add
async def tell_wakes_a_frame_that_waits(stage: Stage) -> None:
    """What a frame is told is mail on the channel of its own; one that has ended hears nothing."""
    eid = await stage.suspended()
    tell = Tell(eid, "root/f#0", b'"done"', ADA, NOW)
    assert isinstance(await stage.apply(tell), Done)
    (message,) = (await stage.mail(eid)).messages
    assert (message.channel, bytes(message.payload), message.seq) == ("root/f#0", b'"done"', 1)
    (claimed,) = await stage.dequeue()
    await stage.apply(complete(claimed))
    assert isinstance(await stage.apply(tell), Done)
    assert isinstance(await stage.apply(Tell(UUID(int=7), "root/f#0", b"1", ADA, NOW)), Done)
    assert len((await stage.mail(eid)).messages) == 1


@CHECKS.add
async def what_is_delegated_outlives_a_normal_end(stage: Stage) -> None:
    """After completion or failure delegated tasks stay, and those that run steps are gone."""
    for end in ("complete", "fail"):
        owner = await delegated(stage, f"{end}-held", f"{end}-waiting")
        await stage.apply(enqueue(owner, "s", kind=RUN_STEP, step="s"))
        await taken(stage, holder=end)
        ending = complete(owner) if end == "complete" else fail(owner, "E", "m")
        await stage.apply(ending)
        assert [t.stop for t in await stage.store.held(end)] == [False]
        assert (await taken(stage)).key == f"{end}-waiting"
        assert await steps_of(stage) == []


@CHECKS.add
async def a_stopped_execution_lets_its_tasks_go(stage: Stage) -> None:
    """At a cancel or a terminate nobody begins its tasks, and whoever does one is asked to stop."""
    for stop in ("cancel", "terminate"):
        owner = await delegated(stage, "held", "waiting")
        eid = owner.record.eid
        task = await taken(stage, holder=stop)
        if stop == "cancel":
            await stage.apply(RequestCancel(eid, ADA, None, NOW))
            assert await keys_on(stage) == ["held", "waiting"]  # it may go on cleaning up
            (held,) = await stage.store.held(stop)
            assert held.stop
            ending = msgspec.structs.replace(complete(owner), status="cancelled", result=None)
            await stage.apply(ending)
        else:
            await stage.apply(Terminate(eid, ADA, None, NOW))
        assert (await stage.row(eid)).status in (
            ExecutionStatus.CANCELLED,
            ExecutionStatus.TERMINATED,
        )
        assert await keys_on(stage) == ["held"]
        assert await stage.apply(RenewTask(task.task, stop, 1, None, NOW)) == Done((True,))
        assert await stage.apply(AckTask(task.task, stop, 1)) == Done((None,))
        assert await keys_on(stage) == []


@CHECKS.add
async def a_claim_can_be_for_the_first_only(stage: Stage) -> None:
    """Who is not the first is refused with what is kept, and nothing beside it is written."""
    owner = await stage.own()
    eid = owner.record.eid
    assert isinstance(await stage.apply(Claim("k", eid, b'"one"', NOW, only_first=True)), Done)
    for value in (b'"one"', b'"two"'):
        again = Claim("k", eid, value, NOW, only_first=True)
        assert await stage.apply(again, send(eid)) == Refused("claimed", '"one"')
        assert await stage.apply(send(eid), again) == Refused("claimed", '"one"', 1)
    assert (await stage.mail(eid)).messages == ()
    assert await stage.apply(Claim("k", eid, b"2", NOW)) == Done((b'[false,"one"]',))


# -- streams ---------------------------------------------------------------------------------


@CHECKS.add
async def a_stream_is_read_and_is_no_mail(stage: Stage) -> None:
    """Items are numbered from 1; they wake nobody and are nobody's mail."""
    owner = await stage.own()
    eid, epoch = owner.record.eid, owner.epoch
    for number, payload in enumerate((b"1", b'"two"', b"null"), start=1):
        outcome = await stage.apply(Publish(eid, epoch, "s", payload, ADA, NOW))
        assert outcome == Done((number,))
    await stage.apply(Publish(eid, None, "other", b"9", ADA, NOW))
    items = await stage.store.items(eid, "s", 0, 10)
    assert [(seq, bytes(value)) for seq, value in items] == [(1, b"1"), (2, b'"two"'), (3, b"null")]
    assert [seq for seq, _ in await stage.store.items(eid, "s", 1, 1)] == [2]
    assert await stage.store.items(eid, "none", 0, 10) == []
    mail = await stage.mail(eid)
    assert (mail.wake, mail.messages) == (owner.mail.wake, ())


@CHECKS.add
async def who_lost_an_execution_publishes_nothing(stage: Stage) -> None:
    """An item under an epoch that is over is refused, with all that stands beside it."""
    owner = await stage.own()
    eid = owner.record.eid
    stale = Publish(eid, owner.epoch - 1, "s", b"1", ADA, NOW)
    assert await stage.apply(stale) == Refused("lease_lost")
    outcome = await stage.apply(append(owner, 2), stale)
    assert outcome == Refused("lease_lost", at=1)
    assert await stage.store.items(eid, "s", 0, 10) == []
    assert len(await stage.store.journal(eid)) == 1
