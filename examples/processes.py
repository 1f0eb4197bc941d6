"""How do the examples start and kill real processes? ``perdure`` commands on one store."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Commands:
    """Starts ``perdure`` commands in the background; what they print goes to a file.

    Attributes:
        log: the file.
    """

    def __init__(self, url: str, log: Path, environment: Mapping[str, str] | None = None) -> None:
        """Take the store that the commands work on, and what else their environment holds."""
        self.log = log
        given = environment or {}
        self._environment = {
            **os.environ,
            "PERDURE_STORE": url,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            **given,
        }

    async def begin(self, *words: str) -> Process:
        """Start a command."""
        command = (sys.executable, "-m", "perdure", *words)
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command, env=self._environment, stdin=DEVNULL, stdout=log, stderr=STDOUT, cwd=ROOT
            )


async def kill(*processes: Process) -> None:
    """Kill processes with SIGKILL."""
    for process in processes:
        process.kill()
        await process.wait()


async def end(*processes: Process) -> None:
    """Let processes end in good order."""
    for process in processes:
        process.terminate()
        await process.wait()
