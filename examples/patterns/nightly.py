"""Ticks: three schedulers notice every midnight of a week, and each report is made once."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import perdure
from perdure import Context, Engine, Registry
from perdure.patterns import on_tick

WEEK = [datetime(2030, 6, 3, tzinfo=UTC) + timedelta(days=day) for day in range(7)]
SCHEDULERS = 3

registry = Registry()


def make_report(day: str) -> str:
    """Make the report of a day."""
    return f"report of {day}"


@registry.workflow("nightly", version="1")
async def nightly(ctx: Context, day: str) -> str:
    """Make the report of a day."""
    return await ctx.step(make_report, day)


async def notice(engine: Engine) -> list[perdure.ExecutionRow]:
    """Notice every midnight, as one of several schedulers does."""
    eids = [
        await on_tick(engine, nightly, "reports", midnight, midnight.date().isoformat())
        for midnight in WEEK
    ]
    return [await engine.wait(eid, timeout=30) for eid in eids]


async def main(directory: Path) -> list[str]:
    """Let the schedulers notice; give the reports that were made."""
    url = f"sqlite:///{directory / 'nightly.db'}"
    async with perdure.open(url, registry) as engine, engine.worker():
        await asyncio.gather(*(notice(engine) for _ in range(SCHEDULERS)))
        made = (await engine.executions(workflow="nightly")).items
    print(f"{SCHEDULERS} schedulers, {len(WEEK)} midnights, {len(made)} reports")
    return sorted(str(row.result) for row in made)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made_for:
        reports = asyncio.run(main(Path(made_for)))
        sys.exit(reports != [f"report of {midnight.date().isoformat()}" for midnight in WEEK])
