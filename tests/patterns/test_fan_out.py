"""Fan-outs: one child for each item, the results in order, and a limit that holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from perdure import Context, EngineConfig, InvalidArgument, Registry
from perdure.patterns import fan_out
from perdure.testing import engine_under_test
from tests.engine.cluster import cluster, nothing_left
from tests.engine.support import Machine, Runs, result_of, trace_of


def squares(runs: Runs) -> Registry:  # noqa: C901 - small functions, one after the other
    """Give a workflow that squares items in children."""
    registry = Registry()

    async def note() -> None:
        runs["own"] += 1

    async def multiply(item: int) -> int:
        runs[f"step {item}"] += 1
        return item * item

    @registry.workflow("square", version="1")
    async def square(ctx: Context, item: int) -> int:
        runs[f"open {item}"] += 1
        if item < 0:
            raise ValueError(item)
        await ctx.sleep(item)
        runs[f"done {item}"] += 1
        return await ctx.step(multiply, item)

    @registry.workflow("all", version="1")
    async def everything(ctx: Context, items: list[int], limit: int | None = None) -> Any:
        await ctx.step(note)
        return await fan_out(ctx, square, iter(items), limit=limit)

    @registry.workflow("named", version="1")
    async def named(ctx: Context) -> Any:
        return await fan_out(ctx, "square", [2], name="n", queue="slow")

    @registry.workflow("bad", version="1")
    async def bad(ctx: Context, limit: Any) -> Any:
        return await fan_out(ctx, square, [1, 2], limit=limit)

    @registry.workflow("careful", version="1")
    async def careful(ctx: Context, items: list[Any], limit: int | None = None) -> str:
        try:
            await fan_out(ctx, square, items, limit=limit)
        except InvalidArgument as refused:
            await ctx.sleep(30)
            return str(refused)
        return "fine"

    @registry.workflow("unordered", version="1")
    async def unordered(ctx: Context, what: str) -> Any:
        items: dict[str, Any] = {
            "set": {1, 2},
            "frozenset": frozenset({1}),
            "number": 7,
            "nothing": None,
        }
        return await fan_out(ctx, square, items[what])

    return registry


async def test_the_results_are_in_the_order_of_the_items(url: str) -> None:
    """C147: children keyed by their position; none for no item."""
    queues = ("default", "slow")
    async with engine_under_test(squares(Runs()), url=url, queues=queues) as under:
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
        (child,) = (await under.engine.executions(parent=named)).items
        assert (child.queue, child.result) == ("slow", 4)


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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_crash_at_any_write_changes_nothing(url: str, *, before: bool) -> None:
    """Each child is started once, never more than two are open, and its step runs once."""
    for crash_at in itertools.count(1):
        runs = Runs()
        machine = await Machine.open(
            squares(runs), url if url == "memory:" else f"{url}.{crash_at}"
        )
        eid = await (await machine.boot()).engine.start("all", [2, 1, 3, 1, 1], 2)
        await machine.bury()
        under = await machine.boot(crash_at=crash_at, before=before)
        died = await machine.until_death(under.advance(100))
        if died:
            await machine.bury()
            under = await machine.boot()
            await under.advance(100)
        assert await result_of(under, eid) == [4, 1, 9, 1, 1], crash_at
        control = await machine.store.control()
        children = [entry for entry in control if entry.eid != eid]
        made = [entry.eid for entry in children if entry.type == "execution.created"]
        assert len(made) == len(set(made)) == 5
        assert most_open(children) == 2
        assert runs["own"] + sum(runs[f"step {n}"] for n in (1, 2, 3)) <= 6 + 2 * died, crash_at
        assert await nothing_left(machine.store)
        await machine.bury()
        await machine.store.close()
        if not died:
            break
    assert crash_at > 15, "the children make many writes"


def most_open(control: Iterable[Any]) -> int:
    """Tell how many executions were open at most, by the control log."""
    opened: set[UUID] = set()
    most = 0
    for entry in control:
        if entry.type == "execution.created":
            opened.add(entry.eid)
        elif entry.type == "execution.completed":
            opened.remove(entry.eid)
        most = max(most, len(opened))
    return most


async def test_the_parent_is_resumed_once_for_many_children(url: str) -> None:
    """All of them wait for one instant, so their ends reach the parent together."""
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("all", [7] * 20)
        await under.advance(10)
        assert await result_of(under, eid) == [49] * 20
        assert (await trace_of(under, eid)).count("XR(") == 1


@pytest.mark.cold
@pytest.mark.parametrize("limit", [None, 2])
async def test_the_journal_does_not_show_whether_the_parent_was_kept(
    url: str, limit: int | None
) -> None:
    lines = []
    for kept in (0, 1_000):
        place = url if url == "memory:" else f"{url}.{kept}"
        config = EngineConfig(drain=0, warm_executions=kept)
        async with engine_under_test(squares(Runs()), url=place, config=config) as under:
            eid = await under.engine.start("all", [5, 1, 2, 1, 9, 1], limit)
            await under.advance(60)
            lines.append(await trace_of(under, eid))
    assert lines[0] == lines[1]
    assert "XU[child," in lines[0]


async def test_a_cancel_reaches_the_children_that_are_open(url: str) -> None:
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("all", [50, 60, 70], 2)
        await under.run_until_idle()
        await under.engine.cancel(eid)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "cancelled"
        rows = (await under.engine.executions(parent=eid)).items
        assert [row.status for row in rows] == ["cancelled"] * 2
        assert await nothing_left(under.engine.store)


async def test_an_item_that_does_not_fit_starts_no_child(url: str) -> None:
    """Also if the function catches the error and goes on."""
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("careful", [1, "x", 2])
        await under.advance(60)
        assert "argument 'item'" in await result_of(under, eid)
        assert (await under.engine.executions(parent=eid)).items == ()
        assert await nothing_left(under.engine.store)


async def test_an_item_that_does_not_fit_ends_the_children_that_are_open(url: str) -> None:
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("careful", [50, 1, "x"], 2)
        await under.advance(5)
        rows = (await under.engine.executions(parent=eid)).items
        assert sorted(row.status for row in rows) == ["cancelled", "completed"]
        await under.advance(60)
        assert "argument 'item'" in await result_of(under, eid)


@pytest.mark.parametrize("items", ["set", "frozenset", "number", "nothing"])
async def test_items_without_an_order_are_refused(url: str, items: str) -> None:
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("unordered", items)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2", True])
async def test_a_bad_limit_is_refused(url: str, limit: Any) -> None:
    async with engine_under_test(squares(Runs()), url=url) as under:
        eid = await under.engine.start("bad", limit)
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == InvalidArgument.__name__
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"
