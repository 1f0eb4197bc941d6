"""How much memory does an execution take? While it is live, and when it is suspended.

A live execution is measured as growth of the resident set, which is what an operator sees. What a
suspended one leaves behind is too little for that, so the allocations of Python are counted.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from pathlib import Path
from uuid import UUID

import perdure
from bench.measurement import Absent, Bench, check
from bench.waking import until_suspended
from bench.workloads import registry, stage, start

STATM = Path("/proc/self/statm")


def measure_live(bench: Bench) -> dict[str, float]:
    """Measure executions that each run a step which waits."""
    if not STATM.exists():
        message = f"the resident set is read from {STATM}, which this system lacks"
        raise Absent(message)
    return {"memory.live": asyncio.run(_live(bench))}


def measure_released(bench: Bench) -> dict[str, float]:
    """Measure what suspended executions leave in the worker's memory."""
    return {"memory.suspended": asyncio.run(_released(bench))}


async def _live(bench: Bench) -> float:
    few, many = bench.pick(200, 20), bench.pick(4_000, 100)
    async with (
        perdure.open(bench.url(), registry) as engine,
        engine.worker(max_executions=few + many, max_steps=few + many),
    ):
        eids = await _hold(engine, few)
        before = _resident_kib()
        eids += await _hold(engine, many)
        grown = _resident_kib() - before
        stage.release.set()
        await asyncio.gather(*(engine.result(eid) for eid in eids))
    check(holds=stage.holding == 0, otherwise=f"{stage.holding} steps still wait")
    return grown / many


async def _hold(engine: perdure.Engine, executions: int) -> list[UUID]:
    """Start executions, and return when all of them run their step."""
    stage.held.clear()
    stage.hold_target = stage.holding + executions
    eids = await start(engine, "hold", executions)
    await stage.held.wait()
    await engine.store_info()  # behind every write that was in flight
    return eids


def _resident_kib() -> float:
    gc.collect()
    pages = int(STATM.read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


async def _released(bench: Bench) -> float:
    few, many = bench.pick(1_000, 20), bench.pick(5_000, 100)
    async with perdure.open(bench.url(), registry) as engine, engine.worker():
        tracemalloc.start()
        await _suspend(engine, few, few)
        before = _traced_kib()
        await _suspend(engine, many, few + many)
        grown = _traced_kib() - before
        tracemalloc.stop()
    return grown / many


async def _suspend(engine: perdure.Engine, executions: int, suspended: int) -> None:
    await start(engine, "listen", executions)
    await until_suspended(engine, suspended)


def _traced_kib() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1024
