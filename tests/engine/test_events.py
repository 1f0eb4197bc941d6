"""How does one follow all executions? Entry by entry of the control log, without an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal, cast

import pytest

import perdure
from perdure import Actor, Context, Engine, Entry, InvalidArgument, Registry, StoreUnavailable
from perdure.runtime import looking
from perdure.testing import engine_under_test
from tests.engine.cluster import turns

ADA = Actor.human("ada@example.com")
LIFE = ["execution.created", "execution.started", "announce.told", "execution.completed"]

registry = Registry()


@registry.workflow("tell", version="1")
async def tell(ctx: Context, what: Any) -> None:
    await ctx.announce("told", what)


@asynccontextmanager
async def following(
    engine: Engine, after: int | Literal["now"] | None = None
) -> AsyncIterator[AsyncIterator[Entry]]:
    """Follow the control log of an engine."""
    async with aclosing(cast("AsyncGenerator[Entry]", engine.events(after=after))) as events:
        yield events


async def take(events: AsyncIterator[Entry], number: int) -> list[Entry]:
    """Take some entries of a stream that has no end."""
    return [await anext(events) for _ in range(number)]


@pytest.mark.parametrize("page", [2, 500])
async def test_events_begin_at_the_beginning_and_go_on(
    url: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "CONTROL_PAGE", page)
    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(tell, {"a": 1})
        await under.run_until_idle()
        async with following(under.engine) as events:
            life = await take(events, 4)
            assert [entry.type for entry in life] == LIFE
            assert [entry.seq for entry in life] == [1, 2, 3, 4]
            assert {entry.eid for entry in life} == {eid}
            log = await under.engine.store.control()
            assert [entry.epoch for entry in life] == [told.epoch for told in log]
            created, _, told, _ = life
            assert created.payload == {"workflow": "tell", "version": "1", "queue": "default"}
            assert (created.fid, created.at) == ("root", under.clock.now())
            assert (told.fid, told.payload["payload"]) == ("root/announce#0", {"a": 1})
            later = asyncio.ensure_future(anext(events))
            await turns()
            assert not later.done()
            other = await under.engine.start(tell, 2)
            entry = await later
            assert (entry.seq, entry.type, entry.eid) == (5, "execution.created", other)
            await under.run_until_idle()
            assert [entry.type for entry in await take(events, 3)] == LIFE[1:]


@pytest.mark.parametrize(("after", "first"), [(0, 1), (3, 4), ("now", 5), (None, 1), (4, 5)])
async def test_events_begin_behind_a_position(
    url: str, after: int | Literal["now"] | None, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_under_test(registry, url=url) as under:
        await under.engine.start(tell, 1)
        await under.run_until_idle()
        store, looked = under.engine.store, asyncio.Event()
        read = store.control

        async def control(*page: int) -> Any:
            entries = await read(*page)
            looked.set()
            return entries

        monkeypatch.setattr(store, "control", control)
        async with following(under.engine, after) as events:
            entry = asyncio.ensure_future(anext(events))
            await looked.wait()
            await under.engine.start(tell, 2)
            assert (await entry).seq == first


async def test_events_name_who_ended_an_execution(url: str) -> None:
    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(tell, 1)
        await under.engine.terminate(eid, reason="wrong", by=ADA)
        async with following(under.engine) as events:
            created, ended = await take(events, 2)
        assert ended.type == "execution.terminated"
        assert ended.provenance.actor == ADA
        assert ended.payload["reason"] == "wrong"
        assert created.provenance.actor == Actor.system("perdure")


async def test_events_of_another_process(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with (
        perdure.open(url, registry) as one,
        perdure.open(url, registry) as other,
        following(one, "now") as events,
    ):
        entry = asyncio.ensure_future(anext(events))
        while not entry.done():
            await other.start(tell, 1)
            await asyncio.wait([entry], timeout=0.01)
        assert (await entry).type == "execution.created"


async def test_events_end_with_an_error_when_the_engine_is_closed(url: str) -> None:
    async with perdure.open(url, registry) as engine:
        events = engine.events()
        entry = asyncio.ensure_future(anext(events))
        await turns()
    with pytest.raises(StoreUnavailable, match="closed"):
        await entry


@pytest.mark.parametrize("after", [-1, "then", True, 1.5, 2**63])
async def test_events_after_nonsense_are_refused(after: Any) -> None:
    async with perdure.open("memory:", registry) as engine:
        with pytest.raises(InvalidArgument, match="after"):
            await anext(engine.events(after=after))


async def test_an_entry_of_a_journal_names_its_execution() -> None:
    async with engine_under_test(registry) as under:
        engine: Engine = under.engine
        eid = await engine.start(tell, 1)
        await under.run_until_idle()
        assert {entry.eid for entry in await engine.journal(eid)} == {eid}
