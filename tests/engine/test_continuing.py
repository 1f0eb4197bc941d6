"""continue_as: a fresh execution in the place of the old one, which nobody has to know."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import (
    AlreadyClosed,
    Cancelled,
    Conflict,
    Context,
    ExecutionCancelled,
    InvalidArgument,
    Registry,
    StartOptions,
)
from perdure.testing import engine_under_test
from tests.engine.cluster import cluster, nothing_left
from tests.engine.support import Runs, trace_of


def loops(runs: Runs) -> Registry:
    """Give a workflow, ``loop``, that continues until it has counted down."""
    registry = Registry()

    async def note(number: int) -> int:
        runs[str(number)] += 1
        return number

    @registry.workflow("loop", version="1")
    async def loop(ctx: Context, left: int, *, seen: list[Any] | None = None) -> list[Any]:
        seen = seen or []
        message = await ctx.receive("x", timeout=0 if left else None)
        if message is not None:
            seen = [*seen, [message.seq, message.payload]]
        await ctx.step(note, left)
        if left:
            ctx.continue_as(left - 1, seen=seen)
        return seen

    @registry.workflow("parent", version="1")
    async def parent(ctx: Context) -> Any:
        return [await ctx.child(loop, 2), await ctx.step(note, -1)]

    return registry


async def test_each_link_has_a_journal_of_its_own_and_the_result_is_that_of_the_last(
    url: str,
) -> None:
    runs = Runs()
    options = StartOptions(tags={"kind": "eternal"}, priority=7, baggage={"b": "1"})
    async with engine_under_test(loops(runs), url=url) as under:
        engine = under.engine
        eid = await engine.start("loop", 2, key="the loop", options=options)
        for number in range(4):
            await engine.signal(eid, "x", number)
        await under.run_until_idle()
        assert await engine.result(eid) == [[1, 0], [1, 1], [1, 2]]
        assert runs == {"2": 1, "1": 1, "0": 1}
        links = [await engine.execution(eid, follow=False)]
        while (successor := links[-1].continued_as) is not None:
            links.append(await engine.execution(successor, follow=False))
        assert len(links) == 3
        assert {link.status.value for link in links} == {"completed"}
        assert {link.dispatch_key for link in links} == {"the loop"}
        assert all(link.tags == {"kind": "eternal"} for link in links)
        assert [link.result for link in links] == [None, None, [[1, 0], [1, 1], [1, 2]]]
        assert await engine.execution(eid) == links[-1]
        assert await trace_of(under, eid) == (
            "XS FS receive#0/1 CL receive#0 FS note#0/1 FC note#0 XC"
        )
        last = (await engine.journal(eid))[-1]
        assert last.payload == {"value": None, "continued_as": str(links[1].eid)}
        again = await engine.start_result("loop", 9, key="the loop")
        assert again == (links[-1].eid, True)
        records = [await engine.store.record(link.eid) for link in links]
        assert len({record.seed for record in records if record}) == 3
        assert all(record.options == options for record in records if record)
        assert await nothing_left(engine.store)


async def test_operations_on_an_old_id_find_the_execution_that_goes_on(url: str) -> None:
    async with engine_under_test(loops(Runs()), url=url) as under:
        engine = under.engine
        eid = await engine.start("loop", 3)
        await under.run_until_idle()
        assert await engine.status(eid) == "suspended"
        assert (await engine.execution(eid, follow=False)).status == "completed"
        assert await engine.signal(eid, "x", "found") == 1
        await under.run_until_idle()
        assert await engine.result(eid) == [[1, "found"]]
        with pytest.raises(AlreadyClosed):
            await engine.signal(eid, "x", "late")
        other = await engine.start("loop", 3)
        await under.run_until_idle()
        await engine.cancel(other)
        await under.run_until_idle()
        with pytest.raises(ExecutionCancelled):
            await engine.result(other)
        third = await engine.start("loop", 3)
        await under.run_until_idle()
        await engine.terminate(third)
        assert await engine.status(third) == "terminated"


async def test_the_parent_gets_the_result_of_the_last_link(url: str) -> None:
    runs = Runs()
    async with engine_under_test(loops(runs), url=url) as under:
        eid = await under.engine.start("parent")
        await under.run_until_idle()
        (waiting,) = [
            row
            for row in (await under.engine.executions(parent=eid)).items
            if not row.status.terminal
        ]
        await under.engine.signal(waiting.eid, "x", "end")
        await under.run_until_idle()
        assert await under.engine.result(eid) == [[[1, "end"]], -1]
        assert runs["-1"] == 1
        assert (await trace_of(under, eid)).count("XU[child]") == 1


async def test_a_cancel_that_nobody_has_seen_moves_to_the_successor(url: str) -> None:
    """Its function has run to the end, but the loop goes on only to its next frame."""
    runs = Runs()
    registry = loops(runs)
    seen: list[str] = []

    @registry.workflow("blind", version="1")
    async def blind(ctx: Context, number: int) -> None:
        seen.append(f"began {number}")
        if number:
            try:
                await ctx.sleep(3600)
            except Cancelled:
                seen.append(f"cancelled {number}")
                raise
        ctx.continue_as(number + 1)

    async with cluster(registry, url) as machines:
        process, other = await machines.boot(), await machines.boot(worker=False)
        eid = await process.engine.start("blind", 0)

        async def meanwhile(_commands: list[Any]) -> None:
            if seen:
                process.wire.before_commit = None
                await other.engine.cancel(eid, reason="in between")

        process.wire.before_commit = meanwhile
        await process.run_until_idle()
        row = await process.engine.execution(eid)
        assert (row.status, row.stop_reason) == ("cancelled", "in between")
        assert seen == ["began 0", "began 1", "cancelled 1"]


async def test_it_is_refused_while_frames_are_open(url: str) -> None:
    registry = loops(Runs())

    @registry.workflow("hasty", version="1")
    async def hasty(ctx: Context, opens: str) -> str:
        if opens == "child":
            ctx.child("loop", 0)
        else:
            ctx.receive("never")
        try:
            ctx.continue_as("again")
        except Conflict as refused:
            return str(refused)

    async with engine_under_test(registry, url=url) as under:
        for opens, fid in (("child", "root/loop#0"), ("receive", "root/receive#0")):
            eid = await under.engine.start("hasty", opens)
            await under.run_until_idle()
            assert fid in await under.engine.result(eid)
            assert (await under.engine.execution(eid)).continued_as is None


async def test_arguments_that_do_not_fit_are_refused_at_the_call(url: str) -> None:
    registry = Registry()

    @registry.workflow("typed", version="1")
    async def typed(ctx: Context, _number: int) -> str:
        refused = []
        for args in ((), (1, 2), ("text",), (object(),)):
            try:
                ctx.continue_as(*args)
            except InvalidArgument as error:
                refused.append(type(error).__name__)
        return " ".join(refused)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(typed, 1)
        await under.run_until_idle()
        refused = await under.engine.result(eid)
        assert refused == "InvalidArgument InvalidArgument InvalidArgument NotSerializable"


async def test_a_message_that_was_given_back_moves_too(url: str) -> None:
    """A receive that lost a select had consumed it, and nobody was told of it."""
    registry = Registry()

    @registry.workflow("switch", version="1")
    async def switch(ctx: Context, first: int) -> Any:
        if first:
            await ctx.select(ctx.receive("a"), ctx.receive("b"))
            ctx.continue_as(0)
        message = await ctx.receive("b", timeout=60)
        return None if message is None else [message.seq, message.payload]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start("switch", 1)
        await under.run_until_idle()
        await under.engine.signal(eid, "a", None)
        await under.engine.signal(eid, "b", "kept")
        await under.run_until_idle()
        assert await under.engine.result(eid) == [1, "kept"]
