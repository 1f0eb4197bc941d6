"""Fan-outs: one child for each item, the results in order, and a limit that holds."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Context, InvalidArgument, Registry
from perdure.patterns import fan_out
from perdure.testing import engine_under_test
from tests.engine.cluster import cluster, nothing_left
from tests.engine.support import Machine, Runs, result_of, trace_of


def squares(runs: Runs) -> Registry:
    """Give a workflow that squares items in children."""
    registry = Registry()

    async def note() -> None:
        runs["own"] += 1

    @registry.workflow("square", version="1")
    async def square(ctx: Context, item: int) -> int:
        runs[f"open {item}"] += 1
        if item < 0:
            raise ValueError(item)
        await ctx.sleep(item)
        runs[f"done {item}"] += 1
        return item * item

    @registry.workflow("all", version="1")
    async def everything(ctx: Context, items: list[int], limit: int | None = None) -> Any:
        await ctx.step(note)
        return await fan_out(ctx, square, iter(items), limit=limit)

    @registry.workflow("named", version="1")
    async def named(ctx: Context) -> Any:
        return await fan_out(ctx, "square", [2], name="n", queue="default")

    @registry.workflow("bad", version="1")
    async def bad(ctx: Context, limit: Any) -> Any:
        return await fan_out(ctx, square, [1, 2], limit=limit)

    return registry


async def test_the_results_are_in_the_order_of_the_items(url: str) -> None:
    """C147: children keyed by their position; none for no item."""
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("all", [3, 1, 2])
        empty = await under.engine.start("all", [])
        named = await under.engine.start("named")
        await under.advance(10)
        assert await result_of(under, eid) == [9, 1, 4]
        children = (await under.engine.frames(eid)).children[1:]
        assert [child.fid for child in children] == [f"root/square:{n}" for n in range(3)]
        assert await result_of(under, empty) == []
        assert "square" not in await trace_of(under, empty)
        assert [c.fid for c in (await under.engine.frames(named)).children] == ["root/n:0"]


@pytest.mark.parametrize("limit", [None, 2])
async def test_one_that_fails_ends_all(url: str, limit: int | None) -> None:
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("all", [50, -1, 60], limit)
        await under.advance(1)
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == "ChildFailed"
        statuses = [r.status for r in (await under.engine.executions(parent=eid)).items]
        assert sorted(statuses) == (
            ["cancelled", "cancelled", "failed"] if limit is None else ["cancelled", "failed"]
        )
        assert await nothing_left(under.engine.store)


async def test_a_limit_bounds_the_children_that_are_open(url: str) -> None:
    runs = Runs()
    async with engine_under_test(squares(runs), url=url) as under:
        eid = await under.engine.start("all", [5, 1, 1, 1, 9, 1], 2)
        most = 0
        for _ in range(20):
            await under.run_until_idle()
            rows = (await under.engine.executions(parent=eid)).items
            most = max(most, sum(not row.status.terminal for row in rows))
            await under.advance(1)
        assert most == 2
        assert await result_of(under, eid) == [25, 1, 1, 1, 81, 1]


async def test_fifty_items_over_four_workers(url: str) -> None:
    """C147: each child once, the parent's own steps once, no lost wake-up."""
    runs = Runs()
    async with cluster(squares(runs), url) as machines:
        processes = [await machines.boot() for _ in range(4)]
        eid = await processes[0].engine.start("all", list(range(50)))
        for _ in range(60):
            for process in processes:
                await process.run_until_idle()
            await processes[0].advance(1)
        assert await result_of(processes[0], eid) == [n * n for n in range(50)]
        assert all(runs[f"done {n}"] == 1 for n in range(50))
        assert runs["own"] == 1
        assert await nothing_left(machines.store)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_crash_at_any_commit_changes_nothing(url: str, *, before: bool) -> None:
    crash_at, died = 0, True
    while died:
        crash_at += 1
        machine = await Machine.open(squares(Runs()), url)
        under = await machine.boot(crash_at=crash_at, before=before)
        eids: list[Any] = []

        async def work(under: Any, eids: list[Any] = eids) -> None:
            if not eids:
                eids.append(await under.engine.start("all", [2, 1, 3], 2))
            await under.advance(100)

        died = await machine.until_death(work(under))
        if died:
            await machine.bury()
            under = await machine.boot()
            await work(under)
        assert await result_of(under, eids[0]) == [4, 1, 9]
        assert len((await under.engine.executions(parent=eids[0])).items) == 3
        assert await nothing_left(machine.store)
        await machine.bury()
        await machine.store.close()
    assert crash_at > 8


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2", True])
async def test_a_bad_limit_is_refused(url: str, limit: Any) -> None:
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("bad", limit)
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == InvalidArgument.__name__
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"
