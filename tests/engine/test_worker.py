"""What does a worker take, in which order, and how much of it at one time?"""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Context, InvalidArgument, Registry, StartOptions
from perdure.ports.store import Claimed
from perdure.testing import ManualClock, engine_under_test
from tests.engine.cluster import Gate, cluster, entry_of, retrying, running
from tests.engine.support import trace

HOUR = timedelta(hours=1)


def noting(order: list[Any]) -> Registry:
    """Give workflows that note in which order they ran."""
    registry = Registry()

    @registry.workflow("note", version="1")
    async def note(ctx: Context, what: Any) -> None:
        del ctx
        order.append(what)

    return registry


def gated(gate: Gate) -> Registry:
    """Give a workflow whose step waits at a gate."""
    registry = Registry()

    @registry.workflow("gated", version="1")
    async def run(ctx: Context) -> Any:
        return await ctx.step(gate.wait, "done")

    return registry


class Crowd:
    """A step that counts how many of it run at the same time, and waits until enough came."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.inside = 0
        self.most = 0
        self.full = asyncio.Event()
        self._lock = threading.Lock()
        self._full = threading.Event()

    def _enter(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside >= self.enough:
                self._full.set()

    def _leave(self) -> None:
        with self._lock:
            self.inside -= 1

    async def coroutine(self) -> None:
        self._enter()
        if self._full.is_set():
            self.full.set()
        await self.full.wait()
        self._leave()

    def thread(self) -> None:
        self._enter()
        self._full.wait()
        self._leave()


async def test_a_worker_owns_at_most_so_many_executions(url: str) -> None:
    gate = Gate()
    async with cluster(gated(gate), url) as machines:
        process = await machines.boot(max_executions=2)
        assert process.worker is not None
        eids = await process.engine.start_many("gated", [[]] * 5)
        async with running(process) as task:
            await gate.entered.wait()
            assert await process.worker.run_once() == 0
            rows = [await process.engine.execution(eid) for eid in eids]
            assert [row.status for row in rows] == ["running"] * 2 + ["pending"] * 3
            gate.opened.set()
            await task
        page = await process.engine.executions(status="completed")
        assert len(page.items) == 5


async def test_a_full_worker_goes_on_when_a_place_is_free(url: str) -> None:
    """Nobody has to tell it: the end of one execution makes it look for the next."""
    order: list[Any] = []
    async with cluster(noting(order), url) as machines:
        process = await machines.boot(worker=False)
        eids = await process.engine.start_many("note", [[number] for number in range(20)])
        async with process.engine.worker(max_executions=3, upkeep=False):
            for eid in eids:
                await process.engine.wait(eid)
        assert sorted(order) == list(range(20))


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_at_most_so_many_steps_run_at_one_time(url: str, kind: str) -> None:
    registry = Registry()
    crowd = Crowd(enough=3)

    @registry.workflow("wide", version="1")
    async def wide(ctx: Context) -> None:
        await ctx.gather(*[ctx.step(getattr(crowd, kind)) for _ in range(10)])

    async with engine_under_test(registry, url=url, max_steps=3) as under:
        eids = await under.engine.start_many(wide, [[]] * 3)
        await under.run_until_idle()
        assert crowd.most == 3
        for eid in eids:
            assert await under.engine.status(eid) == "completed"


async def test_a_better_priority_goes_first(url: str) -> None:
    """Lower is better; with equal priority it is first come, first served."""
    order: list[Any] = []
    async with engine_under_test(noting(order), url=url, max_executions=1) as under:
        for number, priority in enumerate([100, 5, 100, 0, 5]):
            options = StartOptions(priority=priority)
            await under.engine.start("note", (priority, number), options=options)
        await under.run_until_idle()
        assert [tuple(one) for one in order] == [(0, 3), (5, 1), (5, 4), (100, 0), (100, 2)]


async def test_ready_steps_of_a_better_priority_go_first(url: str) -> None:
    registry = Registry()
    gate = Gate()
    order: list[int] = []

    async def step(priority: int) -> None:
        order.append(priority)
        await gate.wait()

    @registry.workflow("wide", version="1")
    async def wide(ctx: Context, priority: int) -> None:
        await ctx.gather(*[ctx.step(step, priority) for _ in range(3)])

    async with engine_under_test(registry, url=url, max_steps=1) as under:
        await under.engine.start(wide, 100)
        async with running(under) as task:
            await gate.entered.wait()
            await under.engine.start(wide, 1, options=StartOptions(priority=1))
            assert under.worker is not None
            assert await under.worker.run_once() == 1
            for _ in range(4):
                await asyncio.sleep(0)
            gate.opened.set()
            await task
        assert order == [100, 1, 1, 1, 100, 100]


async def test_an_execution_does_not_start_before_its_instant(url: str) -> None:
    order: list[Any] = []
    async with engine_under_test(noting(order), url=url) as under:
        options = StartOptions(not_before=under.clock.now() + HOUR)
        eid = await under.engine.start("note", "later", options=options)
        await under.engine.start("note", "now", options=StartOptions(not_before=under.clock.now()))
        await under.run_until_idle()
        await under.advance(HOUR - timedelta(microseconds=1))
        assert order == ["now"]
        assert (await under.engine.store.info()).delayed_tasks == 1
        assert await under.engine.status(eid) == "pending"
        await under.advance(timedelta(microseconds=1))
        assert order == ["now", "later"]
        assert (await under.engine.execution(eid)).started_at == options.not_before


async def test_queues_are_taken_in_the_order_in_which_they_are_listed(url: str) -> None:
    order: list[Any] = []
    async with engine_under_test(
        noting(order), url=url, queues=["fast", "slow"], max_executions=1
    ) as under:
        for queue in ("slow", "fast", "elsewhere", "slow", "fast"):
            options = StartOptions(priority=1 if queue == "slow" else 100)
            await under.engine.start("note", queue, queue=queue, options=options)
        await under.run_until_idle()
        assert order == ["fast", "fast", "slow", "slow"]
        page = await under.engine.executions(status="pending")
        assert [row.queue for row in page.items] == ["elsewhere"]


async def test_an_execution_stays_on_its_queue_when_it_is_resumed(url: str) -> None:
    registry = Registry()

    @registry.workflow("wait", version="1", queue="slow")
    async def wait(ctx: Context) -> None:
        await ctx.receive("x")

    async with cluster(registry, url) as machines:
        default = await machines.boot()
        slow = await machines.boot(queues=["default", "slow"])
        eid = await default.engine.start(wait)
        await default.run_until_idle()
        assert await default.engine.status(eid) == "pending"
        await slow.run_until_idle()
        assert await default.engine.status(eid) == "suspended"
        await default.engine.signal(eid, "x", None)
        await default.run_until_idle()
        assert await default.engine.status(eid) == "suspended"
        await slow.run_until_idle()
        assert await default.engine.status(eid) == "completed"


def versions(*known: str) -> Registry:
    """Give a registry with some versions of one workflow."""
    registry = Registry()
    for version in known:

        @registry.workflow("w", version=version)
        async def run(ctx: Context, version: str = version) -> str:
            await ctx.receive("go")
            return version

    return registry


async def test_a_version_that_a_worker_lacks_stays_where_it_is_and_is_named_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(versions("1"), url) as machines:
        old = await machines.boot()
        new = await machines.boot(registry=versions("9"), worker=False)
        eid = await new.engine.start("w")
        with caplog.at_level(logging.WARNING, "perdure.worker"):
            for _ in range(5):
                await old.run_until_idle()
                await old.advance(60)
        named = [record for record in caplog.records if "version '9'" in record.getMessage()]
        assert len(named) == 1
        assert await old.engine.journal(eid) == []
        assert await old.engine.status(eid) == "pending"
        await new.start_worker()
        await new.engine.signal(eid, "go", None)
        await new.run_until_idle()
        assert (await old.engine.execution(eid)).result == "9"


async def test_a_missing_version_is_named_even_if_it_comes_right_after_a_look(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker has just found nothing and waits; the task it cannot run is the only news."""
    async with cluster(versions("1"), url) as machines:
        process = await machines.boot(worker=False)
        operator = await machines.boot(registry=versions("9"), worker=False)
        looked, asked = asyncio.Event(), asyncio.Event()

        async def note() -> None:
            (asked if looked.is_set() else looked).set()

        process.wire.after["missing"] = note
        with caplog.at_level(logging.WARNING, "perdure.worker"):
            async with process.engine.worker(upkeep=False) as worker:
                await looked.wait()
                await operator.engine.start("w")
                worker.poke()
                async with retrying(machines.clock):
                    await asked.wait()
        assert "version '9'" in caplog.text


async def test_two_versions_live_side_by_side(url: str) -> None:
    """A live execution keeps its version, and its journal names it."""
    async with cluster(versions("1"), url) as machines:
        first = await machines.boot()
        old = await first.engine.start("w")
        await first.run_until_idle()
        await first.die()
        second = await machines.boot(registry=versions("1", "2"))
        new = await second.engine.start("w")
        for eid in (old, new):
            await second.engine.signal(eid, "go", None)
        await second.run_until_idle()
        rows = [await second.engine.execution(eid) for eid in (old, new)]
        assert [(row.version, row.result) for row in rows] == [("1", "1"), ("2", "2")]
        codes = [entry.provenance.code for entry in await second.engine.journal(old)]
        assert {code.version for code in codes if code is not None} == {"1"}


async def test_a_dequeue_that_fails_is_logged_and_repeated(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[Any] = []
    async with cluster(noting(order), url) as machines:
        process = await machines.boot(worker=False)
        dequeue = process.wire.dequeue
        failures = iter([ValueError("a bug somewhere")])

        async def fail_once(*args: Any, **kept: Any) -> list[Claimed]:
            for failure in failures:
                raise failure
            return await dequeue(*args, **kept)

        process.wire.dequeue = fail_once  # type: ignore[method-assign]
        eid = await process.engine.start("note", 1)
        async with process.engine.worker(upkeep=False), retrying(machines.clock):
            await process.engine.wait(eid)
        assert order == [1]
        assert "a bug somewhere" in caplog.text


async def test_two_engines_in_one_process_work_on_one_file(tmp_path: Path) -> None:
    """What one commits the other sees, runs and is woken by."""
    url = f"sqlite:///{tmp_path / 'test.db'}"
    registry = versions("1")
    async with (
        perdure.open(url, registry) as first,
        perdure.open(url, Registry()) as second,
        first.worker(),
    ):
        eid = await first.start("w")
        await entry_of(second, eid, "execution.suspended")
        await second.signal(eid, "go", None)
        assert await second.result(eid) == "1"
        assert trace(await first.journal(eid)) == trace(await second.journal(eid))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"queues": "default"}, "queues"),
        ({"queues": []}, "queues"),
        ({"queues": ["no spaces"]}, "queue"),
        ({"max_executions": 0}, "max_executions"),
        ({"max_executions": 1.5}, "max_executions"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": True}, "max_steps"),
        ({"worker_id": 7}, "worker_id"),
        ({"worker_id": ""}, "worker_id"),
    ],
)
async def test_settings_out_of_range_are_refused_by_name(
    settings: dict[str, Any], named: str
) -> None:
    async with perdure.open("memory:", Registry(), clock=ManualClock()) as engine:
        with pytest.raises(InvalidArgument, match=named):
            engine.worker(**settings)
