"""How do the tests call the command line? In this process, behind a pipe, and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner, Result

from perdure.surfaces.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.surfaces.orders:registry"
COMMAND = (sys.executable, "-m", "perdure")
UNSET = dict.fromkeys(["PERDURE_BY", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"])
STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Cli:
    """The command line of this process, on one store."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *args: object, input_: str | bytes | None = None, **env: str) -> Result:
        """Run a command in this process; `env` adds environment variables."""
        settings = {**UNSET, "PERDURE_STORE": self.url, "PERDURE_APP": APP, **env}
        return CliRunner().invoke(app, [str(arg) for arg in args], input=input_, env=settings)

    def done(self, *args: object, input_: str | bytes | None = None, **env: str) -> str:
        """Run a command that must be done; give what it printed, without the last line feed."""
        result = self(*args, input_=input_, **env)
        assert result.exit_code == 0, result.output
        return result.stdout.removesuffix("\n")

    def documents(self, *args: object, **env: str) -> list[Any]:
        """Run a command that must be done with ``--json``; give its documents."""
        return [json.loads(line) for line in self.done(*args, "--json", **env).splitlines()]

    def complaint(
        self, code: int, *args: object, input_: str | bytes | None = None, **env: str
    ) -> str:
        """Run a command that must end with `code` and one sentence; give the sentence."""
        result = self(*args, input_=input_, **env)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        assert result.stderr.startswith("perdure: ")
        assert result.stderr.count("\n") == 1, result.stderr
        assert "Traceback" not in result.stderr
        return result.stderr.removeprefix("perdure: ").strip()

    def run_worker(self) -> None:
        """Run executions until there is nothing left to do."""
        self.done("worker", "--once", "--queue", "default", "--drain", "0")


class Filled(NamedTuple):
    """A store with executions, and their ids by what has become of them."""

    cli: Cli
    eids: dict[str, str]


def start_one_of_each(cli: Cli) -> Filled:
    """Bring one execution into each status, and one into a block."""
    eids = {
        "completed": cli.done("start", "greet", "Ada", "--tag", "customer=acme"),
        "failed": cli.done("start", "fail"),
        "retried": cli.done("start", "retry"),
        "suspended": cli.done("start", "approve", "--key", "order:7", "--tag", "size=9"),
        "blocked": cli.done("start", "block"),
    }
    cli.run_worker()
    eids["pending"] = cli.done("start", "approve", "--queue", "slow", "--tag", "customer=acme")
    return Filled(cli, eids)


def environment(**more: str) -> dict[str, str]:
    """Give the environment of a process that finds this perdure and no settings of the user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    for name in UNSET:
        kept.pop(name, None)
    return {
        **kept,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "TERM": "xterm-256color",
        **more,
    }


def in_pipe(
    *args: object, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as a process behind pipes."""
    return subprocess.run(
        [*COMMAND, *map(str, args)],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def on_terminal(
    *args: object, cwd: Path, columns: int, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command as a process on a terminal; give its exit code and all that it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *map(str, args)],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65_536):
            shown += block
    except OSError:  # the last writer has closed it
        pass
    finally:
        os.close(ours)
    return process.wait(), shown.decode().replace("\r\n", "\n")


def plain(shown: str) -> str:
    """Give what a terminal shows without its styles."""
    return STYLE.sub("", shown)
