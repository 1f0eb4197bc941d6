"""How are the histories recorded? ``python -m tests.replay.record VERSION`` writes them.

Run it once for a version that is to be kept; recorded histories are never written again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from uuid import UUID

from perdure.testing import EngineUnderTest, engine_under_test
from tests.replay.history import record
from tests.replay.workflows import registry

HISTORIES = Path(__file__).parent / "histories"
HOUR = 3600


async def main(version: str) -> None:
    """Run every workflow to its end, and write what their journals hold."""
    async with engine_under_test(registry) as under:
        await write(under, version, "frames", await run(under, "frames"))
        await write(under, version, "effects", await run(under, "effects"))
        await write(under, version, "streams", await run(under, "streams"))
        await write(under, version, "cancelled", await run(under, "cancelled", cancel=True))
        await write(under, version, "failed", await run(under, "failed"))
        await write(under, version, "continued", await run(under, "continued", 0))


async def run(
    under: EngineUnderTest, workflow: str, *arguments: object, cancel: bool = False
) -> UUID:
    """Run a workflow to its end, with a new worker in between."""
    engine = under.engine
    eid = await engine.start(workflow, *arguments)
    await under.run_until_idle()
    await under.kill_worker()
    await under.start_worker()
    if cancel:
        await engine.cancel(eid, reason="to be recorded")
    elif not (await engine.execution(eid, follow=False)).status.terminal:
        await engine.signal(eid, "answer", "yes")
    for _ in range(3):
        await under.advance(HOUR)
    return eid


async def write(under: EngineUnderTest, version: str, name: str, eid: UUID) -> None:
    """Write the history of an execution."""
    history = await record(under.engine, eid)
    path = HISTORIES / f"{version}-{name}.json"
    with path.open("x", encoding="utf-8") as file:  # what is recorded is never written again
        file.write(json.dumps(history, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
