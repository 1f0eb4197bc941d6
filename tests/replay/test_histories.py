"""Do the journals that earlier versions wrote still replay? To the same end, and without a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Context, Registry
from tests.replay.history import History, replay
from tests.replay.workflows import frames, registry

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def test_there_are_histories() -> None:
    assert len(HISTORIES) >= 5


def read(path: Path) -> History:
    """Read a history."""
    history: History = json.loads(path.read_text(encoding="utf-8"))
    return history


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays_to_its_end(path: Path) -> None:
    history = read(path)
    end, new = await replay(history, registry)
    assert end == {name: history[name] for name in end}
    assert [entry.type for entry in new] == ["execution.started", f"execution.{end['status']}"]


async def test_a_history_that_does_not_fit_the_code_is_found_out() -> None:
    path = next(path for path in HISTORIES if "frames" in path.stem)
    history = read(path)
    steps = [entry for entry in history["entries"] if entry[2] == "root/add:keyed"]
    steps[0][6] = "the digest of other arguments"
    end, new = await replay(history, registry)
    assert end["status"] == "suspended"
    assert "root/add:keyed" in new[-1].payload["reason"]


async def test_code_that_was_patched_since_replays_a_history() -> None:
    """What it had passed is False, what it comes to now is True; the rest is as it was."""
    patched = Registry()

    @patched.workflow("frames", version="1")
    async def patched_frames(ctx: Context) -> dict[str, Any]:
        first = ctx.patched("first")
        result = await frames(ctx)
        return {**result, "patches": [first, ctx.patched("last")]}

    history = read(next(path for path in HISTORIES if "frames" in path.stem))
    end, new = await replay(history, patched)
    assert end["result"] == {**history["result"], "patches": [False, True]}
    assert [entry.fid for entry in new if entry.type == "frame.completed"] == [
        "root/patched:first",
        "root/patched:last",
    ]
