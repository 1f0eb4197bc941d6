"""Does a reader get what steps publish? In order, and nothing of an attempt that was lost."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import Context, Registry, RetryPolicy, StepFailed, StepInfo, step_info
from perdure.ports.commands import Command, Publish, Release, Suspend
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import Cluster, Gate, cluster, entry_of, holds, running, until
from tests.engine.support import Machine, appends, result_of, trace_of
from tests.engine.test_leases import steal

MANY = 100


async def everything(under: EngineUnderTest, eid: UUID, name: str = "s", after: int = 0) -> Any:
    """Give all items of a stream of an execution that has ended."""
    return [value async for value in under.engine.stream(eid, name, after=after)]


def one(body: Any) -> Registry:
    """Give a registry with one workflow, ``w``."""
    registry = Registry()
    registry.workflow("w", version="1")(body)
    return registry


async def count_up(count: int) -> int:
    for number in range(count):
        step_info().publish("s", number)
    return count


def follow(applied: list[Command], first: type, then: type) -> bool:
    """Tell whether a command of one kind stands before one of another."""
    kinds = [type(command) for command in applied]
    return then in kinds[kinds.index(first) :]


async def so_far(machines: Cluster, eid: UUID, name: str = "s") -> list[Any]:
    """Give the items that are durable now, with their numbers checked."""
    items = await machines.store.items(eid, name, 0, MANY)
    assert [number for number, _ in items] == list(range(1, len(items) + 1))
    return [int(bytes(value)) for _, value in items]


def count_up_in_a_thread(count: int) -> int:
    for number in range(count):
        step_info().publish("s", number)
    return count


def count_up_in_disguise(count: int) -> Any:
    """Begin in a thread, and go on as what the thread gives: a coroutine."""
    info = step_info()
    info.publish("s", 0)

    async def rest() -> int:
        for number in range(1, count):
            info.publish("s", number)
            await asyncio.sleep(0)
        return count

    return rest()


def publish_as_a_step(number: int) -> None:
    """Publish from a thread that has the context of the step."""
    step_info().publish("s", number)


async def count_up_through_threads(count: int) -> int:
    info = step_info()
    for number in range(count):
        if number % 2:
            await asyncio.to_thread(info.publish, "s", number)
        else:
            await asyncio.to_thread(publish_as_a_step, number)
    return count


COUNTING = [count_up, count_up_in_a_thread, count_up_in_disguise, count_up_through_threads]


@pytest.mark.parametrize("counting", COUNTING, ids=lambda step: step.__name__)
async def test_the_items_of_a_step_keep_their_order(url: str, counting: Any) -> None:
    async def body(ctx: Context) -> int:
        return await ctx.step(counting, 20)

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await result_of(under, eid) == 20
        assert await everything(under, eid) == list(range(20))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("counting", [count_up, count_up_in_a_thread], ids=["async", "thread"])
async def test_a_crash_at_any_write_loses_no_item_of_the_last_attempt(
    url: str, counting: Any
) -> None:
    async def paced(count: int) -> int:
        """Publish over several commits."""
        for number in range(count):
            step_info().publish("s", number)
            for _ in range(8):
                await asyncio.sleep(0)
        return count

    async def body(ctx: Context) -> None:
        await ctx.step(paced if counting is count_up else counting, 4)

    registry = one(body)
    for crash_at in range(1, MANY):
        machine = await Machine.open(registry, url if url == "memory:" else f"{url}.{crash_at}")
        under = await machine.boot()
        eid = await under.engine.start("w")
        await machine.bury()
        under = await machine.boot(crash_at=crash_at)
        died = await machine.until_death(under.advance(600))
        await machine.bury()
        under = await machine.boot()
        await under.advance(600)
        items = await everything(under, eid)
        assert items[-4:] == [0, 1, 2, 3], "the last attempt, whole and in order"
        assert items[:-4] == list(range(len(items) - 4)), "the beginning of one that died"
        await machine.bury()
        await machine.store.close()
        if not died:
            assert crash_at > 3, "the workflow makes many writes"
            assert len(items) == 4
            return
    pytest.fail("the workflow never got through")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("counting", [count_up, count_up_in_a_thread], ids=["async", "thread"])
async def test_items_are_durable_no_later_than_the_outcome(
    url: str, counting: Any, *, after: bool
) -> None:
    async def body(ctx: Context) -> None:
        await ctx.step(counting, 3, name="count")

    async with cluster(one(body), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("w")
        await process.run_to_death(appends("frame.completed", "root/count#0"), after=after)
        ended = "FC count#0" in await trace_of(process, eid)
        assert ended == after
        if ended:
            assert await so_far(machines, eid) == [0, 1, 2]


async def test_items_are_there_while_the_step_still_runs(url: str) -> None:
    gates = [Gate(), Gate()]

    async def step() -> None:
        for number, gate in enumerate(gates):
            step_info().publish("s", number)
            await gate.wait()
        step_info().publish("s", 2)

    async def body(ctx: Context) -> None:
        await ctx.step(step)

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        async with running(under) as task:
            items = under.engine.stream(eid, "s")
            for number, gate in enumerate(gates):
                assert await anext(items) == number
                gate.opened.set()
            assert await anext(items) == 2
            with pytest.raises(StopAsyncIteration):
                await anext(items)
            await task


async def test_each_attempt_publishes_its_own_items_also_the_one_that_fails(url: str) -> None:
    """The failure and the wait for the next attempt are one transition with the items."""

    async def step() -> None:
        number = step_info().attempt
        step_info().publish("s", number)
        step_info().publish("s", number * 10)
        if number < 3:
            raise ValueError("not yet")

    async def body(ctx: Context) -> None:
        await ctx.step(step, retry=RetryPolicy(max_attempts=3, backoff=timedelta(minutes=1)))

    async with cluster(one(body), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("w")
        await process.run_until_idle()
        assert await so_far(machines, eid) == [1, 10]
        assert follow(process.wire.applied, Suspend, Publish)
        await process.advance(600)
        assert await everything(process, eid) == [1, 10, 2, 20, 3, 30]


async def test_an_attempt_that_timed_out_publishes_nothing_more(url: str) -> None:
    opened, written = threading.Event(), threading.Event()
    late: list[StepInfo] = []

    async def clings() -> None:
        step_info().publish("s", 1)
        with suppress(asyncio.CancelledError):
            await asyncio.Future()
        late.append(step_info())
        step_info().publish("s", 666)

    def hangs() -> None:
        step_info().publish("s", 2)
        opened.wait()
        step_info().publish("s", 667)
        late.append(step_info())
        written.set()

    async def body(ctx: Context) -> str:
        for step in (clings, hangs):
            with suppress(StepFailed):
                await ctx.step(step, timeout=5)
        await ctx.receive("go")
        return "done"

    async with cluster(one(body), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("w")
        async with running(process):
            for number in (1, 2):
                items = process.engine.stream(eid, "s", after=number - 1)
                assert await anext(items) == number
                machines.clock.advance(5)
                kind = ("clings", "hangs")[number - 1]
                await entry_of(process.engine, eid, "frame.failed", f"root/{kind}#0")
        opened.set()
        assert await asyncio.to_thread(written.wait, 5)
        await process.engine.signal(eid, "go", 1)
        await process.run_until_idle()
        assert len(late) == 2
        assert await result_of(process, eid) == "done"
        assert await everything(process, eid) == [1, 2]


async def test_what_a_step_leaves_running_publishes_nothing_behind_the_outcome(url: str) -> None:
    left: list[StepInfo] = []

    async def step() -> None:
        left.append(step_info())
        step_info().publish("s", 1)

    async def body(ctx: Context) -> None:
        await ctx.step(step)
        left[0].publish("s", 2)
        await ctx.receive("go")

    async with engine_under_test(one(body), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        await asyncio.to_thread(left[0].publish, "s", 3)
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await everything(under, eid) == [1]


async def test_a_worker_that_lost_its_lease_publishes_nothing(url: str) -> None:
    gates = [Gate(), Gate()]

    async def step() -> int:
        gate = gates.pop(0)
        number = step_info().started_at.minute
        step_info().publish("s", number)
        await gate.wait()
        step_info().publish("s", number + 100)
        return number

    async def body(ctx: Context) -> int:
        return await ctx.step(step)

    old_gate, new_gate = gates
    async with cluster(one(body), url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("w")
        async with running(first) as task:
            await until(lambda: holds(first.wire.applied, Publish))
            assert await so_far(machines, eid) == [0]
            second = await machines.boot()
            machines.clock.advance(60)
            await steal(machines, second)
            async with running(second) as other:
                await new_gate.entered.wait()
                old_gate.opened.set()  # the worker that was fenced does not know yet
                await task
                new_gate.opened.set()
                await other
        assert await result_of(second, eid) == 1
        assert await everything(second, eid) == [0, 1, 101]


async def test_a_drain_hands_the_items_over_with_the_execution(url: str) -> None:
    gate = Gate()

    async def step() -> None:
        step_info().publish("s", step_info().attempt)
        await gate.wait()

    async def body(ctx: Context) -> None:
        await ctx.step(step)

    async with cluster(one(body), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("w")
        async with running(process) as task:
            await gate.entered.wait()
            # The beginning of the step is with the store still, and the item rides with the end.
            assert process.worker is not None
            await process.worker.drain()
            await task
        assert holds(process.wire.applied, Release)
        assert await so_far(machines, eid) == [1]
