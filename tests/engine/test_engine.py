"""What can an application ask for? Starts and signals, each checked before it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

import perdure
from perdure import (
    Actor,
    AlreadyClosed,
    Conflict,
    Context,
    Engine,
    InvalidArgument,
    InvalidName,
    NotSerializable,
    Registry,
    StartOptions,
    StoreUnavailable,
    UnknownExecution,
    UnknownWorkflow,
)
from perdure.testing import EngineUnderTest, engine_under_test

ADA = Actor.human("ada@example.com")


def orders() -> Registry:
    """Give workflows with arguments of several kinds."""
    registry = Registry()

    @registry.workflow("order", version="1")
    async def order_1(ctx: Context, item: str, amount: int = 1, *, gift: bool = False) -> Any:
        del ctx
        return ["1", item, amount, gift]

    @registry.workflow("order", version="2", queue="orders")
    async def order_2(ctx: Context, item: str, amount: int = 1, *, gift: bool = False) -> Any:
        del ctx
        return ["2", item, amount, gift]

    @registry.workflow("wait", version="1")
    async def wait(ctx: Context) -> Any:
        message = await ctx.receive("x")
        return message.payload if message else None

    @registry.workflow("any", version="1")
    async def anything(ctx: Context, *items: Any, **more: Any) -> Any:
        del ctx
        return [list(items), more]

    registry.functions = {"order": order_1, "wait": wait}  # type: ignore[attr-defined]
    return registry


async def nothing_stored(under: EngineUnderTest) -> bool:
    """Tell whether neither an execution nor a task is in the store."""
    info = await under.engine.store_info()
    return not info.executions and not info.ready_tasks and not info.delayed_tasks


async def result_of(under: EngineUnderTest, eid: UUID) -> Any:
    await under.run_until_idle()
    return await under.engine.result(eid)


# -- start -----------------------------------------------------------------------------------


async def test_start_by_name_takes_the_version_registered_last(url: str) -> None:
    async with engine_under_test(orders(), url=url, queues=["default", "orders"]) as under:
        eid = await under.engine.start("order", "tea")
        assert await result_of(under, eid) == ["2", "tea", 1, False]
        row = await under.engine.execution(eid)
        assert (row.workflow, row.version, row.queue) == ("order", "2", "orders")


async def test_start_by_function_takes_the_version_of_the_function(url: str) -> None:
    registry = orders()
    function = registry.functions["order"]  # type: ignore[attr-defined]
    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(function, "tea", 2, gift=True)
        assert await result_of(under, eid) == ["1", "tea", 2, True]


@pytest.mark.parametrize("version", ["1", "2"])
async def test_start_with_a_version_takes_that(url: str, version: str) -> None:
    registry = orders()
    function = registry.functions["order"]  # type: ignore[attr-defined]
    async with engine_under_test(registry, url=url, queues=["default", "orders"]) as under:
        for workflow in ("order", function):
            eid = await under.engine.start(workflow, "tea", version=version)
            assert (await result_of(under, eid))[0] == version


@pytest.mark.parametrize(
    ("workflow", "version", "says"),
    [
        ("ordre", None, "'ordre'.*unknown"),
        ("order", "3", "'order' version '3'.*1, 2"),
        (len, None, "'len'"),
        ("", None, "''"),
    ],
)
async def test_what_is_not_registered_is_refused(
    url: str, workflow: Any, version: str | None, says: str
) -> None:
    async with engine_under_test(orders(), url=url) as under:
        with pytest.raises(UnknownWorkflow, match=says):
            await under.engine.start(workflow, "tea", version=version)
        assert await nothing_stored(under)


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ([], {}, "item"),
        (["tea", 1, True], {}, "too many positional"),
        (["tea"], {"colour": "red"}, "colour"),
        (["tea"], {"item": "twice"}, "item"),
        (["tea", "many"], {}, "'amount'"),
        ([7], {}, "'item'"),
        (["tea"], {"gift": "yes"}, "'gift'"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_by_name(
    url: str, args: list[Any], kwargs: dict[str, Any], says: str
) -> None:
    async with engine_under_test(orders(), url=url) as under:
        with pytest.raises(InvalidArgument, match=says):
            await under.engine.start("order", *args, version="1", **kwargs)
        assert await nothing_stored(under)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), r"\$"),
        ({"deep": [1, {2, 3}, object()]}, r"\$.*deep"),
        (float("nan"), r"\$"),
        ({1: {"a": float("inf")}}, r"\$"),
        ("\ud800", r"\$"),
    ],
)
async def test_arguments_that_are_not_json_are_refused(url: str, value: Any, path: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        with pytest.raises(NotSerializable, match=path) as refused:
            await under.engine.start("any", 1, value)
        assert "items" in str(refused.value)
        with pytest.raises(NotSerializable, match="more"):
            await under.engine.start("any", more=value)
        assert await nothing_stored(under)


async def test_arguments_reach_the_function_as_json(url: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        instant = datetime(2030, 1, 1, tzinfo=UTC)
        eid = await under.engine.start("any", 1, ("a", None), at=instant, text="ü☂")
        expected = [[1, ["a", None]], {"at": "2030-01-01T00:00:00Z", "text": "ü☂"}]
        assert await result_of(under, eid) == expected
        row = await under.engine.execution(eid)
        assert row.args == expected


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"key": ""}, InvalidName, "dispatch key"),
        ({"key": "k" * 513}, InvalidName, "dispatch key"),
        ({"key": "new\nline"}, InvalidName, "dispatch key"),
        ({"key": 7}, InvalidName, "dispatch key"),
        ({"queue": "two words"}, InvalidName, "queue"),
        ({"queue": ""}, InvalidName, "queue"),
        ({"options": StartOptions(priority=-1)}, InvalidArgument, "priority"),
        ({"options": StartOptions(priority=1_000_001)}, InvalidArgument, "priority"),
        ({"options": StartOptions(priority=True)}, InvalidArgument, "priority"),
        ({"options": StartOptions(tags={"a": 1})}, InvalidArgument, "tags"),  # type: ignore[dict-item]
        ({"options": StartOptions(baggage={"a": "\ud800"})}, InvalidArgument, "baggage"),
        (
            {"options": StartOptions(not_before=datetime(2030, 1, 1))},  # noqa: DTZ001 - refused
            InvalidArgument,
            "not_before",
        ),
        ({"options": {"priority": 1}}, InvalidArgument, "options"),
        ({"by": "ada"}, InvalidArgument, "by is 'ada'"),
        ({"version": 1}, InvalidArgument, "1"),
    ],
)
async def test_settings_out_of_range_are_refused_by_name(
    url: str, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    async with engine_under_test(orders(), url=url) as under:
        with pytest.raises(error, match=says):
            await under.engine.start("wait", **settings)
        many = {{"key": "keys"}.get(name, name): value for name, value in settings.items()}
        if "keys" in many:
            many["keys"] = [many["keys"]]
        with pytest.raises(error, match=says):
            await under.engine.start_many("wait", [[]], **many)
        assert await nothing_stored(under)


async def test_what_was_asked_for_is_on_the_record(url: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        options = StartOptions(priority=7, tags={"customer": "acme"}, baggage={"trace": "t"})
        eid = await under.engine.start("wait", key="k", queue="q", options=options, by=ADA)
        row = await under.engine.execution(eid)
        assert (row.eid, row.kind, row.status, row.epoch) == (eid, "code", "pending", 0)
        assert (row.dispatch_key, row.queue, row.tags) == ("k", "q", {"customer": "acme"})
        assert (row.created_by, row.created_at) == (ADA, under.clock.now())
        assert (row.started_at, row.ended_at, row.worker_id) == (None, None, None)
        record = await under.engine.store.record(eid)
        assert record is not None
        assert record.options == options
        assert len(record.seed) == 16


# -- dispatch keys ---------------------------------------------------------------------------


async def test_a_second_start_with_a_key_finds_the_first(url: str) -> None:
    """Also after it has ended, and whatever else is asked for."""
    async with engine_under_test(orders(), url=url) as under:
        first = await under.engine.start_result("wait", key="once")
        assert not first.deduplicated
        await under.engine.signal(first.eid, "x", 1)
        await under.run_until_idle()
        again = await under.engine.start_result("wait", key="once", queue="elsewhere")
        assert again == (first.eid, True)
        assert await under.engine.start("wait", key="once") == first.eid
        assert await under.engine.start("wait", key="twice") != first.eid
        assert len((await under.engine.executions()).items) == 2


async def test_a_key_of_another_workflow_is_refused(url: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        eid = await under.engine.start("wait", key="taken")
        with pytest.raises(Conflict, match=f"'taken'.*{eid}"):
            await under.engine.start("any", key="taken")
        other_version = await under.engine.start("order", "tea", version="1", key="order")
        assert await under.engine.start("order", "tea", version="2", key="order") == other_version
        assert len((await under.engine.executions()).items) == 2


async def test_many_concurrent_starts_with_one_key_start_once(url: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        starts = [under.engine.start_result("wait", key="once") for _ in range(50)]
        results = await asyncio.gather(*starts)
        assert len({result.eid for result in results}) == 1
        assert [result.deduplicated for result in results].count(False) == 1


async def test_many_tasks_start_at_the_same_time(url: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        eids = await asyncio.gather(*[under.engine.start("any", n) for n in range(200)])
        assert len(set(eids)) == 200
        await under.run_until_idle()
        results = [await under.engine.result(eid) for eid in eids]
        assert results == [[[n], {}] for n in range(200)]


async def test_ids_sort_in_the_order_of_the_starts(url: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        eids = [await under.engine.start("wait") for _ in range(50)]
        assert sorted(map(str, eids)) == [str(eid) for eid in eids]
        assert {eid.version for eid in eids} == {7}


# -- start_many ------------------------------------------------------------------------------


async def test_start_many_keeps_the_order(url: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        keys = [f"k{number}" for number in range(30)]
        eids = await under.engine.start_many("any", [(number,) for number in range(30)], keys=keys)
        again = await under.engine.start_many("any", [[number] for number in range(30)], keys=keys)
        assert again == eids
        await under.run_until_idle()
        assert [await under.engine.result(eid) for eid in eids] == [[[n], {}] for n in range(30)]
        assert await under.engine.start_many("any", []) == []


@pytest.mark.parametrize(
    ("argslist", "keys", "says"),
    [
        ([["tea"], ["tea", "many"]], None, "'amount'"),
        ([["tea"], []], None, "item"),
        ([["tea"], "tea"], None, "'tea'"),
        ([["tea"], 7], None, "7"),
        ([["tea"], [object()]], None, "'item'"),
        ([["tea"], ["tea"]], ["only one"], "keys"),
        ([["tea"], ["tea"]], ["one", ""], "dispatch key"),
    ],
)
async def test_start_many_checks_everything_before_it_stores_anything(
    url: str, argslist: Any, keys: Any, says: str
) -> None:
    async with engine_under_test(orders(), url=url) as under:
        with pytest.raises(InvalidArgument, match=says):
            await under.engine.start_many("order", argslist, keys=keys, version="1")
        assert await nothing_stored(under)


# -- signal ----------------------------------------------------------------------------------


async def test_a_signal_to_an_execution_that_has_ended_is_refused(url: str) -> None:
    async with engine_under_test(orders(), url=url) as under:
        eid = await under.engine.start("any")
        await under.run_until_idle()
        journal = await under.engine.journal(eid)
        with pytest.raises(AlreadyClosed, match="completed"):
            await under.engine.signal(eid, "x", 1)
        await under.run_until_idle()
        assert await under.engine.journal(eid) == journal
        mail = await under.engine.store.mail(eid)
        assert mail is not None
        assert mail.messages == ()


@pytest.mark.parametrize(
    ("channel", "settings", "error"),
    [
        ("", {}, InvalidName),
        ("Upper", {}, InvalidName),
        ("c" * 201, {}, InvalidName),
        (7, {}, InvalidName),
        ("x", {"payload": object()}, NotSerializable),
        ("x", {"correlation": 7}, InvalidArgument),
        ("x", {"correlation": "\ud800"}, InvalidArgument),
        ("x", {"by": "ada"}, InvalidArgument),
    ],
)
async def test_signals_out_of_range_are_refused(
    url: str, channel: Any, settings: dict[str, Any], error: type[Exception]
) -> None:
    async with engine_under_test(orders(), url=url) as under:
        eid = await under.engine.start("wait")
        with pytest.raises(error):
            await under.engine.signal(eid, channel, **{"payload": 1, **settings})
        mail = await under.engine.store.mail(eid)
        assert mail is not None
        assert mail.messages == ()


# -- ids -------------------------------------------------------------------------------------

Call = Callable[[Engine, Any], Any]
CALLS: dict[str, Call] = {
    "result": lambda engine, eid: engine.result(eid),
    "wait": lambda engine, eid: engine.wait(eid),
    "status": lambda engine, eid: engine.status(eid),
    "execution": lambda engine, eid: engine.execution(eid),
    "journal": lambda engine, eid: engine.journal(eid),
    "frames": lambda engine, eid: engine.frames(eid),
    "lease": lambda engine, eid: engine.lease(eid),
    "watch": lambda engine, eid: anext(engine.watch(eid)),
    "signal": lambda engine, eid: engine.signal(eid, "x", 1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_bad_and_unknown_ids_are_refused_everywhere(url: str, call: Call) -> None:
    async with engine_under_test(orders(), url=url) as under:
        for bad in ("", "xyz", str(uuid4())[:-1], f"{{{uuid4()}}}", uuid4().hex, 7, None, b"x"):
            with pytest.raises(InvalidArgument, match="execution id"):
                await call(under.engine, bad)
        unknown = uuid4()
        for form in (unknown, str(unknown), str(unknown).upper()):
            with pytest.raises(UnknownExecution, match=str(unknown)):
                await call(under.engine, form)
        assert await nothing_stored(under)


async def test_a_closed_engine_refuses_and_does_not_hang() -> None:
    async with perdure.open("memory:", orders()) as engine:
        eid = await engine.start("wait")
    with pytest.raises(StoreUnavailable, match="closed"):
        await engine.start("wait")
    with pytest.raises(StoreUnavailable, match="closed"):
        await engine.signal(eid, "x", 1)
    with pytest.raises(StoreUnavailable, match="closed"):
        await engine.status(eid)
