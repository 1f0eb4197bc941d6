"""What becomes of a saga if its process dies, or somebody cancels it, at any single commit?

Whatever happens: an action that completed is undone exactly if the saga did not succeed, no other
one is, and nothing runs more often than a crash explains.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from perdure import (
    AlreadyClosed,
    Context,
    Engine,
    EngineConfig,
    Entry,
    NonRetryableError,
    Registry,
    RetryPolicy,
    step_info,
)
from perdure.patterns import saga
from perdure.testing import engine_under_test
from tests.engine.cluster import cluster, nothing_left, turns
from tests.engine.support import Machine, Runs, trace

if TYPE_CHECKING:
    from perdure.ports.commands import Command

MANY = 100
HOUR = timedelta(hours=1)
PATIENT = RetryPolicy(max_attempts=3, backoff=HOUR)

# What happens, and how the saga ends: `act` cancels while the action b waits for its second
# attempt, `undo` while the undo of b does.
ENDS = {
    ("succeeds", "never"): "completed",
    ("succeeds", "act"): "cancelled",
    ("fails", "never"): "failed",
    ("fails", "act"): "cancelled",
    ("fails", "undo"): "failed",
}


async def nothing(_: str) -> None:
    """Do nothing while something runs."""


def trips(runs: Runs, c: str, during: Callable[[str], Awaitable[None]] = nothing) -> Registry:
    """Give a saga of the actions a, b and c; b and its undo need two attempts, and c may fail.

    `during` is awaited inside each attempt: ``a``, ``b``, ``b2``, ``c``, ``-b`` for an undo …
    """
    registry = Registry()

    async def begin(what: str) -> None:
        runs[what] += 1
        attempt = step_info().attempt
        await during(what if attempt == 1 else f"{what}{attempt}")

    async def do_a() -> str:
        await begin("a")
        return "a"

    async def do_b() -> str:
        await begin("b")
        if step_info().attempt == 1:
            raise ValueError("b is not ready")
        return "b"

    async def do_c() -> str:
        await begin("c")
        if c == "fails":
            raise NonRetryableError("c is sold out")
        return "c"

    async def undo(what: str) -> None:
        await begin(f"-{what}")
        if what == "b" and step_info().attempt == 1:
            raise ValueError("the undo of b is not ready")

    @registry.workflow("trip", version="1")
    async def trip(ctx: Context) -> list[str]:
        pairs = [(do_a, undo), (do_b, undo), (do_c, undo)]
        return await saga(ctx, pairs, act_retry=PATIENT, undo_retry=PATIENT)

    return registry


async def drive(machine: Machine, eid: UUID, cancel: str) -> None:
    """Do what the outside world does until the saga has ended; repeatable after a crash."""
    under = machine.under
    assert under is not None
    await under.run_until_idle()
    await under.advance(timedelta(minutes=2))  # sessions expire
    for moment in ("act", "undo"):
        if cancel == moment and not (await under.engine.status(eid)).terminal:
            await under.engine.cancel(eid, reason="enough")
        await under.advance(HOUR)
    await under.advance(2 * HOUR)


def places(journal: Sequence[Entry], kind: str, what: str) -> list[str]:
    """List the positions of the actions (``act``) or undos of which there is such an entry."""
    begin = f"root/saga-{what}:"
    return [e.fid.removeprefix(begin) for e in journal if e.type == kind and begin in e.fid]


def check(journal: Sequence[Entry], status: str) -> None:
    """Check that what was completed is undone, in reverse, exactly if it has to be."""
    line = trace(journal)
    acted = places(journal, "frame.completed", "act")
    undone = places(journal, "frame.completed", "undo")
    assert acted == sorted(set(acted)), line
    assert undone == ([] if status == "completed" else acted[::-1]), line
    begun = [n for n, e in enumerate(journal) if e.type == "frame.started" and "-undo:" in e.fid]
    for number in begun:
        action = journal[number].fid.replace("-undo:", "-act:")
        before = journal[:number]
        assert any((e.type, e.fid) == ("frame.completed", action) for e in before), line
        later = journal[number:]
        assert not places(later, "frame.started", "act"), line
    assert [entry.seq for entry in journal] == list(range(1, len(journal) + 1)), line
    assert journal[-1].type == f"execution.{status}", line


async def run(
    url: str, c: str, cancel: str, crash_at: int, *, before: bool
) -> tuple[bool, Runs, str]:
    """Run the saga in a process that dies at one write, then in another that does not."""
    runs = Runs()
    machine = await Machine.open(trips(runs, c), url)
    eid = await (await machine.boot()).engine.start("trip")
    await machine.bury()
    under = await machine.boot(crash_at=crash_at, before=before)
    died = await machine.until_death(drive(machine, eid, cancel))
    if died:
        await machine.bury()
        under = await machine.boot()
        await drive(machine, eid, cancel)
    journal, status = await under.engine.journal(eid), await under.engine.status(eid)
    assert status == ENDS[c, cancel], trace(journal)
    check(journal, status)
    assert await nothing_left(machine.store)
    await machine.bury()
    await machine.store.close()
    return died, runs, trace(journal)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(("c", "cancel"), ENDS)
async def test_a_crash_at_any_write_changes_nothing(
    url: str, c: str, cancel: str, *, before: bool
) -> None:
    died, clean, _ = await run(url, c, cancel, 0, before=before)
    assert not died
    for crash_at in range(1, MANY):
        place = url if url == "memory:" else f"{url}.{crash_at}"
        died, runs, line = await run(place, c, cancel, crash_at, before=before)
        assert set(runs) == set(clean), (crash_at, line)
        assert (runs - clean).total() <= died, (crash_at, runs, line)
        assert not clean - runs, (crash_at, runs, line)
        if not died:
            assert crash_at > 6, "the saga makes many writes"
            return
    pytest.fail("the saga never got through")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("c", ["succeeds", "fails"])
async def test_a_cancel_at_any_commit_leaves_nothing_half_done(url: str, c: str) -> None:
    """The cancel is stored right after a commit: while the saga starts, acts or undoes."""
    ends = set()
    for number in range(1, MANY):
        place = url if url == "memory:" else f"{url}.{number}"
        runs, left = Runs(), [number]
        cancels: list[asyncio.Task[None]] = []
        async with cluster(trips(runs, c), place) as machines:
            process = await machines.boot()
            eid = await process.engine.start("trip")

            async def cancel(
                _: list[Command],
                engine: Engine = process.engine,
                eid: UUID = eid,
                left: list[int] = left,
                cancels: list[asyncio.Task[None]] = cancels,
            ) -> None:
                left[0] -= 1
                if left[0] == 0:
                    cancels.append(asyncio.create_task(engine.cancel(eid)))

            process.wire.before_commit = cancel
            await process.advance(4 * HOUR)
            journal, row = await process.engine.journal(eid), await process.engine.execution(eid)
            check(journal, row.status)
            with contextlib.suppress(AlreadyClosed):
                await asyncio.gather(*cancels)
            undone = tuple(places(journal, "frame.completed", "undo"))
            ends.add((row.status.value, undone))
            assert runs["a"] == bool(places(journal, "frame.completed", "act"))
            assert await nothing_left(machines.store)
        if left[0] > 0:
            break
    late = ("completed", ()) if c == "succeeds" else ("failed", ("1", "0"))
    assert {("cancelled", ()), ("cancelled", ("0",)), late} <= ends, ends


@pytest.mark.parametrize(
    ("c", "moment", "end", "undone"),
    [
        ("succeeds", "a", "cancelled", ["0"]),
        ("succeeds", "b", "cancelled", ["0"]),
        ("succeeds", "b2", "cancelled", ["1", "0"]),
        ("succeeds", "c", "completed", []),  # nothing is left that a cancel could keep from running
        ("fails", "b2", "cancelled", ["1", "0"]),
        ("fails", "c", "failed", ["1", "0"]),
        ("fails", "-b", "failed", ["1", "0"]),
        ("fails", "-b2", "failed", ["1", "0"]),
        ("fails", "-a", "failed", ["1", "0"]),
    ],
)
async def test_a_cancel_while_something_runs_lets_it_finish_and_undoes_it(
    url: str, c: str, moment: str, end: str, undone: list[str]
) -> None:
    async def during(what: str) -> None:
        if what == moment:
            await under.engine.cancel(eid)
            await turns()

    async with engine_under_test(trips(Runs(), c, during), url=url) as under:
        eid = await under.engine.start("trip")
        await under.advance(4 * HOUR)
        journal = await under.engine.journal(eid)
        assert await under.engine.status(eid) == end, trace(journal)
        check(journal, end)
        assert places(journal, "frame.completed", "undo") == undone
        assert await nothing_left(under.engine.store)


@pytest.mark.cold
@pytest.mark.parametrize("c", ["succeeds", "fails"])
async def test_the_journal_does_not_show_whether_the_saga_was_kept(url: str, c: str) -> None:
    lines: list[Any] = []
    for kept in (0, 1_000):
        config = EngineConfig(drain=0, warm_executions=kept)
        place = url if url == "memory:" else f"{url}.{kept}"
        async with engine_under_test(trips(Runs(), c), url=place, config=config) as under:
            eid = await under.engine.start("trip")
            await under.advance(4 * HOUR)
            lines.append(trace(await under.engine.journal(eid)))
    assert lines[0] == lines[1]
    assert "XU[timer]" in lines[0]
