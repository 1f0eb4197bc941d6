"""What is left after random kills of random workers? Each execution ended once, as if nothing was."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from perdure import Engine, Entry
from tests.chaos.conftest import Start, WorkerProcess
from tests.chaos.program import effects

EXECUTIONS = 60
WORKERS = 3
KILLS = 4


async def kill_now_and_then(
    start: Start, chance: random.Random, workers: list[WorkerProcess]
) -> None:
    """Kill a worker after a random number of its effects, start another one, and so on."""
    for _ in range(KILLS):
        victim = chance.randrange(len(workers))
        for _ in range(chance.randrange(1, 15)):
            await workers[victim].says("effect")
        await workers[victim].kill()
        workers[victim] = await start(ttl=1.5)


def memos(journal: list[Entry]) -> dict[str, object]:
    """Give the value of each frame that completed; none may complete twice."""
    completed = [entry for entry in journal if entry.type == "frame.completed"]
    assert len({entry.fid for entry in completed}) == len(completed)
    return {entry.fid: entry.payload["value"] for entry in completed}


def check(journal: list[Entry]) -> None:
    """Check that a journal is dense, that epochs only rise, and that it ends once."""
    assert [entry.seq for entry in journal] == list(range(1, len(journal) + 1))
    epochs = [entry.epoch for entry in journal]
    assert epochs == sorted(epochs)
    ends = [entry.type for entry in journal].count("execution.completed")
    assert (ends, journal[-1].type) == (1, "execution.completed")


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_execution_ends_once_however_often_workers_die(
    engine: Engine, start: Start, tmp_path: Path, seed: int
) -> None:
    print(f"seed {seed}")  # noqa: T201 - the way to repeat a failure
    chance = random.Random(seed)  # noqa: S311 - no secret
    workers = list(await asyncio.gather(*[start(ttl=1.5) for _ in range(WORKERS)]))
    eids = await engine.start_many("short", [[number] for number in range(EXECUTIONS)])
    await kill_now_and_then(start, chance, workers)
    results = dict(
        zip(eids, await asyncio.gather(*[engine.result(eid) for eid in eids]), strict=True)
    )
    done = effects(tmp_path)
    runs: Counter[UUID] = Counter()
    for (eid, fid), tokens in done.items():
        assert len(tokens) <= 1 + KILLS, (fid, tokens)
        runs[eid] += len(tokens)
    for eid in eids:
        journal = await engine.journal(eid)
        check(journal)
        values = memos(journal)
        fids = ["root/effect#0", "root/effect#1", "root/effect#2", "root/effect#3"]
        assert results[eid] == [values[fid] for fid in fids]
        for fid in fids:
            assert values[fid] in done[eid, fid], "the memo is the value of a real run"
        recoveries = journal[-1].epoch - 2  # one acquisition at the start, one after the sleep
        # A kill costs at most what ran at that moment: two branches at once.
        assert runs[eid] <= len(fids) + 2 * max(recoveries, 0) + 2, trace_of(journal)
    info = await engine.store_info()
    assert (info.ready_tasks, info.delayed_tasks, info.timers) == (0, 0, 0)


def trace_of(journal: list[Entry]) -> list[str]:
    """Show a journal in a failure."""
    return [f"{entry.epoch} {entry.type} {entry.fid}" for entry in journal]
