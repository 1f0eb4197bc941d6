"""Steps with a queue: another worker runs them, and the execution waits for the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Context,
    DuplicateRegistration,
    InvalidArgument,
    NonRetryableError,
    NotSerializable,
    Registry,
    RetryPolicy,
    StepFailed,
    step_info,
)
from perdure.ports.commands import AckTask, DequeueSteps, Enqueue
from perdure.testing import engine_under_test
from tests.engine.cluster import Cluster, Gate, Process, cluster, holds, nothing_left, running
from tests.engine.support import Runs, result_of, trace_of


@dataclass
class Picture:
    """What a step takes and gives."""

    path: str
    size: int


class Farm:
    """Workflows of a caller, and the steps of a pool that has no workflow."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.gate = Gate()
        self.infos: list[Any] = []
        self.failures = 0
        self.pool = Registry()
        self.caller = Registry()
        for registry in (self.pool, self.caller):
            self._register_steps(registry)
        self._register_workflows()

    def _register_steps(self, registry: Registry) -> None:
        def render(picture: Picture, *, scale: int = 1) -> Picture:
            self.runs["render"] += 1
            self.infos.append(step_info())
            return Picture(picture.path, picture.size * scale)

        async def flaky(error: str) -> str:
            self.runs["flaky"] += 1
            if self.runs["flaky"] <= self.failures:
                raise {"value": ValueError, "final": NonRetryableError}[error]("no luck")
            return "luck"

        async def wait() -> Any:
            self.runs["wait"] += 1
            return await self.gate.wait("waited")

        def odd() -> object:
            return object()

        for step in (render, flaky, wait, odd):
            registry.step()(step)
        if registry is self.caller:
            self.render, self.flaky, self.wait, self.odd = render, flaky, wait, odd

    def _register_workflows(self) -> None:  # noqa: C901 - a list of small functions
        @self.caller.workflow("draw", version="1")
        async def draw(ctx: Context, size: int) -> Any:
            drawn = await ctx.step(self.render, Picture("a.png", size), scale=3, queue="gpu")
            return [type(drawn).__name__, drawn.size]

        @self.caller.workflow("try", version="1")
        async def attempts(ctx: Context, error: str, backoff: float, on: str) -> str:
            kinds = {"all": None, "value": (ValueError,), "key": (KeyError,)}[on]
            retry = RetryPolicy(max_attempts=3, backoff=timedelta(seconds=backoff), retry_on=kinds)
            try:
                return await ctx.step(self.flaky, error, retry=retry, queue="gpu")
            except StepFailed as failed:
                return f"{failed.error_type} after {failed.attempts}"

        @self.caller.workflow("slow", version="1")
        async def slow(ctx: Context) -> Any:
            return await ctx.step(self.wait, queue="gpu", timeout=5)

        @self.caller.workflow("first", version="1")
        async def first(ctx: Context) -> Any:
            place, _ = await ctx.select(ctx.step(self.wait, queue="gpu"), ctx.receive("x"))
            return place

        @self.caller.workflow("odd", version="1")
        async def odd(ctx: Context) -> Any:
            return await ctx.step(self.odd, queue="gpu")

        @self.caller.workflow("many", version="1")
        async def many(ctx: Context, count: int) -> Any:
            steps = [
                ctx.step(self.render, Picture(str(n), n), queue="gpu", key=str(n))
                for n in range(count)
            ]
            return [picture.size for picture in await ctx.gather(*steps)]

        @self.caller.workflow("bad", version="1")
        async def bad(ctx: Context, what: str) -> Any:
            if what == "unregistered":
                return await ctx.step(asyncio.sleep, 0, queue="gpu")
            if what == "queue":
                return await ctx.step(self.odd, queue="no queue")
            return await ctx.step(self.render, "no picture", queue="gpu")


@asynccontextmanager
async def farm_on(url: str) -> AsyncIterator[tuple[Farm, Cluster, Process, Process]]:
    """Give a cluster with a process that has the workflows, and one that only runs steps."""
    farm = Farm()
    async with cluster(farm.caller, url) as machines:
        caller = await machines.boot()
        pool = await machines.boot(registry=farm.pool, queues=("gpu",))
        yield farm, machines, caller, pool


async def turn(*processes: Process) -> None:
    """Let processes run, one after the other, until none of them finds anything."""
    for _ in range(4):
        for process in processes:
            await process.run_until_idle()


async def test_another_worker_runs_it_and_the_frame_shows_where(url: str) -> None:
    async with farm_on(url) as (farm, machines, caller, pool):
        eid = await caller.engine.start("draw", 7)
        await caller.run_until_idle()
        (task,) = await machines.store.queue_tasks("gpu", 10)
        assert (task.task_id, task.kind) == (f"run_step:{eid}:root/render#0:1", "run_step")
        assert (await caller.engine.execution(eid)).suspended_on == ("step:root/render#0",)
        await pool.run_until_idle()
        await caller.run_until_idle()
        assert await result_of(caller, eid) == ["Picture", 21]
        assert await trace_of(caller, eid) == (
            "XS FS render#0/1 FU render#0 XU[step] | XR(2,step) CL render#0 FC render#0 XC"
        )
        assert pool.worker is not None
        (frame,) = (await caller.engine.frames(eid)).children
        assert (frame.status, frame.worker_id) == ("completed", pool.worker.worker_id)
        (info,) = farm.infos
        assert (info.eid, info.fid, info.attempt) == (eid, "root/render#0", 1)
        assert info.idempotency_key == f"{eid}:root/render#0"
        assert await nothing_left(machines.store)


async def test_one_worker_can_do_both(url: str) -> None:
    farm = Farm()
    async with engine_under_test(farm.caller, url=url, queues=("default", "gpu")) as under:
        eid = await under.engine.start("many", 30)
        await under.run_until_idle()
        assert await result_of(under, eid) == list(range(30))
        assert farm.runs["render"] == 30
        assert await nothing_left(under.engine.store)


@pytest.mark.parametrize(
    ("error", "on", "failures", "expected", "runs"),
    [
        ("value", "all", 2, "luck", 3),
        ("value", "value", 2, "luck", 3),
        ("value", "key", 1, "ValueError after 1", 1),
        ("value", "all", 9, "ValueError after 3", 3),
        ("final", "all", 1, "NonRetryableError after 1", 1),
    ],
)
async def test_the_owner_decides_about_retries(
    url: str, error: str, on: str, failures: int, *, expected: str, runs: int
) -> None:
    async with farm_on(url) as (farm, machines, caller, pool):
        farm.failures = failures
        eid = await caller.engine.start("try", error, 0.0, on)
        await turn(caller, pool)
        assert await result_of(caller, eid) == expected
        assert farm.runs["flaky"] == runs
        assert await nothing_left(machines.store)


async def test_a_delayed_retry_waits_for_its_turn(url: str) -> None:
    async with farm_on(url) as (farm, machines, caller, pool):
        farm.failures = 1
        eid = await caller.engine.start("try", "value", 30.0, "all")
        await turn(caller, pool)
        assert (await caller.engine.execution(eid)).suspended_on == ("timer:root/flaky#0",)
        await pool.run_until_idle()
        assert farm.runs["flaky"] == 1
        await caller.advance(30)
        await turn(caller, pool)
        assert await result_of(caller, eid) == "luck"
        journal = await trace_of(caller, eid)
        assert journal.endswith(
            "CL flaky#0 FF flaky#0/1 FU flaky#0 XU[timer] | XR(3,timer) CL flaky#0 "
            "FS flaky#0/2 FU flaky#0 XU[step] | XR(4,step) CL flaky#0 FC flaky#0 XC"
        )
        assert await nothing_left(machines.store)


async def test_a_timeout_is_measured_where_it_runs(url: str) -> None:
    async with farm_on(url) as (farm, _, caller, pool):
        eid = await caller.engine.start("slow")
        await caller.advance(60)  # how long it stands on the queue does not count
        async with running(pool):
            await farm.gate.entered.wait()
            pool.clock.advance(timedelta(seconds=5))
            await pool.run_until_idle()
        await caller.run_until_idle()
        row = await caller.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == "StepFailed"
        assert "StepTimeout" in row.error.message
        farm.gate.opened.set()
        await turn(caller, pool)


async def test_a_value_that_is_not_json_fails_the_step(url: str) -> None:
    async with farm_on(url) as (_, _, caller, pool):
        eid = await caller.engine.start("odd")
        await turn(caller, pool)
        row = await caller.engine.execution(eid)
        assert row.error is not None
        assert "NotSerializable" in row.error.message


@pytest.mark.parametrize("end", ["loses", "is cancelled", "is terminated"])
@pytest.mark.parametrize("begun", [False, True], ids=["waiting", "running"])
async def test_nobody_waits_for_it_any_more(url: str, end: str, begun: bool) -> None:
    """Its task is withdrawn; the outcome of one that runs is dropped."""
    async with farm_on(url) as (farm, machines, caller, pool):
        eid = await caller.engine.start("first")
        await caller.run_until_idle()
        async with running(pool) as run:
            if begun:
                await farm.gate.entered.wait()
            else:
                run.cancel()
            if end == "loses":
                await caller.engine.signal(eid, "x", None)
            elif end == "is cancelled":
                await caller.engine.cancel(eid)
            else:
                await caller.engine.terminate(eid)
            await caller.run_until_idle()
            assert await machines.store.queue_tasks("gpu", 10) == []
            farm.gate.opened.set()
            if begun:
                await run
        await turn(pool, caller)
        assert (await caller.engine.execution(eid)).status.terminal
        assert farm.runs["wait"] == begun
        assert (await trace_of(caller, eid)).count("FC") == 0
        assert await nothing_left(machines.store)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", [DequeueSteps, AckTask], ids=["dequeue", "ack"])
async def test_a_pool_that_dies_loses_and_doubles_nothing(
    url: str, kind: type, after: bool
) -> None:
    async with farm_on(url) as (farm, machines, caller, pool):
        eid = await caller.engine.start("draw", 1)
        await caller.run_until_idle()
        await pool.run_to_death(lambda commands: holds(commands, kind), after=after)
        second = await machines.boot(registry=farm.pool, queues=("gpu",))
        await second.run_until_idle()
        await second.advance(90)  # the session of the dead one expires
        await turn(caller, second)
        assert await result_of(caller, eid) == ["Picture", 3]
        # Killed before its ack, the step runs again; after it, the outcome is there.
        assert farm.runs["render"] == (2 if (kind, after) == (AckTask, False) else 1)
        assert (await trace_of(caller, eid)).count("FS") == 1
        assert await nothing_left(machines.store)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_an_owner_that_dies_enqueues_it_once(url: str, after: bool) -> None:
    async with farm_on(url) as (farm, machines, caller, pool):
        eid = await caller.engine.start("draw", 1)
        await caller.run_to_death(lambda commands: holds(commands, Enqueue), after=after)
        await pool.run_until_idle()
        second = await machines.boot()
        await second.advance(90)
        await turn(second, pool)
        assert await result_of(second, eid) == ["Picture", 3]
        assert farm.runs["render"] == 1
        assert (await trace_of(second, eid)).count("FS") == 1


async def test_a_pool_that_drains_returns_what_runs(url: str) -> None:
    async with farm_on(url) as (farm, machines, caller, pool):
        eid = await caller.engine.start("slow")
        await caller.run_until_idle()
        async with running(pool):
            await farm.gate.entered.wait()
            assert pool.worker is not None
            await pool.worker.drain()
        (task,) = await machines.store.queue_tasks("gpu", 10)
        assert task.state == "ready"
        farm.gate.opened.set()
        second = await machines.boot(registry=farm.pool, queues=("gpu",))
        await turn(second, caller)
        assert await result_of(caller, eid) == "waited"


async def test_a_step_that_no_worker_knows_is_named(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with farm_on(url) as (farm, machines, caller, _):
        eid = await caller.engine.start("draw", 1)
        await caller.run_until_idle()
        stranger = await machines.boot(registry=Registry(), queues=("gpu",))
        await stranger.run_until_idle()
        assert "tasks wait for step 'render'" in caplog.text
        assert (await caller.engine.status(eid)) == "suspended"
        assert farm.runs["render"] == 0


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("unregistered", "sleep is not registered"),
        ("queue", "no queue"),
        ("argument", "argument 'picture' of step 'render' does not fit Picture"),
    ],
)
async def test_bad_input_is_refused_at_the_call(url: str, what: str, words: str) -> None:
    async with farm_on(url) as (_, machines, caller, _):
        eid = await caller.engine.start("bad", what)
        await caller.run_until_idle()
        row = await caller.engine.execution(eid)
        assert row.error is not None
        assert words in row.error.message
        assert await nothing_left(machines.store)


def test_a_step_is_registered_once() -> None:
    registry = Registry()

    @registry.step("other.name")
    def one() -> None: ...

    with pytest.raises(DuplicateRegistration, match="another name"):
        registry.step("other.name")(one)
    with pytest.raises(InvalidArgument):
        registry.step()("no function")  # type: ignore[type-var]
    with pytest.raises(InvalidArgument):
        registry.step("no name!")
    assert list(registry.steps) == ["other.name"]


def test_what_is_never_retried_is_final_elsewhere_too() -> None:
    from perdure.runtime.attempt import describe_classes, is_final  # noqa: PLC0415

    assert is_final(NotSerializable("x", "$", "y"))
    assert not is_final(ValueError())
    assert describe_classes(KeyError())[0] == "builtins.KeyError"
    assert RetryPolicy(retry_on=(LookupError,)).retries_classes(describe_classes(KeyError()))
    assert not RetryPolicy(retry_on=(OSError,)).retries_classes(describe_classes(KeyError()))
