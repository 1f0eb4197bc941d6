"""Consumers answer delegated tasks: leases, renewals, state, attach, cancel, and crashes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AlreadyClosed,
    Consumer,
    Context,
    DelegateTask,
    Held,
    InvalidArgument,
    InvalidName,
    LeaseLost,
    NotSerializable,
    Registry,
)
from perdure.patterns import delegate
from perdure.ports.commands import AckTask, Command, DequeueDelegated, RenewTask
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, Process, cluster, holds, nothing_left, until
from tests.engine.support import result_of, trace_of

TTL = 300


def asking() -> Registry:
    """Give a workflow that delegates, and one that delegates twice."""
    registry = Registry()

    @registry.workflow("ask", version="1")
    async def ask(ctx: Context, payload: Any = "q", timeout: float | None = None) -> Any:
        answer = await delegate(ctx, "agents", payload, timeout=timeout)
        return None if answer is None else [answer.payload, str(answer.actor)]

    @registry.workflow("twice", version="1")
    async def twice(ctx: Context) -> Any:
        first = await delegate(ctx, "agents", "p1", timeout=3600, key="1")
        second = await delegate(ctx, "agents", "p2", key="2")
        return [first and first.payload, second and second.payload]

    return registry


def consumer_of(process: Any, holder: str = "agent", *queues: str) -> Consumer:
    """Give a consumer in a process."""
    made: Consumer = process.engine.consumer(queues or ["agents"], holder=holder, ttl=TTL)
    return made


async def held_by(consumer: Consumer) -> Held:
    """Dequeue a task that is there."""
    held = await consumer.dequeue()
    assert held is not None
    return held


async def test_it_dequeues_delivers_and_acks(url: str) -> None:
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        consumer = consumer_of(process)
        assert await consumer.dequeue() is None
        eid = await process.engine.start("ask", {"n": 1})
        await process.run_until_idle()
        held = await held_by(consumer)
        task = held.task
        assert (task.eid, task.fid, task.queue) == (eid, "root/delegate-enqueue#0", "agents")
        assert (task.payload, held.epoch, held.state) == ({"n": 1}, 1, None)
        assert task.task_id == f"delegate:{eid}:delegate-enqueue#0"
        (shown,) = await machines.store.queue_tasks("agents", 10)
        assert (shown.state, shown.holder) == ("leased", "agent")
        assert await consumer.dequeue() is None
        assert await held.deliver("a") == 1
        await held.ack()
        await process.run_until_idle()
        assert await result_of(process, eid) == ["a", "system:agent"]
        assert await nothing_left(machines.store)
        for late in (held.renew(), held.deliver("b"), held.ack(), held.nack()):
            with pytest.raises(LeaseLost, match="nothing was written"):
                await late


async def test_a_lease_that_is_not_renewed_expires(url: str) -> None:
    """C111, C114: the next holder has the next epoch and inherits the state."""
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()
        first = await held_by(consumer_of(process, "a"))
        assert await first.renew({"handle": 17}) is False
        await process.advance(TTL - 1)
        assert await consumer_of(process, "b").dequeue() is None
        await first.renew()
        await process.advance(TTL - 1)
        assert await consumer_of(process, "b").dequeue() is None
        await process.advance(2)
        second = await held_by(consumer_of(process, "b"))
        assert (second.epoch, second.state) == (2, {"handle": 17})
        for call in (first.renew("x"), first.ack(), first.nack(), first.complete("x")):
            with pytest.raises(LeaseLost):
                await call
        await second.complete("mine")
        await process.run_until_idle()
        assert await result_of(process, eid) == ["mine", "system:b"]


async def test_it_attaches_after_a_restart(url: str) -> None:
    """C114 (c): the same holder has the same epoch and state, and nothing is written."""
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        await process.engine.start("ask")
        await process.run_until_idle()
        held = await held_by(consumer_of(process))
        await held.renew([1])
        again = await machines.boot(worker=False)
        written = again.wire.writes
        (attached,) = await consumer_of(again).attach()
        assert again.wire.writes == written
        assert (attached.epoch, attached.state, attached.task) == (1, [1], held.task)
        assert await consumer_of(again, "other").attach() == []
        await attached.complete("done")
        with pytest.raises(LeaseLost):
            await held.ack()


async def test_a_second_answer_is_ignored(url: str) -> None:
    """C114 (b): it died between deliver and ack; the task comes again."""
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()
        await (await held_by(consumer_of(process, "a"))).deliver("first")
        await process.advance(TTL + 1)
        await process.advance(TTL + 1)
        assert await result_of(process, eid) == ["first", "system:a"]
        second = await held_by(consumer_of(process, "b"))
        with pytest.raises(AlreadyClosed):
            await second.deliver("second")
        with pytest.raises(AlreadyClosed):
            await second.complete("second")
        await second.ack()
        assert await nothing_left(machines.store)


async def test_nack_hides_a_task_for_a_while(url: str) -> None:
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        await process.engine.start("ask")
        await process.run_until_idle()
        consumer = consumer_of(process)
        await (await held_by(consumer)).nack(timedelta(seconds=60))
        assert await consumer.dequeue() is None
        (task,) = await machines.store.queue_tasks("agents", 10)
        assert task.state == "delayed"
        await process.advance(60)
        await (await held_by(consumer)).nack()
        assert (await held_by(consumer)).epoch == 3


async def test_it_takes_no_work_of_workers(url: str) -> None:
    """C114 (a): START tasks on its queue stay for a worker; the next queue has its turn."""
    async with engine_under_test(asking(), url=url, queues=("default", "agents")) as under:
        eid = await under.engine.start("ask", queue="agents")
        consumer = under.engine.consumer(["agents"], holder="c")
        assert await consumer.dequeue() is None
        await under.run_until_idle()
        assert (await held_by(consumer)).task.eid == eid


async def test_an_answer_after_the_timeout_reaches_nobody(url: str) -> None:
    """C141: the task is withdrawn, and the next delegate has an answer of its own."""
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("twice")
        await process.run_until_idle()
        first = await held_by(consumer_of(process))
        await process.advance(3600)
        assert "FC delegate-withdraw:1" in await trace_of(process, eid)
        with pytest.raises(LeaseLost):
            await first.renew()
        await process.engine.deliver(eid, first.task.reply_channel, "late")
        await process.run_until_idle()
        assert (await process.engine.execution(eid)).status == "suspended"
        await (await held_by(consumer_of(process))).complete("own")
        await process.run_until_idle()
        assert await result_of(process, eid) == [None, "own"]


@pytest.mark.parametrize("stop", ["cancel", "terminate"])
async def test_the_holder_learns_of_a_cancel(url: str, stop: str) -> None:
    """C102: its renewal shows the request; the task stays until it is acked."""
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask", "q", 3600)
        other = await process.engine.start("ask")
        await process.run_until_idle()
        held = await held_by(consumer_of(process))
        for one in (eid, other):  # the other one's task is on the queue: it is removed
            await getattr(process.engine, stop)(one)
        await process.run_until_idle()
        assert (await process.engine.execution(eid)).status.terminal
        assert [t.eid for t in await machines.store.queue_tasks("agents", 10)] == [eid]
        assert await held.renew() is True
        assert held.cancel_requested
        with pytest.raises(AlreadyClosed):
            await held.deliver("a")
        await held.ack()
        assert await nothing_left(machines.store)


async def test_run_answers_what_comes(url: str) -> None:
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eids = [await process.engine.start("ask", n) for n in range(5)]
        await process.run_until_idle()

        async def double(task: DelegateTask, _held: Held) -> int:
            return int(task.payload) * 2

        await consumer_of(process).run(double, limit=2, until_empty=True)
        await process.run_until_idle()
        assert [(await result_of(process, eid))[0] for eid in eids] == [0, 2, 4, 6, 8]


async def test_run_renews_while_the_handler_works(url: str) -> None:
    gate = Gate()
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()

        async def slow(_task: DelegateTask, held: Held) -> Any:
            await held.renew("begun")
            return await gate.wait("slowly")

        consumer = consumer_of(process)
        run = asyncio.ensure_future(consumer.run(slow, until_empty=True))
        await gate.entered.wait()
        for _ in range(5):
            await process.advance(TTL / 2)
            await until(lambda: process.clock.next_due() is not None)
        assert await consumer_of(process, "thief").dequeue() is None
        gate.opened.set()
        await run
        await process.run_until_idle()
        assert await result_of(process, eid) == ["slowly", "system:agent"]


async def test_run_returns_a_task_whose_handler_fails(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The pause doubles with each try; at last the answer is there."""
    tries: list[int] = []
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()

        async def fail(_task: DelegateTask, held: Held) -> Any:
            tries.append(held.epoch)
            if len(tries) < 3:
                raise ValueError("no luck")
            return object() if len(tries) == 3 else "at last"

        consumer = consumer_of(process)
        for pause in (1, 2, 300):
            await consumer.run(fail, until_empty=True)
            assert await consumer.dequeue() is None
            await process.advance(pause)
        await consumer.run(fail, until_empty=True)
        await process.run_until_idle()
        assert tries == [1, 2, 3, 4]
        assert await result_of(process, eid) == ["at last", "system:agent"]
        assert "no luck" in caplog.text
        assert "the answer to task" in caplog.text


@pytest.mark.parametrize("how", ["cancel", "withdrawn"])
async def test_run_stops_a_handler_that_nobody_waits_for(url: str, how: str) -> None:
    gate, ended = Gate(), asyncio.Event()
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask", "q", 1000)
        await process.run_until_idle()

        async def wait(_task: DelegateTask, _held: Held) -> Any:
            try:
                return await gate.wait()
            finally:
                ended.set()

        run = asyncio.ensure_future(consumer_of(process).run(wait, until_empty=True))
        await gate.entered.wait()
        if how == "cancel":
            await process.engine.cancel(eid)
        await process.advance(1000)
        await process.advance(TTL)  # until the next renewal
        await ended.wait()
        await run
        assert (await process.engine.execution(eid)).status.terminal
        assert await nothing_left(machines.store)
        assert await machines.store.queue_tasks("agents", 10) == []


async def test_a_run_that_is_cancelled_returns_its_tasks(url: str) -> None:
    gate = Gate()
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()

        async def wait(_task: DelegateTask, held: Held) -> Any:
            await held.renew("so far")
            return await gate.wait()

        run = asyncio.ensure_future(consumer_of(process).run(wait))
        await gate.entered.wait()
        run.cancel()
        await asyncio.wait([run])
        held = await held_by(consumer_of(process, "next"))
        assert (held.task.eid, held.epoch, held.state) == (eid, 2, "so far")


async def test_a_run_that_is_cancelled_while_it_takes_a_task_returns_it(url: str) -> None:
    reached, opened = asyncio.Event(), asyncio.Event()

    async def hold(commands: list[Command]) -> None:
        if holds(commands, DequeueDelegated):
            reached.set()
            await opened.wait()

    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()
        process.wire.before_commit = hold
        run = asyncio.ensure_future(consumer_of(process).run(lambda *_: Gate().wait()))
        await reached.wait()
        run.cancel()
        opened.set()
        await asyncio.wait([run])
        assert run.cancelled()
        held = await held_by(consumer_of(process, "next"))
        assert (held.task.eid, held.epoch) == (eid, 2)


async def test_a_handler_that_loses_its_lease_has_not_failed(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        await process.engine.start("ask")
        await process.run_until_idle()

        async def renew(_task: DelegateTask, held: Held) -> None:
            await held.nack(TTL)
            await held.renew("too late")

        await consumer_of(process).run(renew, until_empty=True)
        assert "was taken from this consumer" in caplog.text
        assert "failed" not in caplog.text


async def test_stop_lets_the_handlers_end(url: str) -> None:
    gate = Gate()
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eids = [await process.engine.start("ask", n) for n in range(2)]
        await process.run_until_idle()
        consumer = consumer_of(process)
        run = asyncio.ensure_future(consumer.run(lambda task, _: gate.wait(task.payload)))
        await gate.entered.wait()
        consumer.stop()
        gate.opened.set()
        await run
        await process.run_until_idle()
        assert await result_of(process, eids[0]) == [0, "system:agent"]
        assert (await process.engine.execution(eids[1])).status == "suspended"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", [DequeueDelegated, RenewTask, AckTask])
async def test_killed_anywhere_the_answer_arrives_once(url: str, kind: type, after: bool) -> None:
    """Either the answer is there, or the task is visible again."""

    async def answer(task: DelegateTask, held: Held) -> Any:
        await held.renew("begun")
        return f"{task.payload} by {held.epoch}"

    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()
        doomed = await machines.boot(worker=False)
        doomed.wire.doom = lambda commands: holds(commands, kind)
        doomed.wire.doom_after = after
        run = asyncio.ensure_future(consumer_of(doomed).run(answer, until_empty=True))
        await doomed.wire.dead.wait()
        run.cancel()
        await doomed.die()
        await process.advance(TTL + 1)
        await process.advance(TTL + 1)
        done = kind is AckTask and after
        if not done:
            second = await machines.boot(worker=False)
            await consumer_of(second, "second").run(answer, until_empty=True)
        await process.run_until_idle()
        taken = kind is not DequeueDelegated or after
        expected = "q by 2" if taken and not done else "q by 1"
        assert (await result_of(process, eid))[0] == expected
        channels = [e for e in await process.engine.journal(eid) if e.type == "frame.fulfilled"]
        assert len(channels) == 1
        assert await nothing_left(machines.store)


async def test_bad_input_is_refused(url: str) -> None:
    async with cluster(asking(), url) as machines:
        process = await machines.boot()
        consumer: Any = process.engine.consumer
        wrong: list[Any] = ["agents", [], None]
        for queues in wrong:
            with pytest.raises(InvalidArgument, match="list of queue names"):
                consumer(queues, holder="x")
        for holder in ("", "session:1", "x" * 201, 7):
            with pytest.raises(InvalidArgument, match="holder"):
                consumer(["agents"], holder=holder)
        with pytest.raises(InvalidName):
            consumer(["no queue"], holder="x")
        with pytest.raises(InvalidArgument, match="ttl"):
            consumer(["agents"], holder="x", ttl=0)
        with pytest.raises(InvalidArgument, match="limit"):
            await consumer(["agents"], holder="x").run(lambda *_: None, limit=0)
        await process.engine.start("ask")
        await process.run_until_idle()
        held = await held_by(consumer_of(process))
        with pytest.raises(NotSerializable):
            await held.deliver(object())
        with pytest.raises(NotSerializable):
            await held.renew(object())
        await held.complete("still held")


async def test_it_waits_for_a_store_that_is_away(url: str) -> None:
    async with cluster(asking(), url) as machines:
        process: Process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()
        gate = Gate()
        away = await machines.boot(worker=False)
        run = asyncio.ensure_future(
            consumer_of(away).run(lambda _, __: gate.wait("kept"), until_empty=True)
        )
        await gate.entered.wait()
        away.wire.down = True
        gate.opened.set()
        await until(lambda: away.clock.next_due() is not None)
        away.wire.down = False
        while not run.done():
            away.clock.advance(timedelta(seconds=1))
            await asyncio.sleep(0)
        await process.run_until_idle()
        assert await result_of(process, eid) == ["kept", "system:agent"]
