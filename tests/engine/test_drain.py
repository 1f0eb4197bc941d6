"""How does a worker stop? It takes nothing new, lets attempts end, and hands back what it owns."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from perdure import Context, EngineConfig, Registry, RetryPolicy, Worker
from tests.engine.cluster import (
    Gate,
    Process,
    cluster,
    gated_steps,
    nothing_left,
    retrying,
    turns,
    until,
)
from tests.engine.support import Runs, trace

DRAIN = 10.0


def stages(gate: Gate, runs: Runs) -> Registry:
    """Give a workflow whose first step waits at a gate."""
    registry = Registry()
    first, second = gated_steps(gate, runs)

    @registry.workflow("stages", version="1")
    async def run(ctx: Context) -> list[str]:
        return [await ctx.step(first), await ctx.step(second)]

    return registry


def config(drain: float = DRAIN) -> EngineConfig:
    return EngineConfig(drain=drain, session_ttl=3600)


async def begun(worker: Worker) -> None:
    """Wait until a drain has told every execution."""
    runners = worker._runners  # noqa: SLF001
    await until(lambda: all(runner.draining for runner in runners.values()))


async def elsewhere(second: Process, eid: Any) -> str:
    """Let another worker finish an execution, on a clock that stands still."""
    before = second.clock.now()
    await second.run_until_idle()
    assert second.clock.now() == before, "it did not wait for a lease to expire"
    assert await second.engine.status(eid) == "completed"
    return trace(await second.engine.journal(eid))


async def test_a_running_attempt_ends_and_the_rest_goes_on_elsewhere_at_once(url: str) -> None:
    gate, runs = Gate(), Runs()
    async with cluster(stages(gate, runs), url) as machines:
        process = await machines.boot(worker=False, config=config())
        eid = await process.engine.start("stages")
        async with process.engine.worker() as worker:
            await gate.entered.wait()
            draining = asyncio.create_task(worker.drain())
            await begun(worker)
            new = await process.engine.start("stages")
            worker.poke()
            await turns()
            assert await process.engine.status(new) == "pending"
            assert not draining.done()
            gate.opened.set()
            await draining
            lease = await process.engine.lease(eid)
            assert (lease.live, lease.epoch) == (False, 1)
            assert (await machines.store.info()).sessions == 0
        second = await machines.boot()
        assert await elsewhere(second, eid) == (
            "XS FS first#0/1 FC first#0 | XR(2,drain) FS second#0/1 FC second#0 XC"
        )
        assert await second.engine.status(new) == "completed"
        assert runs == {"first": 2, "second": 2}
        assert await nothing_left(machines.store)


async def test_a_drain_of_zero_stops_at_once_and_spends_no_attempt(url: str) -> None:
    gate, runs = Gate(), Runs()
    async with cluster(stages(gate, runs), url) as machines:
        process = await machines.boot(worker=False, config=config(0))
        eid = await process.engine.start("stages")
        async with process.engine.worker():
            await gate.entered.wait()
        second = await machines.boot()
        gate.opened.set()
        assert (await elsewhere(second, eid)).startswith(
            "XS FS first#0/1 | XR(2,drain) FS first#0/1 FC first#0"
        )
        assert runs == {"first": 2, "second": 1}


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_a_step_that_ignores_the_drain_is_abandoned_at_its_deadline(
    url: str, kind: str
) -> None:
    """Its late outcome changes nothing."""
    registry = Registry()
    entered, opened, ended = asyncio.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    runs = Runs()

    async def coroutine() -> str:
        runs["step"] += 1
        while runs["step"] == 1:
            entered.set()
            try:
                await asyncio.Future()
            except asyncio.CancelledError:
                ended.set()
                return "late"
        return "in time"

    def thread() -> str:
        runs["step"] += 1
        if runs["step"] > 1:
            return "in time"
        loop.call_soon_threadsafe(entered.set)
        opened.wait()
        loop.call_soon_threadsafe(ended.set)
        return "late"

    @registry.workflow("stubborn", version="1")
    async def stubborn(ctx: Context) -> Any:
        return await ctx.step(coroutine if kind == "coroutine" else thread, name="step")

    async with cluster(registry, url) as machines:
        process = await machines.boot(worker=False, config=config())
        eid = await process.engine.start(stubborn)
        async with process.engine.worker() as worker:
            await entered.wait()
            draining = asyncio.create_task(worker.drain())
            await begun(worker)
            machines.clock.advance(DRAIN - 0.001)
            await turns()
            assert not draining.done()
            machines.clock.advance(0.001)
            await draining
        opened.set()
        await ended.wait()
        second = await machines.boot()
        journal = await elsewhere(second, eid)
        assert journal == "XS FS step#0/1 | XR(2,drain) FS step#0/1 FC step#0 XC"
        assert (await second.engine.execution(eid)).result == "in time"


async def test_a_cancelled_attempt_of_a_drain_is_no_failure(url: str) -> None:
    registry = Registry()
    gate = Gate()
    seen: list[str] = []

    async def step() -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @registry.workflow("retried", version="1")
    async def retried(ctx: Context) -> None:
        await ctx.step(step, retry=RetryPolicy(max_attempts=5))

    async with cluster(registry, url) as machines:
        process = await machines.boot(worker=False, config=config(0))
        eid = await process.engine.start(retried)
        async with process.engine.worker():
            await gate.entered.wait()
        assert seen == ["cancelled"]
        gate.opened.set()
        second = await machines.boot()
        assert "FF" not in await elsewhere(second, eid)


async def test_executions_that_are_owned_but_have_not_begun_are_handed_back(url: str) -> None:
    gate, runs = Gate(), Runs()
    async with cluster(stages(gate, runs), url) as machines:
        process = await machines.boot(worker=False, config=config())
        eids = await process.engine.start_many("stages", [[]] * 5)
        async with process.engine.worker(max_steps=1) as worker:
            await gate.entered.wait()
            draining = asyncio.create_task(worker.drain())
            await begun(worker)
            gate.opened.set()
            await draining
        assert runs == {"first": 1}
        second = await machines.boot()
        for eid in eids:
            await elsewhere(second, eid)
        assert runs == {"first": 5, "second": 5}


async def test_an_execution_that_waits_beside_a_step_is_handed_back_with_its_waits(
    url: str,
) -> None:
    """The deadline of the wait passes during the drain; that does not keep the worker busy."""
    registry = Registry()
    gate = Gate()
    runs = Runs()

    async def flaky() -> str:
        runs["flaky"] += 1
        if runs["flaky"] == 1:
            raise ValueError
        return "ok"

    @registry.workflow("mixed", version="1")
    async def mixed(ctx: Context) -> Any:
        retry = RetryPolicy(max_attempts=2, backoff=timedelta(seconds=1))
        return await ctx.gather(ctx.step(gate.wait, "slow"), ctx.step(flaky, retry=retry))

    async with cluster(registry, url) as machines:
        process = await machines.boot(worker=False, config=config())
        looks = 0

        async def count() -> None:
            nonlocal looks
            looks += 1

        process.wire.after["mail"] = count
        eid = await process.engine.start(mixed)
        async with process.engine.worker() as worker:
            await gate.entered.wait()
            await turns()
            draining = asyncio.create_task(worker.drain())
            await begun(worker)
            machines.clock.advance(2)
            for _ in range(20):
                await turns()
            assert looks <= 2, "it looks for something that it cannot serve, again and again"
            gate.opened.set()
            await draining
        assert runs == {"flaky": 1}
        second = await machines.boot()
        await elsewhere(second, eid)
        assert (await second.engine.execution(eid)).result == ["slow", "ok"]
        assert runs == {"flaky": 2}


async def test_draining_twice_at_once_is_draining(url: str) -> None:
    """Whoever asks gets to know when it is over: the end of the block is as good as a signal."""
    gate, runs = Gate(), Runs()
    async with cluster(stages(gate, runs), url) as machines:
        process = await machines.boot(worker=False, config=config())
        eid = await process.engine.start("stages")
        worker = process.engine.worker()
        await worker.__aenter__()
        await gate.entered.wait()
        drains = [asyncio.create_task(worker.drain()) for _ in range(2)]
        await begun(worker)
        assert [drain.done() for drain in drains] == [False, False]
        gate.opened.set()
        await asyncio.gather(*drains)
        await worker.drain()
        second = await machines.boot()
        await elsewhere(second, eid)


async def test_a_drain_that_is_cancelled_leaves_nothing_running(url: str) -> None:
    """Whoever cannot wait stops at once; the engine can be closed, and the lease is released."""
    gate, runs = Gate(), Runs()
    async with cluster(stages(gate, runs), url) as machines:
        process = await machines.boot(worker=False, config=config())
        eid = await process.engine.start("stages")
        worker = process.engine.worker()
        await worker.__aenter__()
        await gate.entered.wait()
        draining = asyncio.create_task(worker.drain())
        await begun(worker)
        draining.cancel()
        await asyncio.wait([draining])
        await worker.drain()
        gate.opened.set()
        second = await machines.boot()
        await second.sweep()
        machines.clock.advance(3600)
        assert second.worker is not None
        await second.worker.beat_once()
        await second.sweep()
        await second.run_until_idle()
        assert await second.engine.status(eid) == "completed"


async def test_a_drain_ends_although_the_store_is_gone(url: str) -> None:
    gate, runs = Gate(), Runs()
    async with cluster(stages(gate, runs), url) as machines:
        process = await machines.boot(worker=False, config=config())
        await process.engine.start("stages")
        async with process.engine.worker(upkeep=False) as worker:
            await gate.entered.wait()
            process.wire.down = True
            gate.opened.set()
            draining = asyncio.create_task(worker.drain())
            async with retrying(machines.clock):
                await turns()
                machines.clock.advance(DRAIN)
                await turns()
                machines.clock.advance(DRAIN)
                await draining
