"""How fast is the same work on DBOS, on its SQLite store?"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from typing import Any

from bench.measurement import Absent, Bench, check
from bench.peers import import_peer
from bench.workloads import EXPECTED, STEPS, echo

CONCURRENT = 100
SQLITE_MIN = (3, 42)  # its schema calls unixepoch('subsec')


def measure_dbos(bench: Bench) -> dict[str, float]:
    """Measure ten async steps, 100 workflows at a time and one alone."""
    dbos = import_peer("dbos", "dbos")
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        message = f"DBOS needs SQLite 3.42 or newer, this Python has {sqlite3.sqlite_version}"
        raise Absent(message)
    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{bench.directory / 'dbos.sqlite'}",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    step = dbos.DBOS.step()(echo)

    async def ten_steps() -> int:
        total = 0
        for number in range(STEPS):
            total += await step(number)
        return total

    workflow = dbos.DBOS.workflow()(ten_steps)
    dbos.DBOS.launch()
    try:
        return asyncio.run(_measure(dbos.DBOS, workflow, bench))
    finally:
        dbos.DBOS.destroy()


async def _measure(dbos: Any, workflow: Any, bench: Bench) -> dict[str, float]:
    rounds, count = bench.pick(4, 1), bench.pick(50, 2)
    await _round(dbos, workflow, bench.pick(20, 1))
    began = time.perf_counter()
    for _ in range(rounds):
        await _round(dbos, workflow, bench.pick(CONCURRENT, 10))
    elapsed = time.perf_counter() - began
    taken: list[float] = []
    for _ in range(count):
        alone_began = time.perf_counter()
        await _round(dbos, workflow, 1)
        taken.append(time.perf_counter() - alone_began)
    return {
        "dbos.steps": rounds * bench.pick(CONCURRENT, 10) * STEPS / elapsed,
        "dbos.alone": statistics.median(taken) * 1e3,
    }


async def _round(dbos: Any, workflow: Any, executions: int) -> None:
    starts = [dbos.start_workflow_async(workflow) for _ in range(executions)]
    handles = await asyncio.gather(*starts)
    results = await asyncio.gather(*(handle.get_result() for handle in handles))
    check(holds=results == [EXPECTED] * executions, otherwise=f"the results are {results}")
