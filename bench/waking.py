"""How is the time from a signal to the function measured? Shared by what wakes an execution.

Nothing tells when an execution is suspended, so they ask until it is; that time is not counted.
"""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import perdure
from bench.workloads import stage

PAUSE_S = 0.001
COUNT_PAUSE_S = 0.05


async def wake(engine: perdure.Engine, eid: UUID, number: int) -> float:
    """Send a number to an execution that listens; return when it is suspended again.

    Returns:
        Seconds from before the signal until the workflow function had the message.
    """
    arrival = stage.expect(number)
    began = time.perf_counter()
    await engine.signal(eid, "go", number)
    taken = await arrival - began
    while await engine.status(eid) is not perdure.ExecutionStatus.SUSPENDED:  # noqa: ASYNC110
        await asyncio.sleep(PAUSE_S)
    return taken


async def until_suspended(engine: perdure.Engine, executions: int) -> None:
    """Return when so many executions are suspended."""
    while (await engine.store_info()).executions.get("suspended", 0) < executions:  # noqa: ASYNC110
        await asyncio.sleep(COUNT_PAUSE_S)
