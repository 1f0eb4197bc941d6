"""Send, announce and claim: each happens exactly once, and its memo says what came of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from perdure import Context, Registry, StepFailed
from perdure.ports.commands import Announce, Append, Broadcast, Claim, Command, Send
from perdure.testing import engine_under_test
from tests.engine.cluster import Cluster, cluster, holds, nothing_left, retrying, running
from tests.engine.support import Runs, result_of, trace_of

KINDS = (Send, Broadcast, Announce, Claim)


def talkers(runs: Runs) -> Registry:
    """Give workflows that have effects."""
    registry = Registry()

    async def note() -> str:
        runs["note"] += 1
        return "noted"

    @registry.workflow("listen", version="1")
    async def listen(ctx: Context, count: int = 1) -> list[Any]:
        found = [await ctx.receive("x") for _ in range(count)]
        return [[m.seq, m.payload, str(m.actor.kind)] for m in found if m is not None]

    @registry.workflow("effects", version="1")
    async def effects(ctx: Context, to: str) -> list[Any]:
        given: list[Any] = [
            await ctx.send("x", {"n": 1}, to=to),
            await ctx.announce("done.it", [1]),
            list(await ctx.claim("k", "mine")),
            list(await ctx.claim("k", "again")),
            await ctx.send("news", None, scope="global"),
        ]
        return [*given, await ctx.step(note)]

    @registry.workflow("unawaited", version="1")
    async def unawaited(ctx: Context, to: str) -> str:
        ctx.send("x", "sent", to=to)
        ctx.announce("told")
        ctx.step(note)
        return "returned"

    @registry.workflow("refused", version="1")
    async def refused(ctx: Context, to: str) -> list[Any]:
        errors = []
        for key in ("a", "b"):
            try:
                await ctx.gather(ctx.send("x", 1, to=to, key=key), ctx.announce("beside", key))
            except StepFailed as failed:
                errors.append(f"{failed.fid} {failed.error_type} {failed.attempts}")
        await ctx.receive("go")
        return [*errors, await ctx.step(note)]

    return registry


async def announced(machines: Cluster) -> list[str]:
    """List the announcements in the control log."""
    return [e.type for e in await machines.store.control() if e.type.startswith("announce.")]


async def test_every_effect_happens_once_and_is_its_memo(url: str) -> None:
    runs = Runs()
    async with cluster(talkers(runs), url) as machines:
        process = await machines.boot()
        listener = await process.engine.start("listen")
        eid = await process.engine.start("effects", str(listener))
        await process.run_until_idle()
        told = [e for e in await machines.store.control() if e.type == "announce.done.it"]
        result = await process.engine.result(eid)
        assert result == [1, told[0].position, [True, "mine"], [False, "mine"], 1, "noted"]
        assert msgspec.json.decode(told[0].body) == {"fid": "root/announce#0", "payload": [1]}
        assert await process.engine.result(listener) == [[1, {"n": 1}, "worker"]]
        assert await trace_of(process, eid) == (
            "XS FS send#0/1 FC send#0 FS announce#0/1 FC announce#0 FS claim#0/1 FC claim#0 "
            "FS claim#1/1 FC claim#1 FS send#1/1 FC send#1 FS note#0/1 FC note#0 XC"
        )


@pytest.mark.parametrize("lost", ["never applied", "answer lost", "applied, then dead"])
@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
async def test_no_trouble_with_the_store_loses_or_doubles_an_effect(
    url: str, kind: type, lost: str
) -> None:
    runs = Runs()
    async with cluster(talkers(runs), url) as machines:
        process = await machines.boot()
        listener = await process.engine.start("listen")
        eid = await process.engine.start("effects", str(listener))

        async def trouble(commands: list[Command]) -> None:
            if holds(commands, kind):
                process.wire.before_commit = None
                process.wire.answers_lost = 1

        async def down(commands: list[Command]) -> None:
            if holds(commands, kind):
                process.wire.before_commit = None
                process.wire.down = True
                asyncio.get_running_loop().call_later(0.05, up)

        def up() -> None:
            process.wire.down = False

        if lost == "applied, then dead":
            await process.run_to_death(lambda commands: holds(commands, kind), after=True)
            process = await machines.boot()
            await process.advance(60)
        else:
            process.wire.before_commit = down if lost == "never applied" else trouble
            async with retrying(machines.clock):
                await process.run_until_idle()
        result = await process.engine.result(eid)
        assert [result[0], *result[2:]] == [1, [True, "mine"], [False, "mine"], 1, "noted"]
        assert await process.engine.result(listener) == [[1, {"n": 1}, "worker"]]
        assert await announced(machines) == ["announce.done.it"]
        assert "FF" not in await trace_of(process, eid), "no attempt is spent"
        assert runs["note"] == 1
        assert await nothing_left(machines.store)


async def test_an_effect_that_nobody_awaits_counts_and_a_step_does_not(url: str) -> None:
    runs = Runs()
    async with cluster(talkers(runs), url) as machines:
        process = await machines.boot()
        listener = await process.engine.start("listen")
        eid = await process.engine.start("unawaited", str(listener))
        await process.run_until_idle()
        assert await process.engine.result(eid) == "returned"
        assert await process.engine.result(listener) == [[1, "sent", "worker"]]
        assert await announced(machines) == ["announce.told"]
        assert runs["note"] == 0


@pytest.mark.parametrize("closed", [False, True])
async def test_a_send_that_the_store_refuses_fails_alone_and_for_ever(
    url: str, *, closed: bool
) -> None:
    """What rides in the same transition is written all the same, and nothing is sent."""
    runs = Runs()
    async with cluster(talkers(runs), url) as machines:
        process = await machines.boot()
        receiver = "00000000-0000-7000-8000-000000000000"
        if closed:
            eid = await process.engine.start("listen", 0)
            await process.run_until_idle()
            receiver = str(eid)
        eid = await process.engine.start("refused", receiver)
        await process.run_until_idle()
        await process.kill_worker()
        await process.start_worker()
        await process.engine.signal(eid, "go", None)
        await process.run_until_idle()
        error = "AlreadyClosed" if closed else "UnknownExecution"
        expected = [f"root/send:{key} {error} 1" for key in "ab"]
        assert await process.engine.result(eid) == [*expected, "noted"]
        assert runs["note"] == 1
        assert await announced(machines) == ["announce.beside"] * 2


async def test_a_send_to_the_own_execution_is_received(url: str) -> None:
    registry = Registry()

    @registry.workflow("own", version="1")
    async def own(ctx: Context) -> list[Any]:
        seqs = [await ctx.send("x", n) for n in range(3)]
        found = [await ctx.receive("x") for _ in range(3)]
        return [seqs, [m.payload for m in found if m is not None]]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(own)
        await under.run_until_idle()
        assert await result_of(under, eid) == [[1, 2, 3], [0, 1, 2]]
        assert "XU" not in await trace_of(under, eid)


async def test_ten_callers_claim_one_key_and_one_wins(url: str) -> None:
    registry = Registry()

    @registry.workflow("claim", version="1")
    async def claim(ctx: Context, number: int) -> list[Any]:
        first = await ctx.claim("the key", {"winner": number})
        return [list(first), list(await ctx.claim("the key", "again"))]

    async with cluster(registry, url) as machines:
        processes = [await machines.boot(max_executions=2) for _ in range(3)]
        eids = await processes[0].engine.start_many("claim", [[n] for n in range(10)])
        await asyncio.gather(*(process.run_until_idle() for process in processes))
        results = [await processes[0].engine.result(eid) for eid in eids]
        winners = [n for n, (first, _) in enumerate(results) if first[0]]
        assert len(winners) == 1
        value = {"winner": winners[0]}
        assert all(first[1] == value and again == [False, value] for first, again in results)


@pytest.mark.parametrize(
    "call",
    [
        lambda ctx: ctx.claim("k", object()),
        lambda ctx: ctx.claim("", 1),
        lambda ctx: ctx.claim("k" * 513, 1),
        lambda ctx: ctx.send("No Channel", 1),
        lambda ctx: ctx.send("root/x#0", 1),
        lambda ctx: ctx.send("x", object()),
        lambda ctx: ctx.send("x", 1, to="nobody"),
        lambda ctx: ctx.send("x", 1, scope="everywhere"),
        lambda ctx: ctx.send("x", 1, to=ctx.eid, scope="global"),
        lambda ctx: ctx.announce("No Type", 1),
        lambda ctx: ctx.announce("x", float("nan")),
        lambda ctx: ctx.receive("x", scope="everywhere"),
    ],
)
async def test_an_effect_that_cannot_be_meant_is_refused_at_the_call(url: str, call: Any) -> None:
    registry = Registry()

    @registry.workflow("wrong", version="1")
    async def wrong(ctx: Context) -> str:
        try:
            call(ctx)
        except Exception as error:  # noqa: BLE001 - its name is looked at
            return type(error).__name__
        return "accepted"

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(wrong)
        await under.run_until_idle()
        assert await under.engine.result(eid) in (
            "InvalidName",
            "NotSerializable",
            "InvalidArgument",
        )
        assert await trace_of(under, eid) == "XS XC"


@pytest.mark.cold
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda ctx: ctx.send("x", 1), lambda ctx: ctx.send("x", 2)),
        (lambda ctx: ctx.send("x", 1), lambda ctx: ctx.send("y", 1)),
        (lambda ctx: ctx.send("x", 1), lambda ctx: ctx.send("x", 1, scope="global")),
        (lambda ctx: ctx.announce("x", 1), lambda ctx: ctx.announce("x", 2)),
        (lambda ctx: ctx.announce("x", 1), lambda ctx: ctx.announce("y", 1)),
        (lambda ctx: ctx.claim("x", 1), lambda ctx: ctx.claim("x", 2)),
        (lambda ctx: ctx.child("same", 1), lambda ctx: ctx.child("same", 2)),
        (lambda ctx: ctx.child("same", 1), lambda ctx: ctx.child("other", 1, name="same")),
    ],
)
async def test_an_effect_that_has_changed_blocks_the_execution(
    url: str, before: Any, after: Any
) -> None:
    code = [before]
    registry = Registry()

    @registry.workflow("same", version="1")
    async def same(_ctx: Context, number: int) -> int:
        return number

    @registry.workflow("other", version="1")
    async def other(_ctx: Context, number: int) -> int:
        return number

    @registry.workflow("changing", version="1")
    async def changing(ctx: Context) -> None:
        await code[0](ctx)
        await ctx.receive("go")

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(changing)
        await under.run_until_idle()
        code[0] = after
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        blocked = (await under.engine.execution(eid)).blocked
        assert blocked is not None
        assert "#0" in blocked
        code[0] = before
        await under.engine.resume(eid)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "completed"


async def test_a_commit_carries_what_the_effect_needs_and_no_more(url: str) -> None:
    """Both entries and the command of an effect are one transition."""
    runs = Runs()
    async with cluster(talkers(runs), url) as machines:
        process = await machines.boot()
        listener = await process.engine.start("listen")
        async with running(process):
            await process.engine.wait(await process.engine.start("unawaited", str(listener)))
        appends = [c for c in process.wire.applied if isinstance(c, Append) and c.memos]
        assert len(appends) == 1
        assert [index for index, _ in appends[0].memos] == [1, 3]


async def test_an_effect_whose_branch_loses_has_happened_all_the_same(url: str) -> None:
    """Both are durable at once, and one of them is delivered first, also on a replay."""
    registry = Registry()

    @registry.workflow("race", version="1")
    async def race(ctx: Context) -> list[Any]:
        async def say(what: str) -> int:
            return await ctx.send("x", what)

        place, seq = await ctx.select(say("one"), say("two"))
        found = [await ctx.receive("x") for _ in range(2)]
        await ctx.receive("go")
        return [place, seq, [m.payload for m in found if m is not None]]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(race)
        await under.run_until_idle()
        before = await trace_of(under, eid)
        assert before.startswith("XS FS send#0/1 FC send#0 FS send#1/1 FC send#1 FA send#1 FS rec")
        await under.kill_worker()
        await under.start_worker()
        await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        assert await under.engine.result(eid) == [0, 1, ["one", "two"]]
        assert await trace_of(under, eid) == f"{before} | XR(2,message) CL receive#2 XC"
