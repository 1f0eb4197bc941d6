"""How many durable steps per second, and how soon is one execution done?

The clock runs from before the starts until the last result was read. Each result is checked, and
afterwards a second engine, which knows only the file, must find every execution completed.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import perdure
from bench.measurement import Bench, check
from bench.workloads import EXPECTED, STEPS, registry

CONCURRENT = 100


def measure_steps(bench: Bench) -> dict[str, float]:
    """Measure steps per second of 100 executions at a time, with async steps."""
    rate, loop_us, others_us = asyncio.run(_steps(bench, "ten_steps"))
    return {"steps": rate, "steps.loop": loop_us, "steps.others": others_us}


def measure_sync_steps(bench: Bench) -> dict[str, float]:
    """Measure the same with steps that run in threads."""
    return {"sync": asyncio.run(_steps(bench, "ten_sync_steps"))[0]}


def measure_alone(bench: Bench) -> dict[str, float]:
    """Measure one execution at a time, from before its start until its result was read."""
    return {"alone": asyncio.run(_alone(bench))}


async def _steps(bench: Bench, workflow: str) -> tuple[float, float, float]:
    """Give steps per second, and microseconds of CPU per step: of the loop, of other threads."""
    warm_up, rounds = bench.pick(5, 1), bench.pick(30, 1)
    async with perdure.open(bench.url(), registry) as engine, engine.worker():
        for _ in range(warm_up):
            await _round(engine, workflow)
        began, loop_cpu, cpu = time.perf_counter(), time.thread_time(), time.process_time()
        for _ in range(rounds):
            await _round(engine, workflow)
        elapsed = time.perf_counter() - began
        loop_cpu, cpu = time.thread_time() - loop_cpu, time.process_time() - cpu
    await _check_store(bench, (warm_up + rounds) * CONCURRENT)
    steps = rounds * CONCURRENT * STEPS
    return steps / elapsed, loop_cpu / steps * 1e6, (cpu - loop_cpu) / steps * 1e6


async def _round(engine: perdure.Engine, workflow: str) -> None:
    eids = await engine.start_many(workflow, [()] * CONCURRENT)
    results = await asyncio.gather(*(engine.result(eid) for eid in eids))
    check(holds=results == [EXPECTED] * CONCURRENT, otherwise=f"the results are {results}")


async def _alone(bench: Bench) -> float:
    warm_up, count = bench.pick(20, 1), bench.pick(200, 3)
    taken: list[float] = []
    async with perdure.open(bench.url(), registry) as engine, engine.worker():
        for _ in range(warm_up + count):
            began = time.perf_counter()
            result = await engine.result(await engine.start("ten_steps"))
            taken.append(time.perf_counter() - began)
            check(holds=result == EXPECTED, otherwise=f"the result is {result}")
    await _check_store(bench, warm_up + count)
    return statistics.median(taken[warm_up:]) * 1e3


async def _check_store(bench: Bench, executions: int) -> None:
    """Check with a second engine that the file holds every execution and every step."""
    async with perdure.open(bench.url(), registry) as engine:
        found = (await engine.store_info()).executions
        check(
            holds=found.get("completed") == executions == sum(found.values()),
            otherwise=f"{executions} executions ran, the store holds {found}",
        )
        for row in (await engine.executions(limit=CONCURRENT)).items:
            entries = await engine.journal(row.eid)
            steps = sum(entry.type == "frame.completed" for entry in entries)
            check(holds=steps == STEPS, otherwise=f"{row.eid} has {steps} completed steps")
