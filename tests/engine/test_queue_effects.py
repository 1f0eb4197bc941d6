"""Enqueue and withdraw: each happens exactly once, and its memo says what came of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Context, InvalidArgument, InvalidName, NotSerializable, Registry
from perdure.ports.commands import Command, Enqueue, Withdraw
from perdure.testing import engine_under_test
from tests.engine.cluster import cluster, holds, nothing_left, retrying, running
from tests.engine.support import result_of, trace_of


def askers() -> Registry:
    """Give workflows that enqueue and withdraw."""
    registry = Registry()

    @registry.workflow("ask", version="1")
    async def ask(ctx: Context) -> list[Any]:
        first = await ctx.enqueue("agents", {"n": 1}, task_key="k")
        again = await ctx.enqueue("agents", {"n": 2}, task_key="k")
        other = await ctx.enqueue("people", {"n": 3}, task_key="k")
        plain = await ctx.enqueue("agents", None)
        await ctx.receive("x")
        gone = [await ctx.withdraw("agents", first), await ctx.withdraw("agents", first)]
        return [first, again, other, plain, *gone]

    @registry.workflow("unawaited", version="1")
    async def unawaited(ctx: Context) -> str:
        ctx.enqueue("agents", "sent")
        return "returned"

    @registry.workflow("bad", version="1")
    async def bad(ctx: Context, what: str) -> str:
        calls: dict[str, Any] = {
            "queue": lambda: ctx.enqueue("no queue", 1),
            "task key": lambda: ctx.enqueue("agents", 1, task_key="a b"),
            "payload": lambda: ctx.enqueue("agents", {1, object()}),
            "withdraw": lambda: ctx.withdraw("agents", "start:x"),
            "kind": lambda: ctx.withdraw("agents", f"start:{ctx.eid}"),
        }
        await calls[what]()
        return "not refused"

    return registry


async def test_a_task_derives_from_kind_execution_and_key(url: str) -> None:
    """C091: one task for a repeated key, two for two queues, each told once."""
    async with cluster(askers(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.run_until_idle()
        tasks = await machines.store.queue_tasks("agents", 10)
        assert [(t.task_id, t.payload, t.kind, t.state) for t in tasks] == [
            (f"delegate:{eid}:k", {"n": 1}, "delegate", "ready"),
            (f"delegate:{eid}:enqueue#3", None, "delegate", "ready"),
        ]
        assert [t.payload for t in await machines.store.queue_tasks("people", 10)] == [{"n": 3}]
        told = [e.body for e in await machines.store.control() if e.type == "task.enqueued"]
        assert len(told) == 3
        await process.engine.signal(eid, "x", None)
        await process.run_until_idle()
        key = f"delegate:{eid}:k"
        plain = f"delegate:{eid}:enqueue#3"
        assert await result_of(process, eid) == [key, key, key, plain, True, False]
        left = [t.task_id for t in await machines.store.queue_tasks("agents", 10)]
        assert left == [plain]  # what nobody waits for is done all the same
        assert (await trace_of(process, eid)).startswith(
            "XS FS enqueue#0/1 FC enqueue#0 FS enqueue#1/1 FC enqueue#1"
        )


async def test_no_worker_runs_a_delegated_task(url: str) -> None:
    async with engine_under_test(askers(), url=url, queues=("default", "agents")) as under:
        eid = await under.engine.start("unawaited")
        await under.run_until_idle()
        assert await result_of(under, eid) == "returned"
        (task,) = await under.engine.store.queue_tasks("agents", 10)
        assert (task.eid, task.state, task.payload) == (eid, "ready", "sent")


@pytest.mark.parametrize("lost", ["never applied", "answer lost", "applied, then dead"])
@pytest.mark.parametrize("kind", [Enqueue, Withdraw], ids=["enqueue", "withdraw"])
async def test_no_trouble_with_the_store_loses_or_doubles_an_effect(
    url: str, kind: type, lost: str
) -> None:
    """C094: each effect is there once, and no attempt is spent."""
    async with cluster(askers(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("ask")
        await process.engine.signal(eid, "x", None)
        hit = asyncio.Event()

        async def cut(commands: list[Command]) -> None:
            if not hit.is_set() and holds(commands, kind):
                hit.set()
                if lost == "never applied":
                    process.wire.down = True
                else:
                    process.wire.answers_lost = 1

        process.wire.before_commit = cut
        async with retrying(machines.clock), running(process) as run:
            await hit.wait()
            if lost == "applied, then dead":
                process.wire.dead.set()
            else:
                process.wire.down = False
                await run
        if lost == "applied, then dead":
            await process.die()
            process = await machines.boot()
            await process.advance(120)
        key = f"delegate:{eid}:k"
        result = await result_of(process, eid)
        assert result == [key, key, key, f"delegate:{eid}:enqueue#3", True, False]
        told = [e for e in await machines.store.control() if e.type == "task.enqueued"]
        assert len(told) == 3
        assert "FF" not in await trace_of(process, eid)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("queue", InvalidName),
        ("task key", InvalidName),
        ("payload", NotSerializable),
        ("withdraw", InvalidArgument),
        ("kind", InvalidArgument),
    ],
)
async def test_bad_input_is_refused_at_the_call(url: str, what: str, error: type) -> None:
    async with cluster(askers(), url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("bad", what)
        await process.run_until_idle()
        row = await process.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == error.__name__
        assert await trace_of(process, eid) == f"XS XF({error.__name__})"
        assert await nothing_left(machines.store)


async def test_answers_come_by_deliver_only(url: str) -> None:
    async with engine_under_test(askers(), url=url) as under:
        eid = await under.engine.start("ask")
        await under.run_until_idle()
        for send in (under.engine.signal(eid, "reply.x", 1), under.engine.broadcast("reply.x", 1)):
            with pytest.raises(InvalidArgument, match=r"engine\.deliver"):
                await send
        for channel in ("x", "", None):
            with pytest.raises(InvalidArgument, match="not a reply channel"):
                await under.engine.deliver(eid, channel, 1)  # type: ignore[arg-type]
        with pytest.raises(InvalidName):
            await under.engine.deliver(eid, "reply.A/B", 1)
        assert await under.engine.deliver(eid, "reply.x", 1) == 1
