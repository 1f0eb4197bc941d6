"""Does an engine give the view of its store? In memory, or in a file beside that of the store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import perdure
from perdure import Actor, Context, Registry, StoreUnavailable
from perdure.testing import engine_under_test
from tests.projection.support import names

registry = Registry()


@registry.workflow("parent", version="1")
async def parent(ctx: Context) -> Any:
    return await ctx.child(child, 7)


@registry.workflow("child", version="1")
async def child(ctx: Context, number: int) -> int:
    await ctx.sleep(timedelta(hours=1))
    return number


@registry.workflow("broken", version="1")
async def broken(_: Context) -> None:
    message = "out of order"
    raise ValueError(message)


@registry.workflow("ask", version="1")
async def ask(ctx: Context, *announced: tuple[str, Any]) -> None:
    for kind, payload in announced:
        await ctx.announce(kind, payload)
    await ctx.receive("never")


async def check(engine: perdure.Engine) -> None:
    """Compare what the view says of every execution with what the store says."""
    rows = {row.eid: row for row in (await engine.executions(limit=500)).items}
    seen = {one.eid: one for one in (await engine.projection.executions(limit=500)).items}
    assert rows.keys() == seen.keys()
    same = ["workflow", "version", "status", "queue", "dispatch_key", "created_at", "started_at"]
    same += ["updated_at", "ended_at", "error", "continued_as"]
    for eid, row in rows.items():
        for name in same:
            assert getattr(seen[eid], name) == getattr(row, name), name
        if not row.status.terminal:
            assert (seen[eid].suspended_on, seen[eid].blocked) == (row.suspended_on, row.blocked)
        assert seen[eid].parent == (None if row.parent is None else row.parent.eid)
    assert await engine.projection.counts() == (await engine.store_info()).executions


async def test_the_view_says_what_the_store_says(url: str) -> None:
    async with engine_under_test(registry, url=url) as under:
        engine = under.engine
        eid = await engine.start(parent, key="k")
        failed = await engine.start(broken)
        await check(engine)
        await under.run_until_idle()
        await check(engine)
        (one,) = await engine.projection.children(eid)
        assert (one.workflow, one.status) == ("child", "suspended")
        await engine.cancel(await engine.start(parent), by=Actor.human("ada@example.com"))
        await engine.terminate(await engine.start(parent), reason="wrong")
        await under.run_until_idle()
        await engine.retry_failed(failed)
        await check(engine)
        await under.advance(timedelta(hours=2))
        assert await engine.status(eid) == "completed"
        await check(engine)
        await engine.projection.rebuild()
        await check(engine)


async def test_an_inbox_of_an_engine(url: str) -> None:
    request: dict[str, Any] = {
        "rid": "1",
        "queue": "q",
        "payload": {},
        "schema": None,
        "deadline": None,
    }
    async with engine_under_test(registry, url=url) as under:
        nonsense = [("review.requested", 7), ("review.decided", {}), ("review.expired", None)]
        eid = await under.engine.start(ask, *nonsense, ("review.requested", request))
        await under.run_until_idle()
        (review,) = (await under.engine.projection.reviews(status="pending")).items
        assert (review.eid, review.rid) == (eid, "1")
        assert len(await under.engine.projection.announcements(eid=eid)) == 4
        await under.engine.terminate(eid)
        assert (await under.engine.projection.reviews(status="pending")).items == ()


async def test_the_file_is_beside_that_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made when it is used first, though the process has gone elsewhere meanwhile."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with perdure.open("sqlite:///x.db", registry) as engine:
        await engine.start(broken)
        assert "x.db-projection" not in names(tmp_path)
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert await engine.projection.counts() == {"pending": 1}
        assert "x.db-projection" in names(tmp_path)
    with pytest.raises(StoreUnavailable):
        await engine.projection.counts()
    assert names(tmp_path / "elsewhere") == []
    monkeypatch.chdir(tmp_path)
    async with perdure.open("sqlite:///x.db", registry) as engine:
        assert await engine.projection.counts() == {"pending": 1}


async def test_a_view_in_memory_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with perdure.open("memory:", registry) as engine:
        eid: UUID = await engine.start(broken)
        assert [one.eid for one in (await engine.projection.executions()).items] == [eid]
    assert names(tmp_path) == []


async def test_one_who_reads_after_a_position_sees_the_write(url: str) -> None:
    async with perdure.open(url, registry) as engine:
        await engine.start(broken)
        async for entry in engine.events():
            assert await engine.projection.wait_for(entry.seq)
            break
        assert await engine.projection.counts() == {"pending": 1}
