"""What does a receive get? The messages of its channel in order, each once, or nothing in time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import Actor, Context, Message, Registry
from perdure.ports.commands import Append, Command
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.cluster import Gate, cluster, holds, nothing_left, running
from tests.engine.support import Runs, trace

MINUTES_5 = timedelta(minutes=5)


def payload(message: Message | None) -> Any:
    """Tell a message from none, whatever its payload is."""
    return ["nothing"] if message is None else [message.payload, message.seq]


def receiving(runs: Runs | None = None) -> Registry:
    """Give workflows that receive."""
    registry = Registry()
    runs = Runs() if runs is None else runs

    @registry.workflow("one", version="1")
    async def one(ctx: Context) -> Any:
        return payload(await ctx.receive("x"))

    @registry.workflow("two", version="1")
    async def two(ctx: Context) -> Any:
        first = await ctx.receive("x")
        second = await ctx.receive("x")
        return [payload(first), payload(second)]

    @registry.workflow("impatient", version="1")
    async def impatient(ctx: Context) -> Any:
        runs["wf"] += 1
        first = await ctx.receive("x", timeout=MINUTES_5)
        second = await ctx.receive("x")
        return [payload(first), payload(second)]

    @registry.workflow("look", version="1")
    async def look(ctx: Context) -> Any:
        return payload(await ctx.receive("x", timeout=0))

    @registry.workflow("beside", version="1")
    async def beside(ctx: Context) -> Any:
        pair = await ctx.gather(ctx.receive("x"), ctx.receive("x"))
        return [payload(message) for message in pair]

    return registry


async def journal_of(under: EngineUnderTest, eid: Any) -> str:
    return trace(await under.engine.journal(eid))


async def test_a_message_that_is_there_already_needs_no_suspension(url: str) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("one")
        assert await under.engine.signal(eid, "x", "early") == 1
        await under.run_until_idle()
        assert await journal_of(under, eid) == "XS FS receive#0/1 CL receive#0 XC"
        assert (await under.engine.execution(eid)).result == ["early", 1]
        assert await nothing_left(under.engine.store)


async def test_a_message_to_a_suspended_execution_resumes_it(url: str) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("one")
        await under.run_until_idle()
        await under.engine.signal(eid, "x", "late")
        await under.run_until_idle()
        assert await journal_of(under, eid) == (
            "XS FS receive#0/1 FU receive#0 XU[channel] | XR(2,message) CL receive#0 XC"
        )


@pytest.mark.parametrize("payloads", [["a", "b"], ["same", "same"]])
async def test_messages_come_in_the_order_in_which_they_were_sent(
    url: str, payloads: list[str]
) -> None:
    """Equal payloads are two messages."""
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("two")
        for one in payloads:
            await under.engine.signal(eid, "x", one)
        await under.run_until_idle()
        expected = [[payloads[0], 1], [payloads[1], 2]]
        assert (await under.engine.execution(eid)).result == expected


async def test_what_was_consumed_is_stable_on_replay(url: str) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("two")
        await under.engine.signal(eid, "x", "a")
        await under.run_until_idle()
        await under.kill_worker()
        await under.start_worker()
        await under.engine.signal(eid, "x", "b")
        await under.run_until_idle()
        assert (await under.engine.execution(eid)).result == [["a", 1], ["b", 2]]
        assert (await journal_of(under, eid)).count("CL receive#0") == 1


async def test_two_receives_beside_each_other_are_served_in_the_order_of_their_calls(
    url: str,
) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("beside")
        await under.run_until_idle()
        for one in ("a", "b"):
            await under.engine.signal(eid, "x", one)
            await under.run_until_idle()
        assert (await under.engine.execution(eid)).result == [["a", 1], ["b", 2]]


async def test_a_message_that_nobody_consumes_stays_and_adds_nothing(url: str) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("one")
        await under.run_until_idle()
        for _ in range(2):
            await under.engine.signal(eid, "x", "same")
        await under.run_until_idle()
        journal = await journal_of(under, eid)
        assert journal.endswith("| XR(2,message) CL receive#0 XC")
        mail = await under.engine.store.mail(eid)
        assert mail is not None
        assert [message.seq for message in mail.messages] == [2]
        await under.run_until_idle()
        assert await journal_of(under, eid) == journal
        assert await nothing_left(under.engine.store)


@pytest.mark.cold
async def test_a_timeout_consumes_nothing(url: str) -> None:
    runs = Runs()
    async with engine_under_test(receiving(runs), url=url) as under:
        eid = await under.engine.start("impatient")
        await under.run_until_idle()
        assert (await under.engine.store.info()).timers == 1
        await under.advance(MINUTES_5)
        assert await journal_of(under, eid) == (
            "XS FS receive#0/1 FU receive#0 XU[channel] | XR(2,timer) CL receive#0 "
            "FS receive#1/1 FU receive#1 XU[channel]"
        )
        assert (await under.engine.store.info()).timers == 0
        closed = [e for e in await under.engine.journal(eid) if e.type == "frame.fulfilled"]
        assert "message" not in closed[0].payload
        await under.engine.signal(eid, "x", "for the second")
        await under.run_until_idle()
        assert (await under.engine.execution(eid)).result == [["nothing"], ["for the second", 1]]
        assert runs["wf"] == 3


async def test_a_timeout_stays_a_timeout_on_replay(url: str) -> None:
    """A message that came after the timeout belongs to the receive that follows."""
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("impatient")
        await under.run_until_idle()
        await under.advance(MINUTES_5)
        await under.kill_worker()
        await under.engine.signal(eid, "x", "late")
        await under.start_worker()
        await under.run_until_idle()
        assert (await under.engine.execution(eid)).result == [["nothing"], ["late", 1]]


async def test_a_timeout_of_zero_only_looks(url: str) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        empty = await under.engine.start("look")
        full = await under.engine.start("look")
        await under.engine.signal(full, "x", "there")
        await under.run_until_idle()
        assert (await under.engine.execution(empty)).result == ["nothing"]
        assert (await under.engine.execution(full)).result == ["there", 1]
        assert await journal_of(under, empty) == "XS FS receive#0/1 CL receive#0 XC"


async def test_a_null_payload_is_a_message(url: str) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("impatient")
        await under.run_until_idle()
        await under.engine.signal(eid, "x", None)
        await under.engine.signal(eid, "x", False)  # noqa: FBT003 - a payload
        await under.run_until_idle()
        assert (await under.engine.execution(eid)).result == [[None, 1], [False, 2]]


async def test_a_message_that_is_there_when_a_timeout_is_evaluated_wins(url: str) -> None:
    """Both are due before a worker looks: the message was sent, and the time is over."""
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("impatient")
        await under.run_until_idle()
        await under.kill_worker()
        under.clock.advance(2 * MINUTES_5)
        await under.sweep()
        await under.engine.signal(eid, "x", "in the end")
        await under.start_worker()
        await under.run_until_idle()
        journal = await under.engine.journal(eid)
        closed = [entry for entry in journal if entry.type == "frame.fulfilled"]
        assert closed[0].payload["message"]["payload"] == "in the end"


async def test_a_message_wins_over_the_timeout_of_an_owned_execution_too(url: str) -> None:
    """The owner's own clock rings while another process has just sent something."""
    registry = Registry()
    gate = Gate()

    @registry.workflow("owned", version="1")
    async def owned(ctx: Context) -> Any:
        _, message = await ctx.gather(ctx.step(gate.wait), ctx.receive("x", timeout=MINUTES_5))
        return payload(message)

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        other = await machines.boot(worker=False)
        eid = await process.engine.start(owned)
        async with running(process) as task:
            await gate.entered.wait()
            await other.engine.signal(eid, "x", "just in time")
            machines.clock.advance(MINUTES_5)
            gate.opened.set()
            await task
        assert (await process.engine.execution(eid)).result == ["just in time", 1]


@pytest.mark.parametrize("moment", ["during", "at the end"])
async def test_a_message_that_comes_while_a_step_runs_needs_no_suspension(
    url: str, moment: str
) -> None:
    registry = Registry()
    gate = Gate()

    @registry.workflow("later", version="1")
    async def later(ctx: Context) -> Any:
        await ctx.step(gate.wait, name="slow")
        return payload(await ctx.receive("x"))

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        other = await machines.boot(worker=False)
        eid = await process.engine.start(later)
        if moment == "at the end":
            gate.opened.set()

            async def slip_in(commands: list[Command]) -> None:
                if gate.entered.is_set() and holds(commands, Append, eid):
                    process.wire.before_commit = None
                    await other.engine.signal(eid, "x", "meanwhile")

            process.wire.before_commit = slip_in
            await process.run_until_idle()
        else:
            async with running(process) as task:
                await gate.entered.wait()
                await other.engine.signal(eid, "x", "meanwhile")
                gate.opened.set()
                await task
        assert trace(await process.engine.journal(eid)) == (
            "XS FS slow#0/1 FC slow#0 FS receive#0/1 CL receive#0 XC"
        )
        assert await nothing_left(machines.store)


async def test_a_message_wakes_only_its_own_channel_and_execution(url: str) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        first = await under.engine.start("one")
        second = await under.engine.start("one")
        await under.run_until_idle()
        await under.engine.signal(first, "y", "elsewhere")
        await under.run_until_idle()
        assert await journal_of(under, first) == (
            "XS FS receive#0/1 FU receive#0 XU[channel] | XR(2,message) XU[channel]"
        )
        assert await journal_of(under, second) == "XS FS receive#0/1 FU receive#0 XU[channel]"


async def test_a_message_tells_who_sent_it_and_what_it_belongs_to(url: str) -> None:
    registry = Registry()
    received: list[Message] = []

    @registry.workflow("curious", version="1")
    async def curious(ctx: Context) -> None:
        message = await ctx.receive("answers.1")
        assert message is not None
        received.append(message)
        await ctx.receive("again")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(curious)
        await under.run_until_idle()
        ada = Actor.human("ada@example.com")
        sent_at = under.clock.now()
        await under.engine.signal(eid, "answers.1", {"yes": True}, correlation="q-1", by=ada)
        await under.run_until_idle()
        await under.engine.signal(eid, "again", None)
        await under.kill_worker()
        under.clock.advance(1)
        await under.start_worker()
        await under.run_until_idle()
        live, replayed = received
        assert live == replayed
        assert (live.seq, live.channel, live.payload) == (1, "answers.1", {"yes": True})
        assert (live.actor, live.sent_by.at, live.correlation) == (ada, sent_at, "q-1")


async def test_many_senders_at_once_get_numbers_of_their_own(url: str) -> None:
    async with engine_under_test(receiving(), url=url) as under:
        eid = await under.engine.start("two")
        sending = [under.engine.signal(eid, "x", number) for number in range(20)]
        assert sorted(await asyncio.gather(*sending)) == list(range(1, 21))
        await under.run_until_idle()
        assert [seq for _, seq in (await under.engine.execution(eid)).result] == [1, 2]
