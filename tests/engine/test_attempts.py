"""How often does a step run? As its policy says; what failed for good fails on every replay."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure import Context, NonRetryableError, Registry, RetryPolicy, StepFailed, step_info
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, entry_of, running
from tests.engine.support import Runs, appends, result_of, trace_of

T0 = datetime.fromisoformat("2030-01-01T00:00:00+00:00")
SECONDS_30 = timedelta(seconds=30)
HOUR = timedelta(hours=1)
AGES = timedelta(minutes=5)


class Broken(Exception):
    """What the steps here raise."""


class Flaky:
    """A step that fails a number of times before it succeeds."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.attempts: list[int] = []

    async def flaky(self) -> str:
        self.attempts.append(step_info().attempt)
        if len(self.attempts) <= self.failures:
            message = f"failure {len(self.attempts)}"
            raise Broken(message)
        return "worked"


def one_step(flaky: Flaky, retry: RetryPolicy) -> Registry:
    registry = Registry()

    @registry.workflow("w", version="1")
    async def one(ctx: Context) -> str:
        return await ctx.step(flaky.flaky, retry=retry)

    return registry


async def test_a_retry_without_delay_happens_at_once(url: str) -> None:
    """All attempts happen in one ownership period; no timer is involved."""
    flaky = Flaky(2)
    registry = one_step(flaky, RetryPolicy(max_attempts=3))
    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await trace_of(under, eid) == (
            "XS FS flaky#0/1 FF flaky#0/1 FS flaky#0/2 FF flaky#0/2 FS flaky#0/3 FC flaky#0 XC"
        )
        assert await result_of(under, eid) == "worked"
        entries = [e for e in await under.engine.journal(eid) if e.fid == "root/flaky#0"]
        assert [entry.provenance.attempt for entry in entries] == [1, 1, 2, 2, 3, 3]
        assert {entry.epoch for entry in entries} == {1}
        failed = entries[1].payload
        assert (failed["error_type"], failed["message"]) == ("Broken", "failure 1")
        assert "raise Broken(message)" in failed["traceback"]
        assert failed["retryable"] is True
        assert "retry_at" not in failed
    assert flaky.attempts == [1, 2, 3]


async def test_a_delay_gives_the_worker_back(url: str) -> None:
    """A wake-up that comes early changes nothing: the next attempt is when it was said to be."""
    flaky = Flaky(1)
    registry = one_step(flaky, RetryPolicy(max_attempts=2, backoff=SECONDS_30))
    failed = "XS FS flaky#0/1 FF flaky#0/1 FU flaky#0 XU[timer]"

    @registry.workflow("other", version="1")
    async def other(ctx: Context) -> str:
        return str(ctx.eid)

    async with engine_under_test(registry, url=url, max_executions=1) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        assert await trace_of(under, eid) == failed
        retry_at = [e.payload.get("retry_at") for e in await under.engine.journal(eid)][2]
        assert retry_at == T0 + SECONDS_30
        assert (await under.engine.execution(eid)).worker_id is None
        elsewhere = await under.engine.start("other")
        await under.run_until_idle()
        assert await under.engine.status(elsewhere) == "completed"
        await under.advance(10)
        await under.engine.signal(eid, "early", None)
        await under.run_until_idle()
        assert await trace_of(under, eid) == f"{failed} | XR(2,message) XU[timer]"
        await under.advance(20 - 1e-6)
        assert len(flaky.attempts) == 1
        await under.advance(1e-6)
        assert (await trace_of(under, eid)).endswith(
            "XU[timer] | XR(3,timer) CL flaky#0 FS flaky#0/2 FC flaky#0 XC"
        )
        started = [e.at for e in await under.engine.journal(eid) if e.type == "frame.started"]
        assert started == [T0, T0 + SECONDS_30]
    assert flaky.attempts == [1, 2]


async def test_a_crash_does_not_move_the_next_attempt(url: str) -> None:
    """The instant is in the failure itself, whether or not the wait was recorded."""
    flaky, gate = Flaky(1), Gate()
    registry = Registry()

    @registry.workflow("w", version="1")
    async def two(ctx: Context) -> list[Any]:
        retry = RetryPolicy(max_attempts=2, backoff=HOUR)
        return list(await ctx.gather(ctx.step(flaky.flaky, retry=retry), ctx.step(gate.wait, 1)))

    async with cluster(registry, url) as machines:
        first = await machines.boot()
        eid = await first.engine.start("w")
        await first.run_to_death(appends("frame.failed", "root/flaky#0"), after=True)
        gate.opened.set()
        second = await machines.boot()
        await second.advance(AGES)
        assert len(flaky.attempts) == 1
        assert (await trace_of(second, eid)).endswith("FC wait#0 FU flaky#0 XU[timer]")
        await second.advance(2 * HOUR)
        assert await result_of(second, eid) == ["worked", 1]
        entries = [e for e in await second.engine.journal(eid) if e.fid == "root/flaky#0"]
        kinds = [e.type.removeprefix("frame.") for e in entries]
        assert kinds == ["started", "failed", "suspended", "fulfilled", "started", "completed"]
        assert entries[4].at == entries[1].payload["retry_at"] == T0 + HOUR
    assert flaky.attempts == [1, 2]


async def test_a_retry_is_served_in_memory_while_another_frame_runs(url: str) -> None:
    flaky, gate = Flaky(1), Gate()
    registry = Registry()

    @registry.workflow("w", version="1")
    async def two(ctx: Context) -> list[Any]:
        retry = RetryPolicy(max_attempts=2, backoff=SECONDS_30)
        return list(await ctx.gather(ctx.step(flaky.flaky, retry=retry), ctx.step(gate.wait, 1)))

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start("w")
        async with running(under) as task:
            await gate.entered.wait()
            under.clock.advance(SECONDS_30)
            await entry_of(under.engine, eid, "frame.completed", "root/flaky#0")
            gate.opened.set()
            await task
        assert await result_of(under, eid) == ["worked", 1]
        assert "XU" not in await trace_of(under, eid)


async def test_delays_grow_to_their_ceiling(url: str) -> None:
    policy = RetryPolicy(max_attempts=5, backoff=2, backoff_factor=3.0, max_backoff=10)
    async with engine_under_test(one_step(Flaky(9), policy), url=url) as under:
        eid = await under.engine.start("w")
        await under.run_until_idle()
        await under.advance(AGES)
        journal = await under.engine.journal(eid)
        at = [(e.at - T0).total_seconds() for e in journal if e.type == "frame.started"]
        assert at == [0, 2, 8, 18, 28]
        assert journal[-1].type == "execution.failed"


async def test_the_jitter_is_decided_once(url: str) -> None:
    """Whoever makes the next attempt, it is at the instant that the failure holds."""
    registry = Registry()

    async def fails_once() -> None:
        if step_info().attempt == 1:
            raise Broken

    @registry.workflow("w", version="1")
    async def jittered(ctx: Context) -> None:
        retry = RetryPolicy(max_attempts=2, backoff=100, jitter=1.0)
        await ctx.step(fails_once, retry=retry)

    async with engine_under_test(registry, url=url) as under:
        eids = [await under.engine.start(jittered) for _ in range(10)]
        await under.run_until_idle()
        await under.kill_worker()
        await under.start_worker()
        await under.advance(HOUR)
        delays = set()
        for eid in eids:
            journal = await under.engine.journal(eid)
            decided = [e.payload["retry_at"] for e in journal if e.type == "frame.failed"]
            assert [e.at for e in journal if e.type == "frame.started"] == [T0, *decided]
            delays.add((decided[0] - T0).total_seconds())
    assert all(100 <= delay <= 200 for delay in delays)
    assert len(delays) > 1


@pytest.mark.cold
async def test_exhaustion_is_the_same_on_every_replay(url: str) -> None:
    registry, runs = Registry(), Runs()
    seen: list[tuple[Any, ...]] = []
    causes: list[BaseException | None] = []
    traces: list[str | None] = []

    async def boom() -> None:
        runs["boom"] += 1
        message = f"boom {runs['boom']}"
        raise Broken(message)

    async def fallback() -> str:
        runs["fallback"] += 1
        return "fallback"

    @registry.workflow("w", version="1")
    async def exhausts(ctx: Context) -> str:
        runs["wf"] += 1
        value = "none"
        try:
            await ctx.step(boom, retry=RetryPolicy(max_attempts=2))
        except StepFailed as failed:
            seen.append((failed.fid, failed.error_type, failed.message, failed.attempts))
            traces.append(failed.traceback)
            causes.append(failed.__cause__)
            value = await ctx.step(fallback)
        await ctx.receive("go")
        await ctx.receive("go")
        return value

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(exhausts)
        await under.run_until_idle()
        for _ in range(2):
            await under.engine.signal(eid, "go", None)
            await under.run_until_idle()
        assert await result_of(under, eid) == "fallback"
    assert runs == {"boom": 2, "fallback": 1, "wf": 3}
    assert seen == [("root/boom#0", "Broken", "boom 2", 2)] * 3
    assert isinstance(causes[0], Broken), "the live run knows the error itself"
    assert causes[1:] == [None, None]
    assert all("Broken: boom 2" in (text or "") for text in traces)


class Refused(NonRetryableError):
    """No further attempt could help."""


@pytest.mark.cold
@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (NonRetryableError("no"), RetryPolicy(max_attempts=5), RetryPolicy(max_attempts=5)),
        (Refused("no"), RetryPolicy(max_attempts=5), RetryPolicy(max_attempts=5)),
        (Broken("no"), RetryPolicy(max_attempts=1), RetryPolicy(max_attempts=5)),
        (
            Broken("no"),
            RetryPolicy(max_attempts=5, retry_on=(OSError, ValueError)),
            RetryPolicy(max_attempts=5),
        ),
    ],
    ids=["non-retryable", "subclass", "policy was changed", "error of another kind"],
)
async def test_a_final_failure_stays_final(
    url: str, error: Exception, before: RetryPolicy, after: RetryPolicy
) -> None:
    """Whatever the policy says today, and although a further run would succeed."""
    registry, runs = Registry(), Runs()
    policies = [before, after]

    async def f() -> str:
        runs["f"] += 1
        if runs["f"] == 1:
            raise error
        return "it would have worked"

    async def n() -> str:
        runs["n"] += 1
        return "n"

    @registry.workflow("w", version="1")
    async def final(ctx: Context) -> str:
        policy = policies[runs["wf"]]
        runs["wf"] += 1
        try:
            value = await ctx.step(f, retry=policy)
        except StepFailed:
            value = await ctx.step(n)
        await ctx.receive("go")
        return value

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(final)
        await under.run_until_idle()
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await result_of(under, eid) == "n"
    assert runs == {"f": 1, "n": 1, "wf": 2}


class Awkward(Exception):
    """An error that can be made again from nothing that is stored of it."""

    def __init__(self, one: object, two: object, three: object) -> None:
        super().__init__(one, two, three)


class Mute(Exception):
    def __str__(self) -> str:
        message = "it does not speak"
        raise RuntimeError(message)

    __repr__ = __str__


@pytest.mark.cold
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Awkward(1, 2, 3), "(1, 2, 3)"),
        (Mute(), "<Mute whose text cannot be made>"),
        (Broken("\ud800"), "\\ud800"),
        (SystemExit(3), "3"),
        (asyncio.CancelledError("by itself"), "by itself"),
        (KeyError("k"), "'k'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
async def test_odd_errors_fail_their_step_only(
    url: str, error: BaseException, message: str, *, in_thread: bool
) -> None:
    """They are kept as type and text, are the same on replay, and the worker goes on."""
    registry = Registry()
    seen: list[tuple[str, str]] = []

    async def fail() -> None:
        raise error

    def fail_in_thread() -> None:
        raise error

    @registry.workflow("w", version="1")
    async def odd(ctx: Context) -> None:
        try:
            await ctx.step(fail_in_thread if in_thread else fail, name="fail")
        except StepFailed as failed:
            seen.append((failed.error_type, failed.message))
        await ctx.receive("go")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(odd)
        await under.run_until_idle()
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "completed"
    assert seen == [(type(error).__name__, message)] * 2


@pytest.mark.parametrize("policy", [{"max_attempts": 0}, {"backoff_factor": 0.5}, {"jitter": 2}])
async def test_a_bad_policy_opens_no_frame(policy: dict[str, Any]) -> None:
    registry = Registry()

    @registry.workflow("w", version="1")
    async def bad(ctx: Context) -> None:
        await ctx.step(Flaky(0).flaky, retry=RetryPolicy(**policy))

    async with engine_under_test(registry) as under:
        eid = await under.engine.start(bad)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"
