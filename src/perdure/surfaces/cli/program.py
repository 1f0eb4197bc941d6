"""How does a command answer a task? The payload goes in, one JSON document comes out.

The command runs in a process group of its own. What it writes into its state file is kept in the
task, so it finds it there again after a crash. When it has ended, or must, nothing of its group is
left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import msgspec

from perdure.errors import InvalidArgument, LeaseLost, PerdureError, StoreUnavailable
from perdure.runtime.consumer import DelegateTask, Held
from perdure.surfaces.cli.guard import Guard, kill_group
from perdure.surfaces.cli.output import note
from perdure.surfaces.cli.wording import printable

OUTPUT_MAX = 16 * 2**20
LINE_MAX = 2**16
LOOK_S = 2.0
PIPE_S = 1.0
SHOWN_MAX = 200
RUNNING_MAX = 1_000

log = logging.getLogger("perdure.consume")


class CommandFailed(PerdureError):
    """A command has not answered its task: it failed, or what it printed is no answer."""


class CannotStart(CommandFailed):
    """A command cannot be started."""


def short_id(task: DelegateTask) -> str:
    """Name a task in short: the end of the execution's id, and what tells it from its others."""
    return f"{str(task.eid)[-8:]}:{task.task_id.rpartition(f'{task.eid}:')[2]}"


class Program:
    """A command that answers tasks, one process for each; `answer` is a handler of a consumer.

    Attributes:
        broken: why it cannot be started, or ``None``.
    """

    def __init__(
        self,
        command: Sequence[str],
        guard: Guard,
        folder: str,
        *,
        grace: float,
        ttl: float,
        stop: Callable[[], None],
    ) -> None:
        """Prepare it.

        Args:
            command: what is run, with its arguments.
            guard: ends the commands if this process does not live to do so.
            folder: where the files of the commands are.
            grace: how long a command has after SIGTERM, in seconds.
            ttl: how long a lease lasts, in seconds; the state file is looked at more often.
            stop: is called when the command cannot be started.
        """
        self._command = list(command)
        self._guard = guard
        self._folder = folder
        self._grace = grace
        self._look_s = min(LOOK_S, ttl / 3)
        self._stop = stop
        # Threads only wait for the end of a process; they are made when there are none idle.
        self._threads = ThreadPoolExecutor(RUNNING_MAX, thread_name_prefix="perdure-consume")
        self.broken: CannotStart | None = None

    async def answer(self, task: DelegateTask, held: Held) -> Any:
        """Run the command for one task, and give its answer.

        A cancel gives the command its grace, whatever comes meanwhile.

        Raises:
            CommandFailed: if it failed, or what it printed is no answer.
            CannotStart: if it did not start at all.
            LeaseLost: if somebody else holds the task, or it was withdrawn.
        """
        halt = asyncio.Event()
        running = asyncio.ensure_future(self._run(task, held, halt))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            halt.set()
            while not running.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            running.exception()  # it was told to halt, so it failed
            raise

    async def _run(self, task: DelegateTask, held: Held, halt: asyncio.Event) -> Any:
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            state = StateFile(Path(name) / "state.json", held)
            process = self._start(task, held, Path(name))
            self._guard.add(process.pid)
            ended = asyncio.get_running_loop().run_in_executor(self._threads, process.wait)
            output, errors = Answer(full=halt.set), Errors(short_id(task))
            pipes = [await _listen(output, process.stdout), await _listen(errors, process.stderr)]
            lost = await self._follow(process, ended, state, halt)
            # What the command started and left behind must not hold its pipes open, nor go on.
            kill_group(process.pid, signal.SIGKILL)
            code = await ended
            self._guard.remove(process.pid)
            closed = [asyncio.ensure_future(each.closed.wait()) for each in (output, errors)]
            await asyncio.wait(closed, timeout=PIPE_S)
            for pipe in pipes:
                pipe.close()
            await asyncio.wait(closed)
            lost = lost or await state.keep()
        if lost:
            raise lost
        return output.read(code)

    async def _follow(
        self,
        process: subprocess.Popen[bytes],
        ended: asyncio.Future[int],
        state: StateFile,
        halt: asyncio.Event,
    ) -> LeaseLost | None:
        """Keep the state of a command until it ends; end it when it is to halt."""
        halted, lost = asyncio.ensure_future(halt.wait()), None
        while not (ended.done() or halted.done() or lost):
            waits = (ended, halted)
            await asyncio.wait(waits, timeout=self._look_s, return_when=asyncio.FIRST_COMPLETED)
            lost = await state.keep()
        halted.cancel()
        if not ended.done():
            kill_group(process.pid, signal.SIGTERM)
            await asyncio.wait([ended], timeout=self._grace)
        return lost

    def _start(self, task: DelegateTask, held: Held, folder: Path) -> subprocess.Popen[bytes]:
        payload = folder / "payload.json"
        payload.write_bytes(msgspec.json.encode(task.payload))
        told = {
            "PERDURE_EID": str(task.eid),
            "PERDURE_FID": task.fid,
            "PERDURE_TASK_ID": task.task_id,
            "PERDURE_QUEUE": task.queue,
            "PERDURE_ATTEMPT": str(held.epoch),
            "PERDURE_STATE_FILE": str(folder / "state.json"),
        }
        try:
            with payload.open("rb") as stdin:
                return subprocess.Popen(  # noqa: S603 - what the user wants to be run
                    self._command,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **told},
                    process_group=0,
                )
        except OSError as error:
            message = f"command {self._command[0]!r} cannot be started: {error.strerror}"
            self.broken = CannotStart(f"{message}; its task was returned, so correct it")
            self._stop()
            raise self.broken from error


class StateFile:
    """The file in which a command keeps its state, and the task that it is kept in."""

    def __init__(self, path: Path, held: Held) -> None:
        """Write the state that the task has into the file; no file if it has none."""
        self._path = path
        self._held = held
        self._seen = b"" if held.state is None else msgspec.json.encode(held.state)
        if self._seen:
            path.write_bytes(self._seen)

    async def keep(self) -> LeaseLost | None:
        """Keep in the task what the command has written since; tell if the lease is lost.

        What is no JSON is looked at again when it has changed, and what could not be stored for
        the moment the next time.
        """
        content = self._read()
        if content == self._seen or not content.strip():
            return None
        task_id = self._held.task.task_id
        try:
            await self._held.renew(msgspec.json.decode(content))
        except StoreUnavailable:
            return None
        except LeaseLost as lost:
            return lost
        except (msgspec.DecodeError, RecursionError, InvalidArgument) as error:
            log.warning("the state of task %s is no JSON and was not kept: %s", task_id, error)
        else:
            log.debug("kept the state of task %s", task_id)
        self._seen = content
        return None

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(OUTPUT_MAX)
        except OSError:  # the command has removed it, or is just replacing it
            return b""


class _Pipe(asyncio.Protocol):
    """Reads a pipe; `closed` is set when there is nothing more."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as it is called
        """Take note of the end."""
        self.closed.set()


class Answer(_Pipe):
    """What a command prints on its standard output."""

    def __init__(self, full: Callable[[], None]) -> None:
        """Nothing was printed yet; `full` is called when it is too much."""
        super().__init__()
        self._data = bytearray()
        self._full = full

    def data_received(self, data: bytes) -> None:
        """Take what was printed."""
        if len(self._data) <= OUTPUT_MAX:
            self._data += data
        if len(self._data) > OUTPUT_MAX:
            self._full()

    def read(self, code: int) -> Any:
        """Give the answer of a command that has ended with `code`.

        Raises:
            CommandFailed: if there is none.
        """
        if len(self._data) > OUTPUT_MAX:
            message = f"the command printed more than {OUTPUT_MAX // 2**20} MiB and was stopped"
            raise CommandFailed(message)
        if code:
            message = f"the command {_describe(code)}"
            raise CommandFailed(message)
        try:
            return msgspec.json.decode(self._data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise CommandFailed(self._complaint(error)) from error

    def _complaint(self, error: Exception) -> str:
        if not self._data.strip():
            return "the command printed nothing; it is to print its answer as JSON, null for none"
        start = self._data[:SHOWN_MAX].decode(errors="replace")
        shown = printable(start.strip(), keep="\t")
        if "trailing" in str(error):
            return f"the command printed more than one JSON document; it began with {shown}"
        return f"the command printed what is no JSON ({error}); it began with {shown}"


class Errors(_Pipe):
    """What a command says on its standard error: passed on, each line with the task in front."""

    def __init__(self, label: str) -> None:
        """Nothing was said yet."""
        super().__init__()
        self._label = label
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Pass on the lines that are whole, and what is too long for one."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_MAX:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._say(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on what is left."""
        if self._rest:
            self._say(self._rest)
        super().connection_lost(exc)

    def _say(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            note(f"{self._label}  {line.decode(errors='replace').rstrip()}")


async def _listen(protocol: _Pipe, pipe: IO[bytes] | None) -> asyncio.BaseTransport:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
    return transport


def _describe(code: int) -> str:
    if code > 0:
        return f"failed with exit status {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
