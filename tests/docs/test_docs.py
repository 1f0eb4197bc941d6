"""Is what the pages show true? Their samples run, and their commands exist.

The ``python`` blocks of a page run in order, as one program in an empty directory. A block that
cannot run has ``<!-- no-run: reason -->`` on the line before it and is reported as skipped. The
``perdure`` and ``make`` commands of ``bash`` and ``console`` blocks must name what there is.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

from perdure.surfaces.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted(
    path
    for pages in (
        ROOT.glob("*.md"),
        *((ROOT / name).rglob("*.md") for name in ("docs", "examples")),
    )
    for path in pages
)
BLOCK = re.compile(
    r"^(?:<!-- no-run: (?P<reason>[^\n]+?) -->\n)?```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
ASSIGNMENT = re.compile(r"\w+=")
RUN_SECONDS_MAX = 15

# Runs blocks in a module of their own, with the lines of the page in tracebacks.
RUNNER = """
import json, sys, types
blocks = json.loads(sys.argv.pop())
sample = sys.modules["__main__"] = types.ModuleType("__main__")
for page, line, text in blocks:
    exec(compile("\\n" * line + text, page, "exec"), sample.__dict__)
"""


@dataclass(frozen=True)
class Sample:
    """A block of a page, or one command of it; `line` is the number of lines before it."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        """Say where it is."""
        return f"{Path(self.page).relative_to(ROOT).as_posix()}:{self.line + 1}"


def blocks(page: Path, *languages: str) -> Iterator[tuple[Sample, str | None]]:
    """Find the blocks of a page in some languages, and why one is not run."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match["language"] in languages:
            line = text.count("\n", 0, match.start("text"))
            yield Sample(str(page), line, match["text"]), match["reason"]


def commands(block: Sample, *, prompt: bool) -> Iterator[Sample]:
    """Find the simple commands of a block; with a prompt, only what follows ``$``."""
    lines = block.text.replace("\\\n", "  ").splitlines()
    for number, line in enumerate(lines, block.line):
        if prompt and not line.startswith("$ "):
            continue
        words = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command: list[str] = []
        for word in [*words, ";"]:
            if not set(word) <= set("();<>|&"):
                if command or not ASSIGNMENT.match(word):
                    command.append(word)
            elif command:
                yield Sample(block.page, number, shlex.join(command))
                command = []


def commands_of(page: Path, program: str) -> Iterator[Sample]:
    """Find the commands of a page that call a program."""
    for language in ("bash", "console"):
        for block, _ in blocks(page, language):
            for command in commands(block, prompt=language == "console"):
                if command.text.split()[0] == program:
                    yield command


def every(program: str) -> list[Sample]:
    """List the commands of all pages that call a program."""
    return [command for page in PAGES for command in commands_of(page, program)]


def run(samples: list[Sample], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run blocks as one program in a folder."""
    argument = json.dumps([astuple(sample) for sample in samples])
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER, argument],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


def programs() -> Iterator[tuple[list[Sample], str | None]]:
    """Give the blocks of each page as one program, and each block that is not run by itself."""
    for page in PAGES:
        found = list(blocks(page, "python"))
        if together := [sample for sample, reason in found if reason is None]:
            yield together, None
        yield from (([sample], reason) for sample, reason in found if reason is not None)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [pytest.param(*program, id=str(program[0][0])) for program in programs()],
)
def test_python_blocks_run(samples: list[Sample], reason: str | None, tmp_path: Path) -> None:
    if reason is not None:
        compile(samples[0].text, str(samples[0]), "exec")
        pytest.skip(f"{samples[0]} is not run: {reason}")
    done = run(samples, tmp_path)
    assert done.returncode == 0, done.stderr


def check_perdure(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """Parse a command line without running it, and give the exit code."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    # Asking for help ends a command after its options are parsed and before it runs.
    asked = ["perdure", *arguments[:split], "--help", *arguments[split:]]
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("command", every("perdure"), ids=str)
def test_perdure_command_exists(command: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    code = check_perdure(shlex.split(command.text)[1:], monkeypatch)
    assert code in (0, None), command.text


@pytest.mark.parametrize("arguments", [["no-such"], ["list", "--no-such"]])
def test_perdure_command_that_does_not_exist_is_found(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_perdure(arguments, monkeypatch) not in (0, None)


@pytest.mark.parametrize("command", every("make"), ids=str)
def test_make_command_exists(command: Sample) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = {word for word in shlex.split(command.text)[1:] if not ASSIGNMENT.match(word)}
    assert named <= targets


def test_commands_are_found_in_blocks() -> None:
    text = (
        "$ A=1 perdure list --json | head  # all\nperdure: no command\n$ EID=$(perdure start x)\n"
    )
    found = [each.text for each in commands(Sample("page", 0, text), prompt=True)]
    assert "perdure list --json" in found
    assert "perdure start x" in found
    assert not any("no" in each for each in found)


def test_blocks_run_as_one_program_and_fail_with_their_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nvalue = 1\n```\n\n<!-- no-run: no sense -->\n```python\nnonsense\n```\n"
        "```python\nassert value == 2\n```\n",
        encoding="utf-8",
    )
    found = list(blocks(page, "python"))
    assert [reason for _, reason in found] == [None, "no sense", None]
    done = run([sample for sample, reason in found if reason is None], tmp_path)
    assert done.returncode != 0
    assert "line 10" in done.stderr
