"""How are the processes of these tests started, steered and ended?"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import perdure
from perdure import Engine, Registry

ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """One process that runs ``tests.chaos.program``.

    Attributes:
        pid: its process id.
        lines: what it has said and nobody has asked for; ``None`` when it has ended.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.lines: asyncio.Queue[list[str] | None] = asyncio.Queue()
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        output = self._process.stdout
        assert output is not None
        while line := await output.readline():
            self.lines.put_nowait(line.decode().split())
        self.lines.put_nowait(None)

    async def says(self, expected: str) -> None:
        """Wait until it says a word."""
        while (words := await self.lines.get()) is not None:
            if words[0] == expected:
                return
        raise EOFError(f"process {self.pid} ended without saying {expected!r}")

    def go(self) -> None:
        """Let one step that is held go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b".")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def kill(self) -> None:
        """End it without any warning."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def ended(self) -> int:
        """Wait until it has ended, and give its exit status."""
        await self._listener
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()


Start = Callable[..., Awaitable[WorkerProcess]]


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """Give the URL of a store in a file."""
    return f"sqlite:///{tmp_path / 'chaos.db'}"


@pytest.fixture
async def engine(file_url: str) -> AsyncIterator[Engine]:
    """Give an engine without workflows, to start, signal and look from outside."""
    from tests.chaos.program import registry  # noqa: PLC0415 - the same names as in the processes

    assert isinstance(registry, Registry)
    async with perdure.open(file_url, registry) as opened:
        yield opened


@pytest.fixture
async def start(file_url: str, tmp_path: Path) -> AsyncIterator[Start]:
    """Give a function that starts a worker process, and end them all."""
    processes: list[WorkerProcess] = []

    async def start_one(
        *, ttl: float = 1.0, drain: float = 30.0, executions: int = 1_000
    ) -> WorkerProcess:
        settings = (str(ttl), str(drain), str(executions))
        arguments = ("-m", "tests.chaos.program", file_url, str(tmp_path), *settings)
        with (tmp_path / "errors").open("ab") as errors:
            process = WorkerProcess(
                await asyncio.create_subprocess_exec(
                    sys.executable,
                    *arguments,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                )
            )
        processes.append(process)
        await process.says("ready")
        return process

    yield start_one
    for process in processes:
        await process.kill()
