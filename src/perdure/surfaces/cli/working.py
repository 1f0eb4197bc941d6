"""How does a worker process live? It says that it is up, works, drains at a signal, and says so."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import perdure
from perdure.runtime.config import EngineConfig
from perdure.runtime.engine import Engine
from perdure.runtime.worker import Worker
from perdure.surfaces.cli.failures import failures
from perdure.surfaces.cli.logs import logs_on_stderr
from perdure.surfaces.cli.output import say
from perdure.surfaces.cli.stopping import Stop, stop_signals
from perdure.surfaces.cli.target import check_store, configured, load_registry
from perdure.surfaces.cli.typed import (
    DEFAULT_STORE,
    AppOption,
    DebugOption,
    StoreOption,
)

DEFAULTS = EngineConfig()
LAST_WORDS = "what ran resumes when the session expires"
SHOWN_MAX = 8
"""So many workflows the line that says that the worker is up names."""


QueueOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", metavar="NAME", help="A queue to work on; again for the next.  [default]"
    ),
]
DrainOption = Annotated[
    float | None,
    typer.Option(
        "--drain",
        min=0,
        metavar="SECONDS",
        help=f"How long running steps have at the end.  [{DEFAULTS.drain:g}]",
    ),
]
MaxExecutionsOption = Annotated[
    int,
    typer.Option("--max-executions", min=1, metavar="N", help="Own at most so many at one time."),
]
MaxStepsOption = Annotated[
    int,
    typer.Option("--max-steps", min=1, metavar="N", help="Run at most so many steps at one time."),
]
SessionTtlOption = Annotated[
    float | None,
    typer.Option(
        "--session-ttl",
        metavar="SECONDS",
        help="Silent for so long, it counts as dead, and others take over.  "
        f"[{DEFAULTS.session_ttl:g}]",
    ),
]


def worker(
    *,
    queue: QueueOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop as soon as there is nothing left to do.")
    ] = False,
    drain: DrainOption = None,
    max_executions: MaxExecutionsOption = 1_000,
    max_steps: MaxStepsOption = 256,
    session_ttl: SessionTtlOption = None,
    no_upkeep: Annotated[
        bool,
        typer.Option("--no-upkeep", help="Neither fire timers nor recover executions."),
    ] = False,
    worker_id: Annotated[
        str | None,
        typer.Option("--worker-id", metavar="ID", help="Its name; made up if not given."),
    ] = None,
    app: AppOption = None,
    store: StoreOption = DEFAULT_STORE,
    debug: DebugOption = False,
) -> None:
    """Run executions until it is told to stop.

    At SIGTERM or Ctrl-C it takes no new work, lets running steps finish, hands the executions back
    and exits with 0. A second signal stops it at once, with 143 or 130; what it ran goes on
    elsewhere when its session has expired.
    """
    queues = queue or ["default"]

    async def work() -> None:
        registry = load_registry(app)
        base = configured()
        config = dataclasses.replace(
            base,
            drain=base.drain if drain is None else drain,
            session_ttl=base.session_ttl if session_ttl is None else session_ttl,
        )
        with stop_signals(LAST_WORDS) as stop:
            async with perdure.open(check_store(store), registry, config=config) as engine:
                working = engine.worker(
                    queues=queues,
                    max_executions=max_executions,
                    max_steps=max_steps,
                    upkeep=not no_upkeep,
                    worker_id=worker_id,
                )
                reason = await _live(working, stop, _scope(engine, queues), config.drain, once=once)
            say(f"worker {working.worker_id} stopped: {reason}")

    with failures(debug=debug), logs_on_stderr(debug=debug):
        asyncio.run(work())


async def _live(working: Worker, stop: Stop, scope: str, drain: float, *, once: bool) -> str:
    """Work until a signal comes or, with `once`, nothing is left; drain; give the reason."""
    async with working:
        say(f"worker {working.worker_id} is up: {scope}")
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.event.wait())]
        if once:
            waits.append(asyncio.ensure_future(working.run_until_idle()))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if stop.name is not None:
            say(f"{stop.name}: running steps have {drain:g} s; a second signal stops at once")
    waits[0].cancel()
    # Once drained there is nothing to wait for: to cancel it could lose the answer of a dequeue.
    for idle in waits[1:]:
        await idle
    return stop.name or "nothing is left to do"


def _scope(engine: Engine, queues: Sequence[str]) -> str:
    """Say what a worker works on: its store, its queues, what workflows and steps it knows."""
    known = [f"{name} {version}" for name, version in sorted(engine.registry.known)]
    shown = ", ".join(known[:SHOWN_MAX]) or "none"
    more = f" and {len(known) - SHOWN_MAX} more" if len(known) > SHOWN_MAX else ""
    steps = f"; {len(engine.registry.steps)} steps of others" if engine.registry.steps else ""
    return f"store {engine.store.url}; queues {', '.join(queues)}; workflows {shown}{more}{steps}"
