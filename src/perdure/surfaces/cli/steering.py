"""How does one act on executions? The commands that start one and send it messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import perdure
from perdure.model.execution import PRIORITY_MAX, StartOptions, StartResult
from perdure.runtime.engine import Engine
from perdure.surfaces.cli.failures import failures
from perdure.surfaces.cli.output import Output, note
from perdure.surfaces.cli.target import check_store, configured, load_registry, look
from perdure.surfaces.cli.typed import (
    DEFAULT_ACTOR,
    DEFAULT_STORE,
    AppOption,
    ByOption,
    DebugOption,
    EidArgument,
    JsonOption,
    StoreOption,
    TimeoutOption,
    read_actor,
    read_eid,
    read_pairs,
    read_payload,
    read_value,
)

DEFAULT_PRIORITY = StartOptions().priority
_TAKEN = frozenset({"key", "queue", "options", "version", "by"})

ArgsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARG",
        help="Its arguments: JSON if it is JSON, else text. Write '\"12\"' for the text 12, "
        "and -- before a -5.",
    ),
]
KwOption = Annotated[
    list[str] | None,
    typer.Option("--kw", metavar="NAME=VALUE", help="A keyword argument: JSON or text, too."),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="A second start with the same key starts nothing."),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME=VALUE", help="A tag to find it by; any number."),
]
PriorityOption = Annotated[
    int, typer.Option("--priority", min=0, max=PRIORITY_MAX, metavar="N", help="Lower runs first.")
]


def start(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="The name of the workflow.")],
    args: ArgsArgument = None,
    *,
    kw: KwOption = None,
    key: KeyOption = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="NAME", help="The queue, if not the workflow's own."),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="VERSION", help="The version, if not the latest."),
    ] = None,
    priority: PriorityOption = DEFAULT_PRIORITY,
    tag: TagOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end and print its result.")
    ] = False,
    timeout: TimeoutOption = None,
    app: AppOption = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Start an execution, and print its id.

    In a pipe the id stands alone: eid=$(perdure start …). With --wait the result takes its place,
    and the id goes to the standard error.
    """
    if timeout is not None and not wait:
        message = "it limits how long --wait waits; give --wait, too"
        raise typer.BadParameter(message, param_hint="--timeout")
    actor, keywords = read_actor(by), _read_keywords(kw or [])
    options = StartOptions(priority=priority, tags=read_pairs("--tag", tag or []))
    values = [read_value(value) for value in args or []]
    out = Output(as_json=as_json)

    async def work() -> None:
        registry = load_registry(app)
        # Refused before the store is opened: a slip of the pen must not leave an empty one behind.
        registry.find(workflow, version).encode_arguments(tuple(values), keywords)
        async with perdure.open(check_store(store), registry, config=configured()) as engine:
            asked: dict[str, Any] = {
                "key": key,
                "queue": queue,
                "options": options,
                "version": version,
            }
            started = await engine.start_result(workflow, *values, **asked, by=actor, **keywords)
            _tell(out, started, key, wait=wait)
            if wait:
                result = await engine.result(started.eid, timeout=timeout)
                if out.as_json:
                    out.document({**started._asdict(), "result": result})
                else:
                    out.value(result)

    with failures(debug=debug):
        asyncio.run(work())


def _read_keywords(typed: Sequence[str]) -> dict[str, Any]:
    keywords = {name: read_value(value) for name, value in read_pairs("--kw", typed).items()}
    if taken := _TAKEN.intersection(keywords):
        message = f"{min(taken)!r} is an option of start itself; give it as a positional argument"
        raise typer.BadParameter(message, param_hint="--kw")
    return keywords


def _tell(out: Output, started: StartResult, key: str | None, *, wait: bool) -> None:
    """Say which execution was started or found; the answer is the id, or will be the result."""
    eid = str(started.eid)
    if started.deduplicated:
        note(f"the key {key!r} was used before, so nothing new was started")
    if out.terminal:
        out.text(("found " if started.deduplicated else "started ", "dim"), (eid, "bold"))
        if not wait:
            out.text((f"follow it with: perdure watch {eid}", "dim"))
    elif wait:
        note(f"{'found' if started.deduplicated else 'started'} {eid}")
    elif out.as_json:
        out.document(started._asdict())
    else:
        out.row(eid)


def signal(
    eid: EidArgument,
    channel: Annotated[
        str, typer.Argument(metavar="CHANNEL", help="The channel that the execution receives on.")
    ],
    payload: Annotated[
        str | None,
        typer.Argument(
            metavar="PAYLOAD",
            help="JSON if it is JSON, else text; - reads it from the standard input.",
        ),
    ] = None,
    *,
    correlation: Annotated[
        str | None,
        typer.Option(
            "--correlation", metavar="TEXT", help="A text that ties the message to something else."
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Send one message to an execution, and print its sequence number."""
    wanted, actor = read_eid(eid), read_actor(by)
    out = Output(as_json=as_json)
    value = read_payload(payload)

    async def work(engine: Engine) -> None:
        seq = await engine.signal(wanted, channel, value, correlation=correlation, by=actor)
        if out.as_json:
            out.document({"seq": seq})
        elif out.terminal:
            out.text(f"sent message {seq} on channel {channel}")
        else:
            out.row(seq)

    look(store, work, debug=debug)
