"""What is left of a tree of 200 executions whose workers die ten times? Every journal, whole."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from perdure import Engine
from tests.chaos.conftest import Start
from tests.chaos.program import effects
from tests.chaos.test_random_kills import check, kill_now_and_then, memos, one_more, recoveries

BRANCHES = 9
LEAVES = 21
SIZE = 1 + BRANCHES + BRANCHES * LEAVES
WORKERS = 3
KILLS = 10


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_tree_is_whole_however_often_its_workers_die(
    engine: Engine, start: Start, tmp_path: Path, seed: int
) -> None:
    """Each of the executions ends once, no message and no child is lost or doubled."""
    print(f"seed {seed}")  # noqa: T201 - the way to repeat a failure
    workers = list(await asyncio.gather(*[one_more(start) for _ in range(WORKERS)]))
    eid = await engine.start("tree", BRANCHES, LEAVES)
    over = asyncio.Event()
    chance = random.Random(seed)  # noqa: S311 - no secret
    killing = asyncio.create_task(kill_now_and_then(start, workers, chance, over, kills=KILLS))
    result = await engine.result(eid)
    over.set()
    await killing
    assert result == [[sum(range(LEAVES))] * BRANCHES, list(range(BRANCHES))]
    page = await engine.executions(limit=SIZE + 1)
    assert len(page.items) == SIZE, "every child was started once"
    done = effects(tmp_path)
    recovered = 0
    for row in page.items:
        assert row.status == "completed", row
        journal = await engine.journal(row.eid)
        check(journal)
        values = memos(journal)
        deaths = recoveries(journal)
        recovered += deaths
        for (owner, fid), tokens in done.items():
            if owner == row.eid:
                assert values[fid] in tokens, "the memo is the value of a real run"
                assert len(tokens) <= 1 + deaths
    assert recovered > 0, "the kills hit something"
    info = await engine.store_info()
    assert (info.ready_tasks, info.delayed_tasks, info.timers) == (0, 0, 0)
