"""How does a command become a consumer? It is run once for each task, until one says stop."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import tempfile
from typing import Annotated

import typer

import perdure
from perdure.model.instants import duration_us
from perdure.runtime.consumer import Consumer
from perdure.runtime.registry import Registry
from perdure.surfaces.cli.failures import failures
from perdure.surfaces.cli.guard import guarding
from perdure.surfaces.cli.logs import logs_on_stderr
from perdure.surfaces.cli.output import say
from perdure.surfaces.cli.program import RUNNING_MAX, CannotStart, Program
from perdure.surfaces.cli.stopping import Stop, stop_signals
from perdure.surfaces.cli.target import check_store, configured
from perdure.surfaces.cli.typed import DEFAULT_STORE, DebugOption, StoreOption

LAST_WORDS = "its commands are killed; what it held is done again when the leases expire"

CommandArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[--] COMMAND [ARG]...", help="What answers a task.", show_default=False
    ),
]
QueueOption = Annotated[
    list[str], typer.Option("--queue", metavar="NAME", help="A queue of tasks; again for the next.")
]
HolderOption = Annotated[
    str | None,
    typer.Option(
        "--holder",
        metavar="ID",
        help="Under which id it holds tasks, of its own and the same after a restart: then it "
        "goes on with what it held at once.  [default: HOST-PID]",
    ),
]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit", min=1, max=RUNNING_MAX, metavar="N", help="Do at most so many at one time."
    ),
]
TtlOption = Annotated[
    float,
    typer.Option(
        "--ttl",
        metavar="SECONDS",
        help="Silent for so long, it counts as dead, and others take over; it hears of a cancel "
        "within a third of it.",
    ),
]
GraceOption = Annotated[
    float,
    typer.Option(
        "--grace", min=0, metavar="SECONDS", help="How long a command has from SIGTERM to SIGKILL."
    ),
]
DrainOption = Annotated[
    float,
    typer.Option(
        "--drain", min=0, metavar="SECONDS", help="How long running commands have at the end."
    ),
]


def consume(
    command: CommandArgument,
    *,
    queue: QueueOption,
    holder: HolderOption = None,
    limit: LimitOption = 1,
    ttl: TtlOption = 60,
    grace: GraceOption = 10,
    drain: DrainOption = 30,
    once: Annotated[bool, typer.Option("--once", help="Stop as soon as no task is ready.")] = False,
    store: StoreOption = DEFAULT_STORE,
    debug: DebugOption = False,
) -> None:
    """Answer delegated tasks with a command.

    COMMAND runs once for each task. It reads the payload as JSON on its standard input and prints
    the answer, one JSON document, with exit status 0. Everything else returns the task to its
    queue, for a while that doubles. It finds PERDURE_EID, PERDURE_FID, PERDURE_TASK_ID,
    PERDURE_QUEUE and PERDURE_ATTEMPT in its environment. What it writes as JSON into the file
    PERDURE_STATE_FILE is kept in the task, and is there again after a crash.

    If nobody waits for the answer any more, the command gets SIGTERM. At SIGTERM or Ctrl-C the
    consumer takes no new task, lets running commands finish and exits with 0. A second signal stops
    it at once, with 143 or 130, and kills its commands.
    """
    named = holder or f"{socket.gethostname()}-{os.getpid()}"

    async def work() -> None:
        patience, time_left = (
            duration_us(name, given) / 1e6 for name, given in (("grace", grace), ("drain", drain))
        )
        if shutil.which(command[0]) is None:
            message = f"there is no command {command[0]!r}; install it, or give its path"
            raise CannotStart(message)
        with stop_signals(LAST_WORDS) as stop:
            async with perdure.open(check_store(store), Registry(), config=configured()) as engine:
                consumer = engine.consumer(queue, holder=named, ttl=ttl)
                with (
                    tempfile.TemporaryDirectory(prefix="perdure-") as folder,
                    guarding(folder) as guard,
                ):
                    program = Program(
                        command, guard, folder, grace=patience, ttl=ttl, stop=stop.event.set
                    )
                    say(
                        f"consumer {named} is up: store {engine.store.url}; "
                        f"queues {', '.join(queue)}; command {shlex.join(command)}"
                    )
                    await _live(consumer, program, stop, limit, time_left, once=once)
            say(f"consumer {named} stopped: {stop.name or 'no task is ready'}")

    with failures(debug=debug), logs_on_stderr(debug=debug):
        asyncio.run(work())


async def _live(
    consumer: Consumer, program: Program, stop: Stop, limit: int, drain: float, *, once: bool
) -> None:
    """Work until a signal comes or, with `once`, no task is ready; drain.

    Raises:
        CannotStart: if the command cannot be started.
    """
    working = asyncio.ensure_future(consumer.run(program.answer, limit=limit, until_empty=once))
    stopped = asyncio.ensure_future(stop.event.wait())
    await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if stop.name is not None:
        say(f"{stop.name}: running commands have {drain:g} s; a second signal stops at once")
    consumer.stop()
    await asyncio.wait([working], timeout=drain)
    working.cancel()
    await asyncio.wait([working])
    if not working.cancelled():
        working.result()
    if program.broken is not None:
        raise program.broken
