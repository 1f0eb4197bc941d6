"""Do the public types say what is right and what is wrong? mypy decides, over files beside this."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def check(*files: Path) -> str:
    """Run mypy with the settings of the project, and give what it prints."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.timeout(120)
def test_types_are_what_the_snippets_say() -> None:
    """Right use gives the asserted types; each wrong use is refused with the expected error."""
    assert (
        check(
            HERE / "frames.py",
            HERE / "engine.py",
            HERE / "trees.py",
            HERE / "sync.py",
            HERE / "patterns.py",
        )
        == ""
    )


@pytest.mark.timeout(120)
def test_a_type_that_is_not_refused_is_found(tmp_path: Path) -> None:
    """The check above would notice an error that no longer occurs, and one that is new."""
    snippet = tmp_path / "snippet.py"
    snippet.write_text(
        "from perdure import Context\n"
        "def f(x: int) -> int: return x\n"
        "async def w(ctx: Context) -> None:\n"
        "    await ctx.step(f, 1)  # type: ignore[call-overload]\n"
        "    await ctx.step(f, 'x')\n",
        encoding="utf-8",
    )
    found = check(snippet)
    assert 'snippet.py:4: error: Unused "type: ignore" comment' in found
    assert "snippet.py:5: error: No overload variant" in found
