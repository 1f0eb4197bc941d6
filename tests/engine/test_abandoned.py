"""What becomes of the frames of a gather that failed? They consume and deliver nothing any more."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from datetime import timedelta
from typing import Any

from perdure import Context, Registry, RetryPolicy, StepFailed
from perdure.ports.commands import Command
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, Process, cluster, running
from tests.engine.support import Runs, appends, result_of, trace_of

HOUR = timedelta(hours=1)
AGES = timedelta(minutes=5)


async def give(value: Any) -> Any:
    return value


async def boom() -> None:
    message = "boom"
    raise ValueError(message)


async def heard(ctx: Context, **options: Any) -> Any:
    message = await ctx.receive("x", **options)
    return message.payload if message else None


async def notice_mail(process: Process) -> None:
    """Let the worker of a process learn of mail, and read it."""
    assert process.worker is not None
    await process.worker.beat_once()
    await asyncio.wait(process.worker._tasks)  # noqa: SLF001 - what reads the mail


async def test_an_abandoned_wait_consumes_nothing(url: str) -> None:
    """The message goes to the next one who waits, live and on every replay."""
    registry = Registry()

    @registry.workflow("w", version="1")
    async def catches(ctx: Context) -> list[Any]:
        with contextlib.suppress(StepFailed):
            await ctx.gather(heard(ctx), ctx.sleep(60), ctx.step(boom))
        return [await heard(ctx), await heard(ctx)]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(catches)
        await under.run_until_idle()
        journal = await trace_of(under, eid)
        assert (
            journal
            == (
                "XS FS sleep#0/1 FS boom#0/1 FF boom#0/1 FS receive#0/1 "
                "FA receive#0 FA sleep#0 FS receive#1/1 FU receive#1 XU[channel]"
            )
            or journal.count("FA") == 2
        )
        await under.advance(HOUR)
        assert (await trace_of(under, eid)) == journal, "the abandoned sleep wakes nobody"
        for payload in (1, 2):
            await under.engine.signal(eid, "x", payload)
            await under.run_until_idle()
        assert await result_of(under, eid) == [1, 2]


async def test_an_abandoned_step_delivers_nothing(url: str) -> None:
    """An async one is cancelled; its frame has ended for good."""
    registry, runs, gate = Registry(), Runs(), Gate()

    async def slow() -> None:
        runs["slow"] += 1
        try:
            await gate.wait()
        except asyncio.CancelledError:
            runs["cancelled"] += 1
            raise

    async def fail() -> None:
        await gate.entered.wait()
        raise ValueError

    @registry.workflow("w", version="1")
    async def catches(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.step(slow), ctx.step(fail))
        except StepFailed as failed:
            await ctx.receive("go")
            return failed.fid
        return ""

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(catches)
        await under.run_until_idle()
        assert (await trace_of(under, eid)) == (
            "XS FS slow#0/1 FS fail#0/1 FF fail#0/1 FA slow#0 "
            "FS receive#0/1 FU receive#0 XU[channel]"
        )
        nodes = {node.fid: node.status for node in (await under.engine.frames(eid)).children}
        assert nodes["root/slow#0"] == "abandoned"
        gate.opened.set()
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await result_of(under, eid) == "root/fail#0"
    assert runs == {"slow": 1, "cancelled": 1}


async def test_everything_below_a_branch_is_abandoned_with_it(url: str) -> None:
    """Its frames, those of its own branches, and retries that wait; its local cleanup may run."""
    registry, runs = Registry(), Runs()
    retry = RetryPolicy(max_attempts=2, backoff=HOUR)

    async def branch(ctx: Context) -> None:
        try:
            await ctx.gather(ctx.sleep(HOUR), inner(ctx), ctx.step(boom, key="later", retry=retry))
        except Exception:
            runs["caught"] += 1
            raise
        finally:
            runs["closed"] += 1
            await ctx.step(give, "no frame opens in an abandoned branch")

    async def inner(ctx: Context) -> None:
        await heard(ctx, key="inner")

    async def fail(ctx: Context) -> None:
        await ctx.sleep(10, key="first")
        message = "the function itself"
        raise RuntimeError(message)

    @registry.workflow("w", version="1")
    async def catches(ctx: Context) -> str:
        try:
            await ctx.gather(branch(ctx), fail(ctx))
        except RuntimeError as error:
            await ctx.receive("go")
            return str(error)
        return ""

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(catches)
        await under.run_until_idle()
        await under.advance(10)
        journal = (await trace_of(under, eid)).split(" CL sleep:first ")[1].split()
        abandoned = {fid for word, fid in itertools.pairwise(journal) if word == "FA"}
        assert abandoned == {"sleep#0", "receive:inner", "boom:later"}
        assert journal[-1] == "XU[channel]"
        await under.advance(2 * HOUR)
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await result_of(under, eid) == "the function itself"
    assert "caught" not in runs


async def test_an_abandoned_thread_delivers_nothing(url: str) -> None:
    registry, go = Registry(), threading.Event()
    entered = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow() -> str:
        loop.call_soon_threadsafe(entered.set)
        go.wait()
        return "late"

    async def fail() -> None:
        await entered.wait()
        raise ValueError

    @registry.workflow("w", version="1")
    async def catches(ctx: Context) -> Any:
        with contextlib.suppress(StepFailed):
            await ctx.gather(ctx.step(slow), ctx.step(fail))
        return await ctx.step(lambda: "next", name="next")

    async with engine_under_test(registry, url=url, max_steps=2) as under:
        eid = await under.engine.start(catches)
        await under.run_until_idle()
        go.set()
        assert await result_of(under, eid) == "next"
        assert (await trace_of(under, eid)).endswith("FA slow#0 FS next#0/1 FC next#0 XC")


async def test_a_crash_before_the_abandoning_is_stored_changes_nothing(url: str) -> None:
    """The failure is in the journal, so a replay abandons the same frames."""
    registry = Registry()

    @registry.workflow("w", version="1")
    async def catches(ctx: Context) -> list[Any]:
        with contextlib.suppress(StepFailed):
            await ctx.gather(heard(ctx), ctx.sleep(60), ctx.step(boom))
        return [await heard(ctx)]

    async with cluster(registry, url) as machines:
        first = await machines.boot()
        eid = await first.engine.start(catches)
        await first.run_to_death(appends("frame.abandoned", "root/receive#0"), after=False)
        assert (await trace_of(first, eid)).count("FF boom#0/1") == 1
        second = await machines.boot()
        await second.engine.signal(eid, "x", "for the second receive")
        await second.advance(AGES)
        assert await result_of(second, eid) == ["for the second receive"]
        assert (await trace_of(second, eid)).count("FA") == 2


async def test_a_message_that_comes_while_the_failure_is_stored_is_not_lost(url: str) -> None:
    """The receive has lost when the step has failed, although nobody was told of it yet."""
    registry, gate = Registry(), Gate()

    async def fail() -> None:
        await gate.wait()
        raise ValueError

    @registry.workflow("w", version="1")
    async def catches(ctx: Context) -> list[Any]:
        with contextlib.suppress(StepFailed):
            await ctx.gather(heard(ctx), ctx.step(fail))
        return [await heard(ctx, timeout=HOUR)]

    async with cluster(registry, url) as machines:
        process, other = await machines.boot(), await machines.boot(worker=False)
        eid = await process.engine.start(catches)

        async def send_meanwhile(commands: list[Command]) -> None:
            if appends("frame.failed", "root/fail#0")(commands):
                process.wire.before_commit = None
                await other.engine.signal(eid, "x", "here")
                await notice_mail(process)

        process.wire.before_commit = send_meanwhile
        async with running(process) as task:
            await gate.entered.wait()
            gate.opened.set()
            await task
        assert (await trace_of(process, eid)).endswith(
            "FF fail#0/1 CL receive#0 FA receive#0 FS receive#1/1 CL receive#1 XC"
        )
        assert await result_of(process, eid) == ["here"]


async def test_a_replay_gives_a_message_of_an_abandoned_receive_to_the_next(url: str) -> None:
    """Whether the process died before the abandoning was stored, or later."""
    registry, gates = Registry(), {"other": Gate(), "fail": Gate()}

    async def fail() -> None:
        await gates["fail"].wait()
        raise ValueError

    @registry.workflow("w", version="1")
    async def catches(ctx: Context) -> list[Any]:
        with contextlib.suppress(StepFailed):
            other = ctx.step(gates["other"].wait, name="other")
            await ctx.gather(heard(ctx), ctx.step(fail), other)
        await ctx.receive("later")
        return [await heard(ctx)]

    async with cluster(registry, url) as machines:
        process, other = await machines.boot(), await machines.boot(worker=False)
        eid = await process.engine.start(catches)

        async def fail_and_send(commands: list[Command]) -> None:
            if appends("frame.completed", "root/other#0")(commands):
                process.wire.before_commit = None
                gates["fail"].opened.set()
                await other.engine.signal(eid, "x", "here")
                await notice_mail(process)

        process.wire.before_commit = fail_and_send
        gates["other"].opened.set()
        await process.run_to_death(appends("frame.failed", "root/fail#0"), after=True)
        lost = await trace_of(process, eid)
        assert lost.endswith("FF fail#0/1 CL receive#0")
        second = await machines.boot()
        await second.advance(AGES)
        assert (
            (await trace_of(second, eid))
            .removeprefix(lost)
            .startswith(" | XR(2,recovery) FA receive#0 FS receive#1/1 FU receive#1")
        )
        await second.die()
        third = await machines.boot()
        await third.engine.signal(eid, "later", None)
        await third.run_until_idle()
        assert await result_of(third, eid) == ["here"]


async def test_an_abandoned_frame_cannot_be_awaited(url: str) -> None:
    registry = Registry()

    @registry.workflow("w", version="1")
    async def waits_again(ctx: Context) -> str:
        frame = ctx.receive("x")
        with contextlib.suppress(StepFailed):
            await ctx.gather(frame, ctx.step(boom))
        await frame
        return "never"

    @registry.workflow("v", version="1")
    async def gathers_again(ctx: Context) -> str:
        frame = ctx.receive("x")
        with contextlib.suppress(StepFailed):
            await ctx.gather(frame, ctx.step(boom))
        await ctx.gather(frame, ctx.sleep(60))
        return "never"

    async def also_waits(frame: Any) -> None:
        await frame

    @registry.workflow("u", version="1")
    async def shares(ctx: Context) -> str:
        frame = ctx.receive("x")
        other = ctx.gather(also_waits(frame))
        with contextlib.suppress(StepFailed):
            await ctx.gather(frame, ctx.step(boom))
        await other
        return "never"

    async with engine_under_test(registry, url=url) as under:
        for workflow in (waits_again, gathers_again, shares):
            eid = await under.engine.start(workflow)
            await under.run_until_idle()
            row = await under.engine.execution(eid)
            assert row.error is not None, await trace_of(under, eid)
            assert row.error.type == "InvalidArgument"
            assert "was abandoned" in row.error.message
