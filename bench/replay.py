"""How long does a long journal take to replay?

The clock runs from the signal until the function has received it: the dequeue, the reading of the
journal, the replay of every step and one commit are inside.
"""

from __future__ import annotations

import asyncio
import statistics

import perdure
from bench.measurement import Bench, check
from bench.waking import until_suspended, wake
from bench.workloads import registry, stage

COLD = perdure.EngineConfig(warm_executions=0)


def measure_replay(bench: Bench) -> dict[str, float]:
    """Measure the replay of an execution of 10,000 steps."""
    return {"replay": asyncio.run(_replay(bench))}


async def _replay(bench: Bench) -> float:
    steps, replays = bench.pick(10_000, 300), bench.pick(7, 1)
    async with perdure.open(bench.url(), registry, config=COLD) as engine, engine.worker():
        eid = await engine.start("long_then_listen", steps)
        await until_suspended(engine, 1)
        taken = [await wake(engine, eid, number) for number in range(replays)]
    check(holds=stage.ran == steps, otherwise=f"{stage.ran} steps ran, not {steps} once each")
    return statistics.median(taken)
