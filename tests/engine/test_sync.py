"""The engine without ``await``: the same surface, from any thread, and errors that come through."""

from __future__ import annotations

import inspect
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

import perdure.sync
from perdure import (
    Actor,
    Context,
    Engine,
    ExecutionFailed,
    InvalidArgument,
    PerdureError,
    Registry,
    UnknownExecution,
    WaitTimeout,
    step_info,
)
from perdure.patterns import delegate, review
from perdure.ports import projection
from perdure.runtime import consumer, queues, reviews

# What an engine has for the parts of the library, and not for its users.
INNER = {"close", "attach", "detach", "acquired", "next_change"}
# What the facade writes out, since it gives another type than the async method.
OTHER_TYPES = {"worker", "consumer", "dequeue", "attach", "run", "stop"}

registry = Registry()


@registry.workflow("echo", version="1")
async def echo(ctx: Context, value: Any) -> Any:
    """Give the argument back, through a step in a thread."""

    def give(given: Any) -> Any:
        return given

    return await ctx.step(give, value)


@registry.workflow("fails", version="1")
async def fails(ctx: Context) -> None:
    """Fail."""
    raise ValueError(f"as asked by {ctx.eid}")


@registry.workflow("asks", version="1")
async def asks(ctx: Context) -> Any:
    """Ask a consumer, then a person."""
    answer = await delegate(ctx, "agents", 21)
    decision = await review(ctx, "people", 1)
    await ctx.publish("s", "item")
    return [answer and answer.payload, decision and decision.verdict]


@pytest.mark.parametrize(
    ("lifted", "core"),
    [
        (perdure.sync.Engine, Engine),
        (perdure.sync.Reviews, reviews.Reviews),
        (perdure.sync.Queues, queues.Queues),
        (perdure.sync.Projection, projection.Projection),
        (perdure.sync.Consumer, consumer.Consumer),
        (perdure.sync.Held, consumer.Held),
    ],
    ids=lambda one: one.__module__,
)
def test_both_surfaces_are_equal(lifted: type, core: type) -> None:
    """Who adds a method to one adds it to the other, with the same parameters."""
    ours, theirs = _methods(lifted), _methods(core)
    inner = {Engine: INNER, consumer.Consumer: {"now_us"}, projection.Projection: {"close"}}
    assert set(ours) == set(theirs) - inner.get(core, set())
    for name, method in ours.items():
        if name not in OTHER_TYPES:
            assert method.__wrapped__ is theirs[name], name
        assert list(inspect.signature(method).parameters) == list(
            inspect.signature(theirs[name]).parameters
        ), name


def _methods(owner: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in inspect.getmembers(owner, callable)
        if not name.startswith("_") and not inspect.isclass(value)
    }


def test_a_script_starts_and_waits(url: str) -> None:
    with perdure.sync.open(url, registry) as engine, engine.worker(worker_id="w") as worker:
        assert worker.worker_id == "w"
        eid = engine.start(echo, {"a": 1}, key="k", by=Actor.human("ada@example.com"))
        assert engine.result(eid, timeout=10) == {"a": 1}
        assert engine.execution(eid).created_by == Actor.human("ada@example.com")
        assert [entry.type for entry in engine.watch(eid)][-1] == "execution.completed"
        assert engine.projection.counts() == {"completed": 1}
        for entry in engine.events():
            if entry.type == "execution.completed":
                break  # an iterator that is left early leaves nothing behind
        failing = engine.start("fails")
        with pytest.raises(ExecutionFailed, match="as asked by"):
            engine.result(failing, timeout=10)
        with pytest.raises(UnknownExecution):
            engine.status(uuid4())


def test_people_and_consumers(url: str) -> None:
    with perdure.sync.open(url, registry) as engine, engine.worker():
        eid = engine.start(asks)
        threads: list[str] = []
        agent = engine.consumer(["agents"], holder="agent")

        def double(task: Any, held: perdure.sync.Held) -> int:
            threads.append(threading.current_thread().name)
            assert (held.task, held.epoch, held.state) == (task, 1, None)
            assert held.renew({"so": "far"}) is held.cancel_requested is False
            agent.stop()
            return int(task.payload) * 2

        agent.run(double)
        assert threads != ["perdure-engine"]
        assert agent.dequeue() is None
        assert agent.attach() == []
        for entry in engine.events():
            if entry.type == "announce.review.requested":
                break
        (pending,) = engine.reviews.pending("people")
        engine.reviews.decide(pending.rid, verdict="fine")
        assert engine.result(eid, timeout=10) == [42, "fine"]
        assert list(engine.stream(eid, "s")) == ["item"]


def test_many_threads_share_one_engine(url: str) -> None:
    with perdure.sync.open(url, registry) as engine, engine.worker():

        def ask(n: int) -> Any:
            return engine.result(engine.start(echo, n), timeout=15)

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(100))) == list(range(100))


def test_a_sync_step_may_use_it_and_an_async_one_may_not() -> None:
    own = Registry()
    engines: list[perdure.sync.Engine] = []

    @own.workflow("outer", version="1")
    async def outer(ctx: Context) -> Any:
        def from_thread() -> Any:
            started = engines[0].start("inner", key=step_info().idempotency_key)
            return engines[0].result(started, timeout=10)

        async def from_loop() -> Any:
            try:
                engines[0].start("inner")
            except InvalidArgument as refused:
                return str(refused)

        return [await ctx.step(from_thread), await ctx.step(from_loop)]

    @own.workflow("inner", version="1")
    async def inner(ctx: Context) -> str:
        return str(ctx.random())[:2]

    with perdure.sync.open("memory:", own) as engine, engine.worker():
        engines.append(engine)
        given, refused = engine.result(engine.start(outer), timeout=10)
        assert given == "0."
        assert "wait for itself" in refused


def test_a_closed_engine_says_so(url: str) -> None:
    with perdure.sync.open(url, registry) as engine:
        eid = engine.start(echo, 1)
        with pytest.raises(WaitTimeout):
            engine.result(eid, timeout=0)
    with pytest.raises(PerdureError, match="closed"):
        engine.status(eid)
    with pytest.raises(InvalidArgument), perdure.sync.open("nonsense:", registry):
        pass


def test_an_engine_does_not_survive_a_fork() -> None:
    with perdure.sync.open("memory:", registry) as engine:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                engine.status(uuid4())
            except InvalidArgument as refused:
                os.write(writing, str(refused).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as told:
            assert "open one in this process" in told.read()


def test_an_interrupt_cancels_the_call() -> None:
    with perdure.sync.open("memory:", registry) as engine:
        eid = engine.start(echo, 1)
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), 2))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            engine.result(eid)
        assert engine.status(eid) == "pending"
