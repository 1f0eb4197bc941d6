"""Does a crash lose or double anything? Charges a file of invoices and kills its workers meanwhile.

It starts a flaky ledger and a worker, each a process of its own, and one execution for each row of
the file. Twice it kills the worker with SIGKILL while executions are running, and starts another.
At the end it audits what is left behind, and exits with 1 if anything is not as it must be. It
never repairs anything: what survives, survives because of perdure.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from rich.console import Console

import perdure
from perdure import Engine, ExecutionRow, ExecutionStatus

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if not __package__:  # run as a file: only its own directory is looked in
    sys.path[0] = str(ROOT)

from examples.invoices import app, audit, ledger, report  # noqa: E402 - found by the line above

KILL_AT = (Fraction(1, 3), Fraction(2, 3))
"""Which part of the invoices has ended when a worker is killed."""
SESSION_TTL_S = 2
"""How long a worker may be silent before another one takes over: short, for a short demo."""
ROWS_MIN = 30
LOOK_S = 0.05
TIME_MAX_S = 120
PAGE = 500


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    rows: int | None
    keep: bool
    seed: int
    careless: bool


def main() -> int:
    """Run the demo; give the exit code."""
    options = parse_options()
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="perdure-invoices-"))
    console.print(f"The files of this run are in {directory}", soft_wrap=True)
    # A terminated demo takes its processes with it, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    problems = None
    try:
        evidence, elapsed_s = asyncio.run(run(options, directory, console))
    except DemoError as error:
        console.print(f"The demo cannot go on: {error}", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("Interrupted.")
    else:
        problems = audit.check(evidence, kills=len(KILL_AT))
        report.print_tally(audit.tally(evidence), elapsed_s, console)
        report.print_verdict(problems, console)
    if problems == [] and not options.keep:
        shutil.rmtree(directory)
        return 0
    console.print(f"The files are kept in {directory}", soft_wrap=True)
    if problems is not None:
        report.print_hint(audit.find_cut_off(evidence), store_url(directory), console)
    return 0 if problems == [] else 1


def parse_options() -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Charge a file of invoices while the workers are killed."
    )
    parser.add_argument("--rows", type=int, help="take only the first N rows of the file")
    parser.add_argument("--keep", action="store_true", help="keep the files of the run")
    parser.add_argument(
        "--seed", type=int, default=ledger.SEED, help="decides which calls the ledger fails"
    )
    parser.add_argument(
        "--careless",
        action="store_true",
        help="let the ledger ignore idempotency keys, and see the audit fail",
    )
    parsed = parser.parse_args()
    if parsed.rows is not None and parsed.rows < ROWS_MIN:
        parser.error(f"--rows is at least {ROWS_MIN}: fewer may end before a worker is killed")
    return Options(parsed.rows, parsed.keep, parsed.seed, parsed.careless)


async def run(options: Options, directory: Path, console: Console) -> tuple[audit.Evidence, float]:
    """Run everything once; give what is left behind, and how long it took in seconds."""
    rows = read_rows(options.rows)
    outbox = directory / "outbox"
    outbox.mkdir()
    began = time.monotonic()
    async with (
        start_ledger(options, directory) as ledger_url,
        perdure.open(store_url(directory), app.registry) as engine,
    ):
        eids = await engine.start_many(
            app.settle_invoice,
            [(app.Row(**row),) for row in rows],
            keys=[row["id"] for row in rows],
        )
        console.print(f"{len(rows)} rows started {len(set(eids))} executions")
        settings = {app.LEDGER: ledger_url, app.OUTBOX: str(outbox)}
        with report.Display(len(set(eids)), console) as display:
            kills = await drive(engine, Workers(directory, settings), display)
        elapsed_s = time.monotonic() - began
        return await collect(engine, rows, ledger_url, outbox, kills), elapsed_s


def read_rows(limit: int | None) -> list[dict[str, str]]:
    """Read the first `limit` rows of the file, or all."""
    with (HERE / "invoices.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))[:limit]


def store_url(directory: Path) -> str:
    """Give the URL of the run's store."""
    return f"sqlite:///{directory / 'invoices.db'}"


# -- processes -------------------------------------------------------------------------------------


@asynccontextmanager
async def start_ledger(options: Options, directory: Path) -> AsyncIterator[str]:
    """Run the ledger; give its URL. It ends when its standard input does, so with this process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "examples.invoices.ledger", "--book", str(directory / "ledger.db")),
        *("--seed", str(options.seed)),
        *(["--careless"] if options.careless else []),
        cwd=ROOT,
        stdin=PIPE,
        stdout=PIPE,
    )
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    assert process.stdout is not None  # noqa: S101 - so is this
    try:
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            message = f"the ledger did not start: exit code {await process.wait()}"
            raise DemoError(message)
        yield url
    finally:
        process.stdin.close()
        await process.wait()


class Workers:
    """Starts the worker processes, one after the other, each with a log file of its own."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self._directory = directory
        self._settings = settings
        self.started = 0

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Worker]:
        """Run one worker; kill it at the end if it is still there."""
        self.started += 1
        log = self._directory / f"worker-{self.started}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "perdure", "worker", "--app", f"{app.__name__}:registry"),
                *("--store", store_url(self._directory)),
                *("--session-ttl", str(SESSION_TTL_S)),
                cwd=ROOT,
                env={**os.environ, **self._settings},
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
            )
        try:
            yield Worker(self.started, process, log)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@dataclass(frozen=True)
class Worker:
    """A worker process."""

    number: int
    process: Process
    log: Path

    def check_alive(self) -> None:
        """Raise if it ended by itself."""
        if self.process.returncode is not None:
            raise DemoError(self._describe(f"ended with code {self.process.returncode}"))

    async def kill(self) -> None:
        """Kill it: no handler of it runs, nothing is flushed, nothing is handed back."""
        self.check_alive()
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        """Ask it to stop, and see that it does so properly."""
        self.check_alive()
        self.process.terminate()
        code = await self.process.wait()
        if code != 0:
            raise DemoError(self._describe(f"was asked to stop and exited with {code}"))

    def _describe(self, what: str) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"worker {self.number} {what}; its log ends with", *lines[-15:]])


# -- the run ---------------------------------------------------------------------------------------


async def drive(engine: Engine, workers: Workers, display: report.Display) -> list[audit.Kill]:
    """Run workers until every execution has ended; kill all but the last one."""
    kills = []
    deadline = time.monotonic() + TIME_MAX_S
    for part in KILL_AT:
        async with workers.start() as worker:
            await watch(engine, worker, display, display.total * part, deadline)
            await worker.kill()
        running = await list_executions(engine, ExecutionStatus.RUNNING)
        kills.append(audit.Kill(worker.number, frozenset(str(row.dispatch_key) for row in running)))
        display.note(
            f"worker {worker.number} killed with SIGKILL, "
            f"{len(running)} executions were running; worker {worker.number + 1} takes over"
        )
    async with workers.start() as worker:
        await watch(engine, worker, display, display.total, deadline)
        await worker.stop()
    return kills


async def watch(
    engine: Engine, worker: Worker, display: report.Display, wanted: Fraction | int, deadline: float
) -> None:
    """Watch until `wanted` executions have ended."""
    while True:
        ended = [
            row
            for status in (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED)
            for row in await list_executions(engine, status)
        ]
        display.show(len(ended))
        if len(ended) >= wanted:
            return
        worker.check_alive()
        if time.monotonic() > deadline:
            message = f"{len(ended)} of {display.total} invoices ended within {TIME_MAX_S} s"
            raise DemoError(message)
        await asyncio.sleep(LOOK_S)


async def list_executions(
    engine: Engine, status: ExecutionStatus | None = None
) -> list[ExecutionRow]:
    """List all executions, or all of a status."""
    found: list[ExecutionRow] = []
    cursor = None
    while True:
        page = await engine.executions(status=status, limit=PAGE, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


async def collect(
    engine: Engine,
    rows: list[dict[str, str]],
    ledger_url: str,
    outbox: Path,
    kills: list[audit.Kill],
) -> audit.Evidence:
    """Collect what the run left behind."""
    executions = await list_executions(engine)
    return audit.Evidence(
        rows=rows,
        executions=executions,
        journals={str(row.dispatch_key): await engine.journal(row.eid) for row in executions},
        charges=await asyncio.to_thread(read_json, f"{ledger_url}/charges"),
        calls=await asyncio.to_thread(read_json, f"{ledger_url}/calls"),
        notes=await asyncio.to_thread(read_notes, outbox),
        kills=kills,
    )


def read_notes(outbox: Path) -> list[str]:
    """Give the invoice named in each note of the outbox."""
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in outbox.glob("*.json")]
    return [note["invoice"] for note in notes]


def read_json(url: str) -> Any:
    """Read a JSON document over HTTP."""
    with urlopen(url, timeout=10) as response:  # noqa: S310 - the ledger that was started above
        return json.load(response)


if __name__ == "__main__":
    sys.exit(main())
