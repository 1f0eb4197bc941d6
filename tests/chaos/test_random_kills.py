"""What is left after random kills of random workers? Each execution has ended once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from perdure import Engine, Entry
from tests.chaos.conftest import Start, WorkerProcess
from tests.chaos.program import effects

EXECUTIONS = 150
WORKERS = 3
KILLS = 4
FIDS = [f"root/effect#{number}" for number in range(4)]


async def one_more(start: Start) -> WorkerProcess:
    """Start a worker that takes a few executions at a time, so that each has something to do."""
    return await start(ttl=1.5, executions=6)


async def next_effects(workers: list[WorkerProcess], over: asyncio.Event) -> list[int]:
    """Wait until some workers have had an effect, and tell which; none when all is over."""
    listening = [asyncio.create_task(worker.says("effect")) for worker in workers]
    ending = asyncio.create_task(over.wait())
    await asyncio.wait([*listening, ending], return_when=asyncio.FIRST_COMPLETED)
    heard = [number for number, task in enumerate(listening) if task.done()]
    for task in (*listening, ending):
        task.cancel()
    await asyncio.wait([*listening, ending])
    return heard


async def kill_now_and_then(
    start: Start,
    workers: list[WorkerProcess],
    chance: random.Random,
    over: asyncio.Event,
    *,
    kills: int = KILLS,
) -> None:
    """Kill a worker after a random number of effects, right after one of its own; start another."""
    for _ in range(kills):
        heard: list[int] = []
        enough = chance.randrange(5, 30)
        while len(heard) < enough:
            heard += await next_effects(workers, over)
            if over.is_set():
                return
        await workers[heard[-1]].kill()
        workers[heard[-1]] = await one_more(start)


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


def recoveries(journal: list[Entry]) -> int:
    """Count how often the owner of an execution died."""
    resumed = [entry for entry in journal if entry.type == "execution.resumed"]
    return [entry.payload["reason"] for entry in resumed].count("recovery")


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_execution_ends_once_however_often_workers_die(
    engine: Engine, start: Start, tmp_path: Path, seed: int
) -> None:
    """A death costs at most one more run of what ran at that moment, and changes no memo."""
    print(f"seed {seed}")  # noqa: T201 - the way to repeat a failure
    workers = list(await asyncio.gather(*[one_more(start) for _ in range(WORKERS)]))
    eids = await engine.start_many("short", [[number] for number in range(EXECUTIONS)])
    chance = random.Random(seed)  # noqa: S311 - no secret
    over = asyncio.Event()
    killing = asyncio.create_task(kill_now_and_then(start, workers, chance, over))
    results = await asyncio.gather(*[engine.result(eid) for eid in eids])
    over.set()
    await killing
    done = effects(tmp_path)
    assert set(done) == {(eid, fid) for eid in eids for fid in FIDS}
    recovered = 0
    for eid, result in zip(eids, results, strict=True):
        journal = await engine.journal(eid)
        check(journal)
        values = memos(journal)
        assert result == [values[fid] for fid in FIDS]
        deaths = recoveries(journal)
        recovered += deaths
        for fid in FIDS:
            assert values[fid] in done[eid, fid], "the memo is the value of a real run"
            assert len(done[eid, fid]) <= 1 + deaths
    assert recovered > 0, "the kills hit something"
    info = await engine.store_info()
    assert (info.ready_tasks, info.delayed_tasks, info.timers) == (0, 0, 0)
