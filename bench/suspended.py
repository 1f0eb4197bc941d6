"""What do many suspended executions cost? Nothing, to a wake-up and to an idle worker.

Two stores are woken in turns, one with 100 and one with 100,000 suspended executions, so that what
disturbs the machine disturbs both.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from itertools import cycle
from uuid import UUID

import perdure
from bench.measurement import Bench
from bench.waking import until_suspended, wake
from bench.workloads import registry, start

FEW = 100
SETTLE_S = 1.0


def measure_wake(bench: Bench) -> dict[str, float]:
    """Measure from a signal until the function has it, in one process."""
    return {"wake": asyncio.run(_wake(bench))}


def measure_suspended(bench: Bench) -> dict[str, float]:
    """Measure wake-ups among many suspended executions, and an idle worker beside them."""
    return asyncio.run(_suspended(bench))


async def _wake(bench: Bench) -> float:
    warm_up, count = bench.pick(20, 1), bench.pick(200, 3)
    async with perdure.open(bench.url(), registry) as engine, engine.worker():
        eids = await _suspend(engine, FEW if not bench.quick else 2)
        taken = [
            await wake(engine, eid, number)
            for number, eid in zip(range(warm_up + count), cycle(eids), strict=False)
        ]
    return statistics.median(taken[warm_up:]) * 1e3


async def _suspended(bench: Bench) -> dict[str, float]:
    few = await _fill(bench, "few", bench.pick(FEW, 10))
    many = await _fill(bench, "many", bench.pick(100_000, 200))
    samples = bench.pick(400, 3)
    # As many of them as in the small store: each is woken, and so replayed, equally often.
    spread = many[:: len(many) // len(few)]
    beside_few: list[float] = []
    beside_many: list[float] = []
    async with (
        perdure.open(bench.url("few"), registry) as small,
        perdure.open(bench.url("many"), registry) as large,
        small.worker(),
        large.worker(),
    ):
        for number, one, other in zip(range(samples), cycle(few), cycle(spread), strict=False):
            beside_few.append(await wake(small, one, 2 * number))
            beside_many.append(await wake(large, other, 2 * number + 1))
    median_few, median_many = statistics.median(beside_few), statistics.median(beside_many)
    return {
        "suspended.few": median_few * 1e3,
        "suspended.many": median_many * 1e3,
        "suspended": median_many / median_few,
        "idle": await _idle(bench),
    }


async def _fill(bench: Bench, name: str, executions: int) -> list[UUID]:
    async with perdure.open(bench.url(name), registry) as engine, engine.worker():
        return await _suspend(engine, executions)


async def _suspend(engine: perdure.Engine, executions: int) -> list[UUID]:
    """Start executions that wait for a message; return when all of them are suspended."""
    eids = await start(engine, "listen", executions)
    await until_suspended(engine, executions)
    return eids


async def _idle(bench: Bench) -> float:
    """Give the share of a core, in percent, that an idle worker takes: all its threads."""
    seconds = bench.pick(12, 1)
    async with perdure.open(bench.url("many"), registry) as engine, engine.worker():
        await asyncio.sleep(0 if bench.quick else SETTLE_S)
        began, cpu_began = time.perf_counter(), time.process_time()
        await asyncio.sleep(seconds)
        cpu, elapsed = time.process_time() - cpu_began, time.perf_counter() - began
    return cpu / elapsed * 100
