"""How fast is the same work on Absurd? It needs PostgreSQL: `PEER_PG` names a database of its own.

Run ``absurdctl init`` on that database first.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from typing import Any

from bench.measurement import Absent, Bench, check
from bench.peers import import_peer
from bench.workloads import EXPECTED, STEPS, echo

CONCURRENT = 100
QUEUE = "perdure_bench"


def measure_absurd(bench: Bench) -> dict[str, float]:
    """Measure ten async steps, 100 tasks at a time and one alone."""
    absurd = import_peer("absurd_sdk", "absurd-sdk")
    url = os.environ.get("PEER_PG")
    if not url:
        message = "Absurd needs PostgreSQL: PEER_PG names no database"
        raise Absent(message)
    return asyncio.run(_measure(absurd.AsyncAbsurd(url, queue_name=QUEUE), bench))


class _Work:
    """The tasks that run, and what they gave."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._left = 0
        self._done = asyncio.Event()
        client.register_task("ten_steps")(self._ten_steps)

    async def _ten_steps(self, _params: Any, ctx: Any) -> int:
        total = 0
        for number in range(STEPS):

            async def step(number: int = number) -> int:
                return await echo(number)

            total += await ctx.step(f"step{number}", step)
        check(holds=total == EXPECTED, otherwise=f"the result is {total}")
        self._left -= 1
        if self._left == 0:
            self._done.set()
        return total

    async def run(self, executions: int) -> None:
        """Start tasks, and return when all of them have run."""
        self._left = executions
        self._done.clear()
        for _ in range(executions):
            await self._client.spawn("ten_steps", {})
        await self._done.wait()


async def _measure(client: Any, bench: Bench) -> dict[str, float]:
    rounds, singles = bench.pick(4, 1), bench.pick(50, 2)
    executions = bench.pick(CONCURRENT, 10)
    await client.create_queue(QUEUE)
    work = _Work(client)
    worker = asyncio.create_task(
        client.start_worker(concurrency=50, batch_size=50, poll_interval=0.02)
    )
    await work.run(executions)
    began = time.perf_counter()
    for _ in range(rounds):
        await work.run(executions)
    elapsed = time.perf_counter() - began
    taken: list[float] = []
    for _ in range(singles):
        alone_began = time.perf_counter()
        await work.run(1)
        taken.append(time.perf_counter() - alone_began)
    worker.cancel()
    await asyncio.wait([worker])
    return {
        "absurd.steps": rounds * executions * STEPS / elapsed,
        "absurd.alone": statistics.median(taken) * 1e3,
    }
