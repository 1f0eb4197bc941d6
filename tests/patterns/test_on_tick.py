"""Ticks: one execution for each, however many notice it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from perdure import Conflict, Context, InvalidArgument, InvalidName, Registry, StartOptions
from perdure.patterns import on_tick
from tests.engine.cluster import cluster, retrying
from tests.engine.support import result_of

MIDNIGHT = datetime(2030, 6, 1, tzinfo=UTC)


class Nowhere(tzinfo):
    """A time zone that does not know its offset: an instant in it is none."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _: datetime | None) -> str:
        return "nowhere"


def nightly() -> Registry:
    """Give a workflow that echoes, and one that does not."""
    registry = Registry()

    @registry.workflow("other", version="1")
    async def other(_ctx: Context) -> None:
        pass

    @registry.workflow("nightly", version="1")
    async def run(ctx: Context, what: str, *, times: int = 1) -> str:
        await ctx.sleep(0)
        return what * times

    return registry


async def test_a_tick_starts_one_execution(url: str) -> None:
    async with cluster(nightly(), url) as machines:
        engines = [(await machines.boot()).engine for _ in range(3)]
        started = await asyncio.gather(
            *(on_tick(e, "nightly", "n", MIDNIGHT, "a", times=2) for e in engines * 4)
        )
        assert len(set(started)) == 1
        same = MIDNIGHT.astimezone(timezone(timedelta(hours=5)))
        assert await on_tick(engines[0], "nightly", "n", same, "a") == started[0]
        other = await on_tick(engines[0], "nightly", "n", MIDNIGHT + timedelta(days=1), "b")
        third = await on_tick(engines[0], "nightly", "m", MIDNIGHT, "c", queue="slow")
        assert len({started[0], other, third}) == 3
        row = await engines[0].execution(started[0])
        assert (str(row.created_by), row.dispatch_key) == (
            "schedule:n",
            "tick:n:2030-06-01T00:00:00Z",
        )
        assert (await engines[0].execution(third)).queue == "slow"
        await machines.processes[0].run_until_idle()
        assert await result_of(machines.processes[0], started[0]) == "aa"


async def test_a_tick_whose_answer_was_lost_is_started_once(url: str) -> None:
    """However often it is started again, while it runs and when it has ended."""
    async with cluster(nightly(), url) as machines:
        process = await machines.boot()
        process.wire.answers_lost = 1
        async with retrying(machines.clock):
            eid = await on_tick(process.engine, "nightly", "n", MIDNIGHT, "a")
        assert await on_tick(process.engine, "nightly", "n", MIDNIGHT, "a") == eid
        await process.run_until_idle()
        assert await on_tick(process.engine, "nightly", "n", MIDNIGHT, "a") == eid, "it has ended"
        assert [row.eid for row in (await process.engine.executions()).items] == [eid]


async def test_a_tick_belongs_to_one_workflow(url: str) -> None:
    async with cluster(nightly(), url) as machines:
        engine = (await machines.boot()).engine
        options = StartOptions(tags={"of": "n"})
        eid = await on_tick(engine, "nightly", "n", MIDNIGHT, "a", options=options)
        assert (await engine.execution(eid)).tags == {"of": "n"}
        with pytest.raises(Conflict, match="tick:n:2030"):
            await on_tick(engine, "other", "n", MIDNIGHT)


@pytest.mark.parametrize(
    ("schedule", "tick", "error"),
    [
        ("n", datetime(2030, 6, 1), InvalidArgument),  # noqa: DTZ001 - what is refused
        ("n", "2030-06-01", InvalidArgument),
        ("n", datetime(2030, 6, 1, tzinfo=Nowhere()), InvalidArgument),
        ("n", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), InvalidArgument),
        (7, MIDNIGHT, InvalidName),
        ("n" * 201, MIDNIGHT, InvalidName),
        ("no name", MIDNIGHT, InvalidName),
        ("", MIDNIGHT, InvalidName),
    ],
)
async def test_bad_input_is_refused(url: str, schedule: Any, tick: Any, error: type) -> None:
    async with cluster(nightly(), url) as machines:
        process = await machines.boot()
        with pytest.raises(error):
            await on_tick(process.engine, "nightly", schedule, tick, "a")
        assert (await process.engine.executions()).items == ()
