"""How fast do children come and go, and how dear is a wait set with a thousand entries?"""

from __future__ import annotations

import asyncio
import time

import perdure
from bench.measurement import Bench, check
from bench.waking import until_suspended
from bench.workloads import registry

MANY = 1_000
TEN_TIMES = 10


def measure_children(bench: Bench) -> dict[str, float]:
    """Measure an execution with 1,000 children, and with 10,000, from start to result."""
    return asyncio.run(_children(bench))


def measure_answers(bench: Bench) -> dict[str, float]:
    """Measure a gather of 1,000 receives that are answered one by one."""
    return {"answers": asyncio.run(_answers(bench))}


async def _children(bench: Bench) -> dict[str, float]:
    many = bench.pick(MANY, 20)
    async with perdure.open(bench.url(), registry) as engine, engine.worker():
        await _family(engine, min(many, 100))
        few = await _family(engine, many)
        lots = await _family(engine, many * TEN_TIMES)
    return {"children": few, "children.ratio": lots / few}


async def _family(engine: perdure.Engine, children: int) -> float:
    began = time.perf_counter()
    total = await engine.result(await engine.start("family", children))
    taken = time.perf_counter() - began
    check(holds=total == sum(range(children)), otherwise=f"{children} children gave {total}")
    return taken


async def _answers(bench: Bench) -> float:
    many = bench.pick(MANY, 20)
    async with perdure.open(bench.url(), registry) as engine, engine.worker():
        eid = await engine.start("questions", many)
        await until_suspended(engine, 1)
        began = time.perf_counter()
        for number in range(many):
            await engine.signal(eid, f"answer.{number}", number)
        total = await engine.result(eid)
        taken = time.perf_counter() - began
    check(holds=total == sum(range(many)), otherwise=f"{many} answers gave {total}")
    return taken
