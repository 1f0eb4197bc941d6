"""What if the process dies at any single write? Always the same end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import Context, Registry, RetryPolicy, step_info
from tests.engine.support import Machine, Runs, trace

MANY = 200


def everything(runs: Runs) -> Registry:
    """Give a workflow that uses every kind of frame at once."""
    registry = Registry()

    async def add(name: str, value: int) -> int:
        runs[name] += 1
        return value

    def in_thread(name: str) -> str:
        runs[name] += 1
        return step_info().idempotency_key

    async def flaky(name: str) -> str:
        runs[name] += 1
        if step_info().attempt == 1:
            message = "the first attempt fails"
            raise ValueError(message)
        return "ok"

    async def branch(ctx: Context, name: str) -> int:
        first = await ctx.step(add, name, 1, name="branch_step")
        return first + await ctx.step(add, f"{name}-2", 2, name="branch_step")

    @registry.workflow("everything", version="1")
    async def everything_at_once(ctx: Context) -> dict[str, Any]:
        begun = ctx.now()
        chance = ctx.random()
        name = ctx.uuid()
        one = await ctx.step(add, "one", 1)
        key = await ctx.step(in_thread, "thread")
        retried = await ctx.step(
            flaky, "retried", retry=RetryPolicy(max_attempts=2, backoff=timedelta(seconds=30))
        )
        again = await ctx.step(flaky, "again", name="again", retry=RetryPolicy(max_attempts=2))
        branches = await ctx.gather(branch(ctx, "left"), branch(ctx, "right"))
        slept, message = await ctx.gather(
            ctx.sleep(timedelta(hours=1)), ctx.receive("answer", timeout=timedelta(days=1))
        )
        nothing = await ctx.receive("never", timeout=timedelta(minutes=5))
        until = await ctx.sleep_until(begun + timedelta(days=2))
        last = await ctx.step(add, "last", 9, key="last")
        return {
            "stable": [chance == ctx.random(), str(name), key],
            "one": [one, retried, again, branches, last],
            "waits": [message.payload if message else None, nothing],
            "slept": (slept - begun) >= timedelta(hours=1),
            "until": (until - begun) // timedelta(seconds=1),
        }

    return registry


async def drive(machine: Machine, eid: UUID, sent: list[int]) -> None:
    """Do what the outside world does until the execution has ended; repeatable after a crash."""
    under = machine.under
    assert under is not None
    await under.run_until_idle()
    await under.advance(timedelta(minutes=2))
    await under.advance(timedelta(minutes=10))
    if not sent:
        sent.append(await under.engine.signal(eid, "answer", "yes"))
    await under.run_until_idle()
    for _ in range(10):
        if (await under.engine.status(eid)).terminal:
            return
        await under.advance(timedelta(hours=12))


async def run(url: str, crash_at: int, *, before: bool) -> tuple[dict[str, Any], Runs, str, bool]:
    """Run the workflow in a process that dies at one write, then in another that does not."""
    runs = Runs()
    registry = everything(runs)
    machine = await Machine.open(registry, url)
    await machine.boot()
    assert machine.under is not None
    eid = await machine.under.engine.start("everything")
    await machine.bury()
    sent: list[int] = []
    await machine.boot(crash_at=crash_at, before=before)
    died = await machine.until_death(drive(machine, eid, sent))
    if died:
        await machine.bury()
        await machine.boot()
        assert machine.under is not None
        if sent == [] and (await machine.store.mail(eid)) is not None:
            mail = await machine.store.mail(eid)
            row = await machine.store.execution(eid)
            taken = trace(await machine.under.engine.journal(eid)).count("CL receive#0")
            if mail is not None and (mail.messages or taken) and row is not None:
                sent.append(1)  # the message was stored, the sender never learned it
        await drive(machine, eid, sent)
    assert machine.under is not None
    row = await machine.under.engine.execution(eid)
    journal = await machine.under.engine.journal(eid)
    assert row.status == "completed", (row.status, row.blocked, row.error, trace(journal))
    assert [entry.seq for entry in journal] == list(range(1, len(journal) + 1))
    assert [entry.type for entry in journal].count("execution.completed") == 1
    assert journal[-1].type == "execution.completed"
    epochs = [entry.epoch for entry in journal]
    assert epochs == sorted(epochs)
    info = await machine.store.info()
    assert (info.ready_tasks, info.delayed_tasks, info.timers) == (0, 0, 0)
    await machine.bury()
    await machine.store.close()
    return row.result, runs, trace(journal), died


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out what differs from one execution to another."""
    return {**result, "stable": result["stable"][0]}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
async def test_a_crash_at_every_write_leads_to_the_same_end(url: str, *, before: bool) -> None:
    """Whatever write the process dies at, the result is the same and few steps run again."""
    expected, clean_runs, _, died = await run(url, 0, before=before)
    assert not died
    assert max(clean_runs.values()) == 2, "flaky steps run twice by themselves"
    for crash_at in range(1, MANY):
        place = url if url == "memory:" else f"{url}.{crash_at}"
        result, runs, journal, died = await run(place, crash_at, before=before)
        assert comparable(result) == comparable(expected), journal
        extra = runs - clean_runs
        assert set(clean_runs) == set(runs), (crash_at, journal)
        assert sum(extra.values()) <= 2, (crash_at, extra, journal)
        if not died:
            assert crash_at > 20, "the workflow makes many writes"
            return
    pytest.fail("the workflow never got through")
