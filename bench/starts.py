"""How many executions can be started per second? Without a worker: only the starts cost."""

from __future__ import annotations

import asyncio
import time

import perdure
from bench.measurement import Bench, check
from bench.workloads import registry

BATCH = 100


def measure_starts(bench: Bench) -> dict[str, float]:
    """Measure starts in batches, and starts that are awaited one by one."""
    return asyncio.run(_starts(bench))


async def _starts(bench: Bench) -> dict[str, float]:
    batches, singles = bench.pick(200, 2), bench.pick(1_000, 10)
    async with perdure.open(bench.url(), registry) as engine:
        await engine.start_many("ten_steps", [()] * BATCH)
        began = time.perf_counter()
        for _ in range(batches):
            await engine.start_many("ten_steps", [()] * BATCH)
        in_batches = batches * BATCH / (time.perf_counter() - began)
        began = time.perf_counter()
        for _ in range(singles):
            await engine.start("ten_steps")
        one_by_one = singles / (time.perf_counter() - began)
    started = (batches + 1) * BATCH + singles
    async with perdure.open(bench.url(), registry) as engine:
        info = await engine.store_info()
    check(
        holds=info.executions.get("pending") == started == info.ready_tasks,
        otherwise=f"{started} executions were started, the store holds {info}",
    )
    return {"starts": in_batches, "starts.single": one_by_one}
