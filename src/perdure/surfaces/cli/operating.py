"""How does one steer executions? Cancel, terminate, resume, migrate, retry, fork, broadcast.

The first five take the id of one execution, or a filter that names many; then they print a count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import typer

import perdure
from perdure.runtime.engine import Engine
from perdure.runtime.operators import Filter
from perdure.surfaces.cli.failures import failures
from perdure.surfaces.cli.output import Output
from perdure.surfaces.cli.selecting import (
    OneArgument,
    ParentOption,
    SinceOption,
    StatusOption,
    TagFilterOption,
    TextOption,
    UntilOption,
    WorkflowOption,
    read_filter,
    read_one,
)
from perdure.surfaces.cli.target import configured, load_registry, look, require_store
from perdure.surfaces.cli.typed import (
    DEFAULT_ACTOR,
    DEFAULT_STORE,
    AppOption,
    ByOption,
    DebugOption,
    EidArgument,
    JsonOption,
    StoreOption,
    read_actor,
    read_eid,
    read_overrides,
    read_payload,
)

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")
]

Answer = tuple[str, dict[str, Any]]
"""What is printed, and the document that says the same."""
One = Callable[[Engine, UUID], Awaitable[Answer]]
Many = Callable[[Engine, Filter], Awaitable[int]]


def cancel(
    eid: OneArgument = None,
    *,
    status: StatusOption = None,
    workflow: WorkflowOption = None,
    tag: TagFilterOption = None,
    text: TextOption = None,
    parent: ParentOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    reason: ReasonOption = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Ask an execution to cancel, or all open ones that a filter names.

    Its function sees the cancel where it waits, and may clean up. Its children are cancelled, too.
    """
    which = _filter(status, workflow, tag, text, parent, since, until)
    actor = read_actor(by)

    async def one(engine: Engine, wanted: UUID) -> Answer:
        await engine.cancel(wanted, reason=reason, by=actor)
        return f"asked {wanted} to cancel", {"eid": wanted}

    async def many(engine: Engine, which: Filter) -> int:
        return await engine.cancel_many(reason=reason, by=actor, **which)

    _operate(Output(as_json=as_json), eid, which, one, many, store=store, debug=debug)


def terminate(
    eid: OneArgument = None,
    *,
    status: StatusOption = None,
    workflow: WorkflowOption = None,
    tag: TagFilterOption = None,
    text: TextOption = None,
    parent: ParentOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    reason: ReasonOption = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Close an execution and its children at once, or all open ones that a filter names.

    No code of theirs runs again, so nothing is cleaned up.
    """
    which = _filter(status, workflow, tag, text, parent, since, until)
    actor = read_actor(by)

    async def one(engine: Engine, wanted: UUID) -> Answer:
        await engine.terminate(wanted, reason=reason, by=actor)
        return f"terminated {wanted}", {"eid": wanted}

    async def many(engine: Engine, which: Filter) -> int:
        return await engine.terminate_many(reason=reason, by=actor, **which)

    _operate(Output(as_json=as_json), eid, which, one, many, store=store, debug=debug)


def resume(
    eid: OneArgument = None,
    *,
    status: StatusOption = None,
    workflow: WorkflowOption = None,
    tag: TagFilterOption = None,
    text: TextOption = None,
    parent: ParentOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Let a worker look at an execution again, or at all blocked ones that a filter names.

    That is what a blocked execution needs after its code was mended.
    """
    which = _filter(status, workflow, tag, text, parent, since, until)
    actor = read_actor(by)

    async def one(engine: Engine, wanted: UUID) -> Answer:
        await engine.resume(wanted, by=actor)
        return f"resumed {wanted}", {"eid": wanted}

    async def many(engine: Engine, which: Filter) -> int:
        return await engine.resume_many(by=actor, **which)

    _operate(Output(as_json=as_json), eid, which, one, many, store=store, debug=debug)


def retry(
    eid: OneArgument = None,
    *,
    workflow: WorkflowOption = None,
    tag: TagFilterOption = None,
    text: TextOption = None,
    parent: ParentOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Start a copy of a failed execution that tries again what failed, and print its id.

    With a filter, of all failed ones that it names.
    """
    which = _filter(None, workflow, tag, text, parent, since, until)
    actor = read_actor(by)

    async def one(engine: Engine, wanted: UUID) -> Answer:
        copy = await engine.retry_failed(wanted, by=actor)
        return str(copy), {"eid": copy}

    async def many(engine: Engine, which: Filter) -> int:
        return await engine.retry_failed_many(by=actor, **which)

    _operate(Output(as_json=as_json), eid, which, one, many, store=store, debug=debug)


def migrate(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="[EID] VERSION",
            help="The id of the execution, or a filter instead, and the version it is to have.",
        ),
    ],
    *,
    status: StatusOption = None,
    workflow: WorkflowOption = None,
    tag: TagFilterOption = None,
    text: TextOption = None,
    parent: ParentOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    app: AppOption = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Give an execution to another version of its workflow, or all that a filter names.

    Prints the version before and the one after. One that runs keeps its version until a worker
    acquires it the next time.
    """
    which = _filter(status, workflow, tag, text, parent, since, until)
    actor = read_actor(by)
    *eids, to = target
    if len(eids) > 1:
        message = f"{' '.join(target)!r} is too much; give one id and the version"
        raise typer.BadParameter(message, param_hint="[EID] VERSION")

    async def one(engine: Engine, wanted: UUID) -> Answer:
        before = await engine.migrate(wanted, to, by=actor)
        document = {"eid": wanted, "from_version": before, "version": to}
        return f"{before} → {to}", document

    async def many(engine: Engine, which: Filter) -> int:
        return await engine.migrate_many(to, by=actor, **which)

    out, wanted = Output(as_json=as_json), read_one(eids[0] if eids else None, which)

    async def work() -> None:
        registry = load_registry(app)
        async with perdure.open(require_store(store), registry, config=configured()) as engine:
            await _tell(out, engine, wanted, which, (one, many))

    with failures(debug=debug):
        asyncio.run(work())


def fork(
    eid: EidArgument,
    fid: Annotated[str, typer.Argument(metavar="FID", help="The frame that runs again.")],
    *,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="FID=JSON",
            help="A step that gives this value instead of running; any number.",
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Start a copy of an execution that runs again from one of its frames, and print its id.

    The frames are in perdure status --frames; root runs everything again.
    """
    wanted, actor = read_eid(eid), read_actor(by)
    overrides = read_overrides(override or [])
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        copy = await engine.fork(wanted, fid, overrides=overrides, by=actor)
        if out.as_json:
            out.document({"eid": copy})
        else:
            out.row(copy)

    look(store, work, debug=debug)


def broadcast(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The global channel.")],
    payload: Annotated[
        str | None,
        typer.Argument(
            metavar="PAYLOAD",
            help="JSON if it is JSON, else text; - reads it from the standard input.",
        ),
    ] = None,
    *,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Send one message on a global channel, and print its sequence number."""
    actor, value = read_actor(by), read_payload(payload)
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        seq = await engine.broadcast(channel, value, by=actor)
        if out.as_json:
            out.document({"seq": seq})
        elif out.terminal:
            out.text(f"sent message {seq} on global channel {channel}")
        else:
            out.row(seq)

    look(store, work, debug=debug)


def _filter(*given: Any) -> Filter:
    names = ("status", "workflow", "tag", "text", "parent", "since", "until")
    return read_filter(**dict(zip(names, given, strict=True)), now=datetime.now(UTC))


def _operate(
    out: Output, eid: str | None, which: Filter, one: One, many: Many, *, store: str, debug: bool
) -> None:
    """Do something to one execution, or to many."""
    wanted = read_one(eid, which)
    look(store, lambda engine: _tell(out, engine, wanted, which, (one, many)), debug=debug)


async def _tell(
    out: Output, engine: Engine, wanted: UUID | None, which: Filter, ways: tuple[One, Many]
) -> None:
    one, many = ways
    if wanted is not None:
        told, document = await one(engine, wanted)
        if out.as_json:
            out.document(document)
        else:
            out.row(told)
        return
    count = await many(engine, which)
    if out.as_json:
        out.document({"count": count})
    elif out.terminal:
        out.text(f"{count} execution{'' if count == 1 else 's'}")
    else:
        out.row(count)
