"""Global channels: a log that every execution reads for itself, from its first message on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from perdure import Context, Registry
from perdure.ports.commands import Broadcast, Suspend
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, holds, nothing_left, running
from tests.engine.support import result_of, trace_of


def readers(gate: Gate | None = None) -> Registry:
    """Give workflows that read the channel ``news``."""
    registry = Registry()

    @registry.workflow("read", version="1")
    async def read(ctx: Context, count: int = 1, timeout: float | None = None) -> list[Any]:
        found = [await ctx.receive("news", timeout, scope="global") for _ in range(count)]
        return [None if m is None else [m.seq, m.payload] for m in found]

    @registry.workflow("busy", version="1")
    async def busy(ctx: Context) -> Any:
        assert gate is not None
        message, _ = await ctx.gather(
            ctx.receive("news", scope="global"), ctx.step(gate.wait, "done")
        )
        return None if message is None else message.payload

    @registry.workflow("mixed", version="1")
    async def mixed(ctx: Context) -> list[Any]:
        own = await ctx.receive("news")
        other = await ctx.receive("news", scope="global")
        return [m.payload for m in (own, other) if m is not None]

    return registry


async def test_everybody_reads_every_message_from_the_first(url: str) -> None:
    async with engine_under_test(readers(), url=url) as under:
        eids = await under.engine.start_many("read", [[2], [2]])
        await under.run_until_idle()
        assert [await under.engine.broadcast("news", n) for n in (10, 20, 30)] == [1, 2, 3]
        await under.run_until_idle()
        for eid in eids:
            assert await result_of(under, eid) == [[1, 10], [2, 20]]
        late = await under.engine.start("read", 3)
        await under.run_until_idle()
        assert await result_of(under, late) == [[1, 10], [2, 20], [3, 30]]
        assert "XU" not in await trace_of(under, late)
        assert await nothing_left(under.engine.store)


async def test_a_wait_names_the_channel_without_an_execution(url: str) -> None:
    async with engine_under_test(readers(), url=url) as under:
        eid = await under.engine.start("read")
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.suspended_on == ("channel:news",)
        await under.engine.broadcast("news", None)
        await under.run_until_idle()
        assert await trace_of(under, eid) == (
            "XS FS receive#0/1 FU receive#0 XU[channel] | XR(2,message) CL receive#0 XC"
        )


async def test_a_channel_of_an_execution_and_a_global_one_of_that_name_never_meet(
    url: str,
) -> None:
    async with engine_under_test(readers(), url=url) as under:
        eid = await under.engine.start("mixed")
        await under.engine.broadcast("news", "for all")
        await under.run_until_idle()
        assert await under.engine.status(eid) == "suspended"
        await under.engine.signal(eid, "news", "for you")
        await under.run_until_idle()
        assert await result_of(under, eid) == ["for you", "for all"]


async def test_what_was_read_on_one_of_the_two_is_not_read_on_the_other(url: str) -> None:
    """Their numbers are counted apart, also by a replay."""
    registry = Registry()

    @registry.workflow("both", version="1")
    async def both(ctx: Context) -> list[Any]:
        first = await ctx.receive("news", scope="global")
        second = await ctx.receive("news")
        third = await ctx.receive("news", scope="global")
        return [m.payload for m in (first, second, third) if m is not None]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(both)
        for number in (1, 2):
            await under.engine.broadcast("news", number)
        await under.run_until_idle()
        await under.kill_worker()
        await under.start_worker()
        await under.engine.signal(eid, "news", "own")
        await under.run_until_idle()
        assert await result_of(under, eid) == [1, "own", 2]


async def test_a_timeout_of_zero_looks_before_it_gives_up(url: str) -> None:
    async with engine_under_test(readers(), url=url) as under:
        nothing = await under.engine.start("read", 1, 0)
        await under.run_until_idle()
        assert await result_of(under, nothing) == [None]
        await under.engine.broadcast("news", "there")
        found = await under.engine.start("read", 2, 0)
        await under.run_until_idle()
        assert await result_of(under, found) == [[1, "there"], None]


async def test_a_timeout_consumes_nothing_and_leaves_nobody_waiting(url: str) -> None:
    async with engine_under_test(readers(), url=url) as under:
        eid = await under.engine.start("read", 1, 60)
        await under.run_until_idle()
        await under.advance(timedelta(minutes=2))
        assert await result_of(under, eid) == [None]
        before = await trace_of(under, eid)
        await under.engine.broadcast("news", 1)
        await under.run_until_idle()
        assert await trace_of(under, eid) == before
        assert await nothing_left(under.engine.store)


async def test_who_runs_is_told_in_this_process_and_in_another(url: str) -> None:
    gate = Gate()
    async with cluster(readers(gate), url) as machines:
        process, other = await machines.boot(), await machines.boot(worker=False)
        for sender in (process, other):
            eid = await process.engine.start("busy")
            async with running(process):
                await gate.entered.wait()
                await sender.engine.broadcast("news", "now")
                if sender is other:
                    assert process.worker is not None
                    await process.worker.look_around()
                async for entry in process.engine.watch(eid):
                    if entry.type == "frame.fulfilled":
                        break
                gate.opened.set()
                await process.engine.wait(eid)
            assert await result_of(process, eid) == "now"
            gate.entered.clear()
            gate.opened.clear()


async def test_a_message_between_the_last_look_and_the_suspension_is_not_missed(url: str) -> None:
    async with cluster(readers(), url) as machines:
        process, other = await machines.boot(), await machines.boot(worker=False)
        eid = await process.engine.start("read")

        async def meanwhile(commands: list[Any]) -> None:
            if holds(commands, Suspend):
                process.wire.before_commit = None
                await other.engine.broadcast("news", "just now")

        process.wire.before_commit = meanwhile
        await process.run_until_idle()
        assert await result_of(process, eid) == [[1, "just now"]]
        assert await trace_of(process, eid) == "XS FS receive#0/1 CL receive#0 XC"


async def test_a_crash_in_a_broadcast_wakes_all_or_none(url: str) -> None:
    for after in (False, True):
        async with cluster(readers(), f"{url}{'' if url == 'memory:' else after}") as machines:
            process = await machines.boot()
            eids = await process.engine.start_many("read", [[1]] * 3)
            await process.run_until_idle()
            sender = await machines.boot(worker=False)
            sender.wire.doom = lambda commands: holds(commands, Broadcast)
            sender.wire.doom_after = after
            sending = sender.engine.broadcast("news", 1)
            task = asyncio.ensure_future(sending)
            await sender.wire.dead.wait()
            task.cancel()
            await process.run_until_idle()
            statuses = {str(await process.engine.status(eid)) for eid in eids}
            assert statuses == ({"completed"} if after else {"suspended"})
            await process.engine.broadcast("news", 2)
            await process.run_until_idle()
            expected = [[1, 1]] if after else [[1, 2]]
            assert [await result_of(process, eid) for eid in eids] == [expected] * 3


async def test_an_abandoned_receive_gives_its_message_to_the_next(url: str) -> None:
    registry = Registry()

    @registry.workflow("switch", version="1")
    async def switch(ctx: Context) -> list[Any]:
        await ctx.select(ctx.receive("a"), ctx.receive("news", scope="global"))
        found = await ctx.receive("news", 60, scope="global")
        return [None if found is None else found.seq]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(switch)
        await under.run_until_idle()
        await under.engine.signal(eid, "a", None)
        await under.engine.broadcast("news", "kept")
        await under.run_until_idle()
        assert await result_of(under, eid) == [1]


async def test_a_thousand_messages_are_read_in_order(url: str) -> None:
    async with engine_under_test(readers(), url=url) as under:
        for number in range(250):
            await under.engine.broadcast("news", number)
        eid = await under.engine.start("read", 250)
        await under.run_until_idle()
        assert await result_of(under, eid) == [[n + 1, n] for n in range(250)]
