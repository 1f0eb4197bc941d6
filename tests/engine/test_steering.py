"""Resume, migrate, retry, fork, and the same for many: what an operator does to executions."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import (
    Actor,
    AlreadyClosed,
    Conflict,
    Context,
    InvalidArgument,
    NotSerializable,
    Registry,
    UnknownExecution,
    UnknownFrame,
    UnknownWorkflow,
)
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, nothing_left, running
from tests.engine.support import Runs, trace_of

ADA = Actor.human("ada@example.com")
NOBODY = "00000000-0000-7000-8000-000000000000"


class Shop:
    """Workflows of two versions, and a service that can be out of order."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.broken = True
        self.shift = 0
        self.registry = Registry()
        self.registry.workflow("pay", version="1")(self.pay)
        self.registry.workflow("pay", version="2")(self.pay_better)
        self.registry.workflow("kid", version="1")(self.kid)

    async def quote(self, number: int) -> int:
        self.runs["quote"] += 1
        return number * 10

    async def charge(self, amount: int) -> str:
        self.runs["charge"] += 1
        if self.broken:
            message = "out of order"
            raise ConnectionError(message)
        return f"charged {amount}"

    async def kid(self, _ctx: Context, number: int) -> int:
        self.runs["kid"] += 1
        return number

    async def pay(self, ctx: Context, number: int) -> list[Any]:
        amount = await ctx.step(self.quote, number + self.shift)
        kid = await ctx.child("kid", 3)
        message = await ctx.receive("go")
        pair = await ctx.gather(ctx.step(self.quote, 7), ctx.step(self.charge, amount))
        return [kid, message.payload if message else None, message and message.seq, *pair]

    async def pay_better(self, ctx: Context, number: int) -> list[Any]:
        amount = await ctx.step(self.quote, number)
        kid = await ctx.child("kid", 3)
        message = await ctx.receive("go")
        return ["better", amount, kid, message.payload if message else None]


async def test_a_failed_execution_is_retried_from_its_last_failure(url: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        engine = under.engine
        eid = await engine.start("pay", 2, version="1", key="once")
        await engine.signal(eid, "go", "now")
        await under.run_until_idle()
        assert await engine.status(eid) == "failed"
        shop.broken = False
        copy = await engine.retry_failed(eid, by=ADA)
        await under.run_until_idle()
        assert await engine.result(copy) == [3, "now", 1, 70, "charged 20"]
        assert shop.runs == {"quote": 2, "charge": 2, "kid": 1}
        row = await engine.execution(copy)
        assert (row.created_by, row.dispatch_key, row.version) == (ADA, None, "1")
        first = (await engine.journal(copy))[0]
        assert first.payload == {"origin": str(eid), "fid": "root/charge#0", "overrides": {}}
        assert await engine.status(eid) == "failed", "the origin stays as it is"
        assert await nothing_left(engine.store)
        with pytest.raises(Conflict, match="only a failed one"):
            await engine.retry_failed(copy)
        with pytest.raises(UnknownExecution):
            await engine.retry_failed(NOBODY)


async def test_a_function_that_failed_itself_goes_on_from_the_end_of_its_journal(url: str) -> None:
    registry, runs, broken = Registry(), Runs(), [True]

    async def note() -> str:
        runs["note"] += 1
        return "noted"

    @registry.workflow("buggy", version="1")
    async def buggy(ctx: Context) -> str:
        value = await ctx.step(note)
        if broken[0]:
            raise ValueError("a bug of the function")
        return value

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(buggy)
        await under.run_until_idle()
        broken[0] = False
        copy = await under.engine.retry_failed(eid)
        await under.run_until_idle()
        assert await under.engine.result(copy) == "noted"
        assert runs["note"] == 1


@pytest.mark.parametrize(
    ("fid", "again"),
    [
        ("root", {"quote": 2, "kid": 1, "charge": 1}),
        ("root/quote#0", {"quote": 2, "kid": 1, "charge": 1}),
        ("root/kid#0", {"quote": 1, "kid": 1, "charge": 1}),
        ("root/receive#0", {"quote": 1, "charge": 1}),
        ("root/quote#1", {"quote": 1, "charge": 1}),
    ],
)
async def test_a_fork_keeps_what_was_before_and_runs_the_rest_again(
    url: str, fid: str, again: dict[str, int]
) -> None:
    shop = Shop()
    shop.broken = False
    async with engine_under_test(shop.registry, url=url) as under:
        engine = under.engine
        eid = await engine.start("pay", 2, version="1")
        await engine.signal(eid, "go", "first")
        await under.run_until_idle()
        before = await trace_of(under, eid)
        shop.runs.clear()
        copy = await engine.fork(eid, fid)
        await under.run_until_idle()
        message = ["first", 1]
        if await engine.status(copy) == "suspended":
            seq = await engine.signal(copy, "go", "second")
            message = ["second", seq]
            await under.run_until_idle()
        assert await engine.result(copy) == [3, *message, 70, "charged 20"]
        assert shop.runs == again
        assert await trace_of(under, eid) == before
        kids = (await engine.executions(parent=copy)).items
        assert len(kids) == again.get("kid", 0)


async def test_the_numbers_of_messages_go_on_in_a_fork(url: str) -> None:
    registry = Registry()

    @registry.workflow("collect", version="1")
    async def collect(ctx: Context) -> list[Any]:
        found = [await ctx.receive("x") for _ in range(3)]
        return [[m.seq, m.payload] for m in found if m is not None]

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(collect)
        for payload in "ab":
            await under.engine.signal(eid, "x", payload)
        await under.run_until_idle()
        copy = await under.engine.fork(eid, "root/receive#1")
        await under.run_until_idle()
        assert await under.engine.signal(copy, "x", "c") == 2
        assert await under.engine.signal(copy, "x", "d") == 3
        await under.run_until_idle()
        assert await under.engine.result(copy) == [[1, "a"], [2, "c"], [3, "d"]]
        assert await under.engine.status(eid) == "suspended"


async def test_an_override_gives_a_step_its_value(url: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        engine = under.engine
        eid = await engine.start("pay", 2, version="1")
        await engine.signal(eid, "go", "now")
        await under.run_until_idle()
        shop.runs.clear()
        given = {"root/charge#0": "by hand", "root/quote#0": 5}
        copy = await engine.fork(eid, "root/quote#1", overrides=given)
        await under.run_until_idle()
        assert await engine.result(copy) == [3, "now", 1, 70, "by hand"]
        assert shop.runs == {"quote": 1}
        first = (await engine.journal(copy))[0]
        assert first.payload["overrides"] == given


@pytest.mark.parametrize(
    ("fid", "overrides", "error"),
    [
        ("root/nothing#0", None, UnknownFrame),
        ("", None, UnknownFrame),
        ("root/quote#0", {"root/nothing#0": 1}, UnknownFrame),
        ("root/quote#0", {"root/receive#0": 1}, InvalidArgument),
        ("root/quote#0", {"root/kid#0": 1}, InvalidArgument),
        ("root/quote#0", {"root/quote#0": object()}, NotSerializable),
        ("root/quote#0", [1], InvalidArgument),
    ],
)
async def test_a_fork_that_cannot_be_meant_stores_nothing(
    url: str, fid: str, overrides: Any, error: type[Exception]
) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        eid = await under.engine.start("pay", 2, version="1")
        await under.engine.signal(eid, "go", "now")
        await under.run_until_idle()
        count = len((await under.engine.executions()).items)
        with pytest.raises(error):
            await under.engine.fork(eid, fid, overrides=overrides)
        with pytest.raises(UnknownExecution):
            await under.engine.fork(NOBODY, fid)
        assert len((await under.engine.executions()).items) == count


async def test_a_fork_of_a_cancelled_execution_is_not_cancelled(url: str) -> None:
    shop = Shop()
    shop.broken = False
    async with engine_under_test(shop.registry, url=url) as under:
        eid = await under.engine.start("pay", 2, version="1")
        await under.run_until_idle()
        await under.engine.cancel(eid)
        await under.run_until_idle()
        copy = await under.engine.fork(eid, "root/receive#0")
        await under.engine.signal(copy, "go", "on")
        await under.run_until_idle()
        assert await under.engine.result(copy) == [3, "on", 1, 70, "charged 20"]


# -- versions ----------------------------------------------------------------------------------


async def test_a_suspended_execution_goes_on_with_another_version(url: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        engine = under.engine
        eid = await engine.start("pay", 2, version="1")
        await under.run_until_idle()
        assert await engine.migrate(eid, "2", by=ADA) == "1"
        assert await engine.status(eid) == "suspended"
        assert (await engine.execution(eid)).version == "2"
        await engine.signal(eid, "go", "now")
        await under.run_until_idle()
        assert await engine.result(eid) == ["better", 20, 3, "now"]
        assert shop.runs == {"quote": 1, "kid": 1}
        line = await trace_of(under, eid)
        assert line.endswith("XU[channel] XM | XR(4,migrate) CL receive#0 XC")
        codes = {
            e.type: e.provenance.code.version
            for e in await engine.journal(eid)
            if e.provenance.code
        }
        assert (codes["execution.started"], codes["execution.completed"]) == ("1", "2")
        migrated = [e for e in await engine.journal(eid) if e.type == "execution.migrated"]
        assert [e.payload for e in migrated] == [{"from_version": "1", "version": "2"}]
        told = [e for e in await engine.store.control() if e.type == "execution.migrated"]
        assert len(told) == 1


async def test_a_pending_execution_begins_with_the_version_it_was_given_to(url: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        eid = await under.engine.start("pay", 2, version="1")
        await under.engine.migrate(eid, "2")
        await under.engine.signal(eid, "go", 1)
        await under.run_until_idle()
        assert (await under.engine.result(eid))[0] == "better"
        assert (await trace_of(under, eid)).startswith("XM XS FS quote#0/1")


async def test_a_running_owner_is_not_disturbed(url: str) -> None:
    gate, registry = Gate(), Registry()

    @registry.workflow("long", version="1")
    async def old(ctx: Context) -> str:
        await ctx.step(gate.wait, name="wait")
        await ctx.receive("x")
        return "old"

    @registry.workflow("long", version="2")
    async def new(ctx: Context) -> str:
        await ctx.step(gate.wait, name="wait")
        await ctx.receive("x")
        return "new"

    async with cluster(registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("long", version="1")
        async with running(process) as task:
            await gate.entered.wait()
            await process.engine.migrate(eid, "2")
            assert (await process.engine.execution(eid)).version == "1"
            gate.opened.set()
            await task
        assert await process.engine.status(eid) == "suspended"
        line = await trace_of(process, eid)
        assert line == (
            "XS FS wait#0/1 FC wait#0 FS receive#0/1 FU receive#0 XU[channel] XM | XR(2,migrate) "
            "XU[channel]"
        )
        await process.engine.signal(eid, "x", 1)
        await process.run_until_idle()
        assert await process.engine.result(eid) == "new"


@pytest.mark.cold
async def test_the_three_ways_out_of_a_block(url: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        engine = under.engine
        eids = [await engine.start("pay", 2, version="1") for _ in range(3)]
        await under.run_until_idle()
        shop.shift = 1
        for eid in eids:
            await engine.signal(eid, "go", 1)
        await under.run_until_idle()
        for eid in eids:
            row = await engine.execution(eid)
            assert row.suspended_on == ("operator",)
            assert row.blocked is not None
            assert "resume the execution" in row.blocked
        assert await engine.resume_many(workflow="pay") == 3
        await under.run_until_idle()
        shop.shift, shop.broken = 0, False
        restored, cancelled, migrated = eids
        await engine.resume(restored, by=ADA)
        await engine.cancel(cancelled)
        await engine.migrate(migrated, "2")
        await under.run_until_idle()
        assert (await engine.result(restored))[-1] == "charged 20"
        assert await engine.status(cancelled) == "cancelled"
        assert (await engine.result(migrated))[0] == "better"
        resumed = [
            e.payload["reason"] for e in await engine.journal(restored) if "reason" in e.payload
        ]
        assert "resume by human:ada@example.com" in resumed


async def test_a_migration_that_cannot_be_meant_is_refused(url: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        engine = under.engine
        eid = await engine.start("pay", 2, version="1")
        await under.run_until_idle()
        before = await trace_of(under, eid)
        with pytest.raises(Conflict, match="already"):
            await engine.migrate(eid, "1")
        with pytest.raises(UnknownWorkflow):
            await engine.migrate(eid, "9")
        with pytest.raises(InvalidArgument):
            await engine.migrate(eid, "no version!")
        with pytest.raises(UnknownExecution):
            await engine.migrate(NOBODY, "2")
        await engine.terminate(eid)
        with pytest.raises(AlreadyClosed):
            await engine.migrate(eid, "2")
        with pytest.raises(AlreadyClosed):
            await engine.resume(eid)
        assert await trace_of(under, eid) == f"{before} XT"


async def test_a_worker_that_knows_one_version_leaves_the_other_alone(url: str) -> None:
    shop = Shop()
    only = Registry()
    only.workflow("pay", version="1")(shop.pay)
    only.workflow("kid", version="1")(shop.kid)
    async with cluster(shop.registry, url) as machines:
        poor, rich = await machines.boot(registry=only), await machines.boot()
        one = await rich.engine.start("pay", 1, version="1")
        two = await rich.engine.start("pay", 1, version="2")
        await poor.run_until_idle()
        assert [await rich.engine.status(eid) for eid in (one, two)] == ["suspended", "pending"]
        await rich.engine.migrate(one, "2")
        await poor.run_until_idle()
        assert await rich.engine.status(one) == "suspended"
        for eid in (one, two):
            await rich.engine.signal(eid, "go", 1)
        await rich.run_until_idle()
        for eid in (one, two):
            assert (await rich.engine.result(eid))[0] == "better"


# -- many --------------------------------------------------------------------------------------


async def test_operations_on_many_count_what_they_did(url: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        engine = under.engine
        eids = await engine.start_many("pay", [[n] for n in range(5)], version="1")
        await under.run_until_idle()
        assert await engine.migrate_many("2", workflow="pay") == 5
        assert await engine.migrate_many("2", workflow="pay") == 0
        with pytest.raises(UnknownWorkflow):
            await engine.migrate_many("9", workflow="pay")
        assert await engine.cancel_many(text="pa", status="completed") == 0
        assert await engine.cancel_many(workflow="pay", until=under.clock.now()) == 0
        await engine.cancel(eids[0])
        assert await engine.cancel_many(workflow="pay", reason="all") == 5
        assert await engine.terminate_many(status=["suspended", "running"]) == 5
        assert await engine.terminate_many(workflow="pay") == 0
        assert {str(await engine.status(eid)) for eid in eids} == {"terminated"}


async def test_all_are_migrated_or_none(url: str) -> None:
    """A workflow without that version is found before anything is done."""
    shop = Shop()
    other = shop.registry

    @other.workflow("aaa-unversioned", version="1")
    async def unversioned(ctx: Context) -> None:
        await ctx.receive("x")

    async with engine_under_test(shop.registry, url=url) as under:
        eids = [
            await under.engine.start("pay", 1, version="1"),
            await under.engine.start(unversioned),
            await under.engine.start("pay", 2, version="1"),
        ]
        with pytest.raises(UnknownWorkflow):
            await under.engine.migrate_many("2", status="pending")
        assert {(await under.engine.execution(eid)).version for eid in eids} == {"1"}


async def test_failed_executions_are_retried_together(url: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry, url=url) as under:
        eids = await under.engine.start_many("pay", [[n] for n in range(3)], version="1")
        for eid in eids:
            await under.engine.signal(eid, "go", None)
        await under.run_until_idle()
        shop.broken = False
        assert await under.engine.retry_failed_many(workflow="pay") == 3
        await under.run_until_idle()
        done = await under.engine.executions(workflow="pay", status="completed")
        assert len(done.items) == 3


@pytest.mark.parametrize(
    "name", ["cancel_many", "terminate_many", "resume_many", "retry_failed_many", "migrate_many"]
)
async def test_an_empty_filter_is_refused(name: str) -> None:
    shop = Shop()
    async with engine_under_test(shop.registry) as under:
        eid = await under.engine.start("pay", 1)
        args = ("2",) if name == "migrate_many" else ()
        empty: list[dict[str, Any]] = [{}, {"workflow": None}, {"tags": {}}, {"text": ""}]
        for which in empty:
            with pytest.raises(InvalidArgument, match="empty"):
                await getattr(under.engine, name)(*args, **which)
        with pytest.raises(TypeError):
            await getattr(under.engine, name)(*args, colour="red")
        assert await under.engine.status(eid) == "pending"
