"""What if the process dies at any single write of a tree of executions, with a cancel in between?

The workflow uses every kind of frame at once, with children three deep. Whatever write the process
dies at, nothing is left behind, and the end is one that the rules allow.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import Cancelled, ChildFailed, Context, Registry, RetryPolicy, step_info
from perdure.model.execution import ExecutionRow
from tests.engine.support import Machine, Runs, trace

MANY = 300
HOUR = timedelta(hours=1)


def family(runs: Runs) -> Registry:
    """Give workflows ``top``, ``middle`` and ``leaf``; the first starts the others."""
    registry = Registry()

    async def add(name: str, value: int) -> int:
        runs[name] += 1
        return value

    async def flaky(name: str) -> str:
        runs[name] += 1
        if step_info().attempt == 1:
            message = "the first attempt fails"
            raise ValueError(message)
        return "ok"

    @registry.workflow("leaf", version="1")
    async def leaf(ctx: Context, number: int) -> int:
        if number == 2:
            message = "the second leaf fails"
            raise ValueError(message)
        try:
            await ctx.sleep(HOUR)
        except Cancelled:
            async with ctx.shield():
                await ctx.step(add, "undo", number, key=str(number))
            raise
        return await ctx.step(add, "leaf", number, key=str(number))

    @registry.workflow("middle", version="1")
    async def middle(ctx: Context) -> list[Any]:
        await ctx.send("news", "from the middle", scope="global")
        failed = 0
        try:
            await ctx.child(leaf, 2)
        except ChildFailed:
            failed = 1
        pair = await ctx.gather(ctx.child(leaf, 0), ctx.child(leaf, 1))
        return [*pair, failed]

    @registry.workflow("top", version="1")
    async def top(ctx: Context) -> dict[str, Any]:
        ctx.random()
        won, _ = await ctx.claim("the only", "top")
        await ctx.announce("begun", {"at": str(ctx.now())})
        sent = await ctx.send("own", 1)
        policy = RetryPolicy(max_attempts=2, backoff=timedelta(minutes=1))
        parts: list[Any] = await ctx.gather(
            ctx.child(middle),
            ctx.step(flaky, "flaky", retry=policy),
            ctx.receive("own"),
            ctx.receive("news", scope="global"),
            ctx.select(ctx.receive("never"), ctx.sleep(HOUR)),
        )
        news = parts[3].payload if parts[3] else None
        return {"won": won, "sent": sent, "family": parts[0], "flaky": parts[1], "news": news}

    return registry


RESULT = {"won": True, "sent": 1, "family": [0, 1, 1], "flaky": "ok", "news": "from the middle"}


async def drive(machine: Machine, eid: UUID, *, cancel: bool) -> None:
    """Do what the outside world does until all has ended; repeatable after a crash."""
    under = machine.under
    assert under is not None
    await under.run_until_idle()
    await under.advance(timedelta(minutes=2))  # sessions expire, and the retry is due
    if cancel and not (await under.engine.status(eid)).terminal:
        await under.engine.cancel(eid, reason="enough")
    for _ in range(10):
        await under.advance(HOUR)
        if all(row.status.terminal for row in await rows_of(machine)):
            return


async def rows_of(machine: Machine) -> list[ExecutionRow]:
    """List every execution of the tree."""
    assert machine.under is not None
    return list((await machine.under.engine.executions(limit=100)).items)


async def check(machine: Machine, eid: UUID, *, cancel: bool) -> None:
    """Check that all of the tree has ended as the rules allow, and that nothing is left."""
    assert machine.under is not None
    engine = machine.under.engine
    top = await engine.execution(eid)
    told = [(entry.eid, entry.type) for entry in await engine.store.control()]
    for row in await rows_of(machine):
        journal = await engine.journal(row.eid)
        line = trace(journal)
        assert [entry.seq for entry in journal] == list(range(1, len(journal) + 1)), line
        epochs = [entry.epoch for entry in journal]
        assert epochs == sorted(epochs), line
        assert journal[-1].type == f"execution.{row.status}", line
        assert told.count((row.eid, f"execution.{row.status}")) == 1, line
        assert told.count((row.eid, "execution.created")) == 1, line
        if row.eid != eid and top.status == "cancelled":
            assert row.status in ("completed", "failed", "cancelled"), line
    if not cancel or top.status != "cancelled":
        assert (top.status, top.result) == ("completed", RESULT), (top.blocked, top.error)
    assert told.count((eid, "announce.begun")) == 1
    info = await engine.store_info()
    assert (info.ready_tasks, info.delayed_tasks, info.timers) == (0, 0, 0)


async def run(url: str, crash_at: int, *, before: bool, cancel: bool) -> tuple[bool, Runs, str]:
    """Run the tree in a process that dies at one write, then in another that does not."""
    runs = Runs()
    machine = await Machine.open(family(runs), url)
    under = await machine.boot()
    eid = await under.engine.start("top")
    await machine.bury()
    await machine.boot(crash_at=crash_at, before=before)
    died = await machine.until_death(drive(machine, eid, cancel=cancel))
    if died:
        await machine.bury()
        await machine.boot()
        await drive(machine, eid, cancel=cancel)
    await check(machine, eid, cancel=cancel)
    assert machine.under is not None
    line = trace(await machine.under.engine.journal(eid))
    await machine.bury()
    await machine.store.close()
    return died, runs, line


@pytest.mark.timeout(120)
@pytest.mark.parametrize("cancel", [False, True], ids=["to the end", "cancelled"])
@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
async def test_a_crash_at_every_write_of_a_tree_leads_to_an_end_that_is_allowed(
    url: str, *, before: bool, cancel: bool
) -> None:
    died, clean, _ = await run(url, 0, before=before, cancel=cancel)
    assert not died
    assert clean["undo"] == (2 if cancel else 0), "both leaves that sleep clean up"
    for crash_at in range(1, MANY):
        place = url if url == "memory:" else f"{url}.{crash_at}"
        died, runs, line = await run(place, crash_at, before=before, cancel=cancel)
        assert sum((runs - clean).values()) <= 3, (crash_at, runs, line)
        if not died:
            assert crash_at > 25, "the tree makes many writes"
            return
    pytest.fail("the tree never got through")


@pytest.mark.parametrize("cancel", [False, True], ids=["to the end", "cancelled"])
async def test_the_same_order_of_writes_leads_to_the_same_end(url: str, *, cancel: bool) -> None:
    lines: set[tuple[int, str]] = set()
    for crash_at in (0, 0, 12, 12):
        place = url if url == "memory:" else f"{url}.{len(lines)}.{crash_at}"
        _, _, line = await run(f"{place}", crash_at, before=False, cancel=cancel)
        lines.add((crash_at, line))
    assert len(lines) == 2, lines
