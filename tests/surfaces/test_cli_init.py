"""Does the sample of `perdure init` run by the commands that it names?"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.support import COMMAND, Cli, environment, in_pipe

SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PERDURE = f'perdure() {{ {shlex.join(COMMAND)} "$@"; }}\n'


def run_script(script: str, cwd: Path) -> str:
    """Run shell commands that must all be done; give what they print."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", PERDURE + script],  # noqa: S607 - whichever bash there is
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_init_writes_a_sample_and_names_the_next_commands(cli: Cli, tmp_path: Path) -> None:
    text = cli.done("init", tmp_path / "new" / "hello")
    assert sorted(path.name for path in (tmp_path / "new/hello").iterdir()) == [
        "README.md",
        "app.py",
    ]
    assert f"cd {tmp_path / 'new/hello'}" in text
    assert "perdure worker --app app:registry" in text
    assert "perdure start hello" in text


def test_init_is_for_the_current_directory_if_none_is_given(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "cd " not in cli.done("init")
    assert (tmp_path / "app.py").exists()


@pytest.mark.parametrize("name", ["app.py", "README.md"])
def test_init_overwrites_nothing_and_writes_nothing_then(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    assert str(tmp_path / name) in cli.complaint(1, "init", tmp_path)
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["mine"]


def test_init_does_not_write_through_a_dangling_link(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "README.md").symlink_to(tmp_path / "elsewhere")
    assert "README.md" in cli.complaint(1, "init", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_init_says_why_a_directory_cannot_be_made(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for place in ("file", "file/below"):
        assert str(tmp_path / "file") in cli.complaint(1, "init", tmp_path / place)


def test_init_takes_back_what_it_wrote_when_the_rest_fails(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def fail(self: Path, mode: str = "r", **options: Any) -> Any:
        if mode == "x" and self.name == "README.md":
            raise OSError(28, "No space left on device", str(self))
        return real(self, mode, **options)

    monkeypatch.setattr(Path, "open", fail)
    assert "No space left on device" in cli.complaint(1, "init", tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_sample_runs_by_the_commands_of_its_readme(tmp_path: Path) -> None:
    assert in_pipe("init", cwd=tmp_path).returncode == 0
    blocks = SHELL.findall((tmp_path / "README.md").read_text(encoding="utf-8"))
    start_worker, start, answer = blocks
    command = shlex.split(start_worker)
    assert command[0] == "perdure"
    with subprocess.Popen(
        [*COMMAND, *command[1:]],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert "is up" in worker.stdout.readline()
        shown = run_script(start + answer, tmp_path)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert '"Hello, Ada!"' in shown.splitlines()
    assert "execution.completed" in shown
    assert "ConnectionError: the guest book is busy" in shown
