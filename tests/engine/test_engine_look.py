"""What can an application see of its executions? Ends, rows, lists, journals, frames."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import (
    Actor,
    Context,
    Entry,
    ErrorInfo,
    ExecutionFailed,
    ExecutionStatus,
    FrameNode,
    InvalidArgument,
    Registry,
    RetryPolicy,
    Site,
    StartOptions,
    WaitTimeout,
    step_info,
)
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import Gate, running

ADA = Actor.human("ada@example.com")
SECOND = timedelta(seconds=1)


async def flaky(value: int) -> int:
    if step_info().attempt == 1:
        message = "the first attempt fails"
        raise ValueError(message)
    return value


async def broken() -> None:
    message = "for good"
    raise KeyError(message)


def samples(gate: Gate | None = None) -> Registry:
    """Give workflows with all kinds of ends."""
    registry = Registry()
    gate = gate or Gate()

    @registry.workflow("value", version="1")
    async def value(ctx: Context, result: Any = None) -> Any:
        del ctx
        return result

    @registry.workflow("failing", version="1")
    async def failing(ctx: Context) -> None:
        await ctx.step(broken)

    @registry.workflow("wait", version="1")
    async def wait(ctx: Context) -> Any:
        message = await ctx.receive("x")
        return message.payload if message else None

    @registry.workflow("gated", version="1")
    async def gated(ctx: Context) -> Any:
        return await ctx.step(gate.wait, "done", key="k")

    @registry.workflow("rich", version="7")
    async def rich(ctx: Context) -> Any:
        ctx.now()
        retry = RetryPolicy(max_attempts=2, backoff=SECOND)
        value = await ctx.step(flaky, 3, retry=retry, key="k")
        message = await ctx.receive("x", timeout=60)
        await ctx.sleep(5)
        return [value, message.payload if message else None]

    return registry


# -- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, {"a": [1, "ü"]}])
async def test_result_gives_what_the_function_returned(url: str, value: Any) -> None:
    async with engine_under_test(samples(), url=url) as under:
        eid = await under.engine.start("value", value)
        early = asyncio.create_task(under.engine.result(str(eid)))
        await under.run_until_idle()
        assert await early == value
        assert await under.engine.result(eid) == value
        row = await under.engine.wait(eid)
        assert (row.status, row.result, row.error) == ("completed", value, None)


async def test_result_raises_how_the_execution_failed(url: str) -> None:
    async with engine_under_test(samples(), url=url) as under:
        eid = await under.engine.start("failing")
        await under.run_until_idle()
        with pytest.raises(ExecutionFailed, match=r"KeyError.*for good") as failed:
            await under.engine.result(eid)
        assert (failed.value.eid, failed.value.error_type) == (eid, "StepFailed")
        row = await under.engine.wait(eid)
        assert row.status == "failed"
        assert row.error == ErrorInfo("StepFailed", failed.value.message)


@pytest.mark.parametrize("timeout", [5, 5.0, timedelta(seconds=5)])
async def test_a_wait_ends_before_the_execution_does(url: str, timeout: Any) -> None:
    async with engine_under_test(samples(), url=url) as under:
        eid = await under.engine.start("wait")
        await under.run_until_idle()
        waits = [
            asyncio.create_task(under.engine.result(eid, timeout=timeout)),
            asyncio.create_task(under.engine.wait(eid, timeout=timeout)),
        ]
        await under.advance(4.999)
        assert not any(wait.done() for wait in waits)
        await under.advance(0.001)
        for wait in waits:
            with pytest.raises(WaitTimeout) as late:
                await wait
            assert (late.value.eid, late.value.timeout_s) == (eid, 5)
        assert await under.engine.status(eid) == "suspended"
        await under.engine.signal(eid, "x", "on it goes")
        await under.run_until_idle()
        assert await under.engine.result(eid, timeout=timeout) == "on it goes"


async def test_a_timeout_of_zero_asks_once(url: str) -> None:
    async with engine_under_test(samples(), url=url) as under:
        eid = await under.engine.start("value", 1)
        with pytest.raises(WaitTimeout):
            await under.engine.result(eid, timeout=0)
        await under.run_until_idle()
        assert await under.engine.result(eid, timeout=0) == 1


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "soon", True])
async def test_timeouts_out_of_range_are_refused(timeout: Any) -> None:
    async with engine_under_test(samples()) as under:
        eid = await under.engine.start("value")
        with pytest.raises(InvalidArgument, match="timeout"):
            await under.engine.wait(eid, timeout=timeout)


async def test_a_wait_that_is_cancelled_leaves_nothing_behind(url: str) -> None:
    async with engine_under_test(samples(), url=url) as under:
        eid = await under.engine.start("value", 1)
        waits = [asyncio.create_task(under.engine.result(eid, timeout=9)) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await under.run_until_idle()
        assert await asyncio.gather(*waits[1:]) == [1, 1]
        with pytest.raises(asyncio.CancelledError):
            await waits[0]


# -- rows and lists --------------------------------------------------------------------------


async def test_a_row_tells_where_an_execution_is(url: str) -> None:
    gate = Gate()
    async with engine_under_test(samples(gate), url=url) as under:
        began = under.clock.now()
        eid = await under.engine.start("gated", by=ADA)
        assert under.worker is not None
        under.clock.advance(1)
        async with running(under) as task:
            await gate.entered.wait()
            row = await under.engine.execution(eid)
            assert (row.status, row.epoch) == (ExecutionStatus.RUNNING, 1)
            assert row.worker_id == under.worker.worker_id
            assert row.started_at == row.updated_at == began + SECOND
            under.clock.advance(1)
            gate.opened.set()
            await task
        row = await under.engine.execution(eid)
        assert (row.status, row.worker_id, row.ended_at) == ("completed", None, began + 2 * SECOND)
        assert await under.engine.status(eid) is ExecutionStatus.COMPLETED


async def start_many_kinds(under: EngineUnderTest) -> dict[str, Any]:
    """Start executions that differ in all that a list can be filtered by."""
    engine, eids = under.engine, {}
    eids["done"] = await engine.start("value", 1, key="invoice:1")
    eids["failed"] = await engine.start("failing", options=StartOptions(tags={"team": "red"}))
    tags = {"team": "blue", "city": "Köln"}
    eids["waiting"] = await engine.start("wait", options=StartOptions(tags=tags))
    await under.run_until_idle()
    under.clock.advance(10)
    eids["pending"] = await engine.start("value", 2, queue="nobody", key="invoice:2")
    return eids


AT_0 = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["pending", "waiting", "failed", "done"]),
        ({"status": "completed"}, ["done"]),
        ({"status": ["failed", ExecutionStatus.PENDING]}, ["pending", "failed"]),
        ({"status": []}, []),
        ({"workflow": "value"}, ["pending", "done"]),
        ({"workflow": "val"}, []),
        ({"tags": {"team": "red"}}, ["failed"]),
        ({"tags": {"team": "blue", "city": "Köln"}}, ["waiting"]),
        ({"tags": {"team": "blue", "city": "Bonn"}}, []),
        ({"tags": {"tea": "blue"}}, []),
        ({"text": "invoice"}, ["pending", "done"]),
        ({"text": "öl"}, ["waiting"]),
        ({"text": "ail"}, ["failed"]),
        ({"text": "%"}, []),
        ({"since": AT_0 + SECOND}, ["pending"]),
        ({"until": AT_0 + SECOND}, ["waiting", "failed", "done"]),
        ({"since": AT_0, "until": AT_0}, []),
        ({"limit": 2}, ["pending", "waiting"]),
        ({"workflow": "value", "text": "2"}, ["pending"]),
    ],
)
async def test_a_list_can_be_filtered(url: str, filters: dict[str, Any], found: list[str]) -> None:
    async with engine_under_test(samples(), url=url) as under:
        eids = await start_many_kinds(under)
        page = await under.engine.executions(**filters)
        assert [row.eid for row in page.items] == [eids[name] for name in found]
        for row in page.items:
            assert row == await under.engine.execution(row.eid)


async def test_pages_show_everything_once_while_the_list_grows(url: str) -> None:
    async with engine_under_test(samples(), url=url) as under:
        eids = await under.engine.start_many("value", [[number] for number in range(50)])
        seen: list[Any] = []
        cursor = None
        while True:
            page = await under.engine.executions(limit=7, cursor=cursor)
            seen += [row.eid for row in page.items]
            await under.engine.start("value")
            await under.run_until_idle()
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == list(reversed(eids))


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 501}, "limit"),
        ({"limit": "7"}, "limit"),
        ({"status": "done"}, "'done'.*completed"),
        ({"status": 7}, "status"),
        ({"since": datetime(2030, 1, 1)}, "since"),  # noqa: DTZ001 - refused
        ({"until": "today"}, "until"),
        ({"cursor": "xyz"}, "cursor"),
        ({"tags": {"team": 1}}, "tags"),
        ({"tags": "team"}, "tags"),
        ({"text": 7}, "text"),
        ({"workflow": "\ud800"}, "workflow"),
    ],
)
async def test_filters_out_of_range_are_refused(filters: dict[str, Any], says: str) -> None:
    async with engine_under_test(samples()) as under:
        with pytest.raises(InvalidArgument, match=says):
            await under.engine.executions(**filters)


# -- journal and frames ----------------------------------------------------------------------


async def run_rich(under: EngineUnderTest) -> Any:
    """Run the workflow with every kind of frame to its end."""
    eid = await under.engine.start("rich")
    await under.run_until_idle()
    await under.advance(SECOND)
    await under.engine.signal(eid, "x", "hello", by=ADA)
    await under.run_until_idle()
    await under.advance(5)
    assert await under.engine.status(eid) == "completed"
    return eid


async def test_entries_tell_who_did_what_where_when_and_with_which_code(url: str) -> None:
    async with engine_under_test(samples(), url=url) as under:
        began = under.clock.now()
        eid = await run_rich(under)
        journal = await under.engine.journal(eid)
        assert [entry.seq for entry in journal] == list(range(1, len(journal) + 1))
        assert under.worker is not None
        here = Site.here()
        for entry in journal:
            provenance = entry.provenance
            assert provenance.actor == Actor.worker(under.worker.worker_id)
            assert provenance.site is not None
            assert (provenance.site.host, provenance.site.pid) == (here.host, here.pid)
            assert provenance.site.worker_id == under.worker.worker_id
            assert provenance.site.epoch == entry.epoch
            assert provenance.code is not None
            assert (provenance.code.workflow, provenance.code.version) == ("rich", "7")
            assert (provenance.attempt, provenance.at) == (entry.attempt, entry.at)
        by_type: dict[str, list[Entry]] = {}
        for entry in journal:
            by_type.setdefault(entry.type, []).append(entry)
        failed = by_type["frame.failed"][0]
        assert (failed.fid, failed.attempt, failed.at) == ("root/flaky:k", 1, began)
        assert failed.payload["error_type"] == "ValueError"
        assert failed.payload["retry_at"] == began + SECOND
        assert "in flaky" in failed.payload["traceback"]
        code = failed.provenance.code
        assert code is not None
        assert (code.frame_kind, code.frame_name) == ("step", "flaky")
        message = by_type["frame.fulfilled"][1].payload["message"]
        assert (message["seq"], message["payload"]) == (1, "hello")
        assert message["sent_by"]["id"] == "ada@example.com"
        assert [e.payload["epoch"] for e in by_type["execution.resumed"]] == [2, 3, 4]
        assert by_type["execution.completed"][0].payload == {"value": [3, "hello"]}
        tail = await under.engine.journal(eid, after=len(journal) - 2)
        assert tail == journal[-2:]


async def test_frames_are_a_tree(url: str) -> None:
    async with engine_under_test(samples(), url=url) as under:
        began = under.clock.now()
        eid = await run_rich(under)
        root = await under.engine.frames(eid)
        assert (root.fid, root.kind, root.name, root.status) == (
            "root",
            "root",
            "rich",
            "completed",
        )
        assert (root.value, root.started_at, root.waits_on) == ([3, "hello"], began, None)
        fids = [frame.fid for frame in root.children]
        assert fids == ["root/now#0", "root/flaky:k", "root/receive#0", "root/sleep#0"]
        flaky_frame, receive = root.children[1:3]
        assert (flaky_frame.status, flaky_frame.attempts, flaky_frame.value) == ("completed", 2, 3)
        assert flaky_frame.error == ErrorInfo("ValueError", "the first attempt fails")
        assert (receive.kind, receive.status, receive.value) == ("receive", "completed", "hello")


async def test_frames_show_what_an_execution_waits_for(url: str) -> None:
    async with engine_under_test(samples(), url=url) as under:
        eid = await under.engine.start("rich")
        root = await under.engine.frames(eid)
        assert (root.status, root.children) == ("pending", ())
        await under.run_until_idle()
        root = await under.engine.frames(eid)
        frame: FrameNode = root.children[1]
        assert (root.status, frame.status, frame.attempts) == ("suspended", "waiting", 1)
        assert root.waits_on == frame.waits_on == "timer:root/flaky:k"
        assert frame.ended_at is None
