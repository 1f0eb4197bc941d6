"""Ticks: one execution for each, however many notice it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from perdure import Context, InvalidArgument, InvalidName, Registry
from perdure.patterns import on_tick
from tests.engine.cluster import cluster
from tests.engine.support import result_of

MIDNIGHT = datetime(2030, 6, 1, tzinfo=UTC)


def nightly() -> Registry:
    """Give a workflow that echoes."""
    registry = Registry()

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


@pytest.mark.parametrize(
    ("schedule", "tick", "error"),
    [
        ("n", datetime(2030, 6, 1), InvalidArgument),  # noqa: DTZ001 - what is refused
        ("n", "2030-06-01", InvalidArgument),
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
