"""How does one look at executions? The commands that read, and change nothing.

None of them creates a store: on one that does not exist they are refused.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from perdure.runtime.engine import Engine
from perdure.runtime.requests import LIMIT_MAX
from perdure.surfaces.cli import views
from perdure.surfaces.cli.output import Output, note
from perdure.surfaces.cli.selecting import (
    ParentOption,
    SinceOption,
    StatusOption,
    TagFilterOption,
    TextOption,
    UntilOption,
    WorkflowOption,
    read_filter,
)
from perdure.surfaces.cli.target import look
from perdure.surfaces.cli.typed import (
    DEFAULT_STORE,
    DebugOption,
    EidArgument,
    JsonOption,
    StoreOption,
    TimeoutOption,
    read_eid,
)
from perdure.surfaces.cli.wording import json_text


def status(
    eid: EidArgument,
    *,
    journal: Annotated[
        bool, typer.Option("--journal", help="List the entries of the journal instead.")
    ] = False,
    frames: Annotated[
        bool, typer.Option("--frames", help="Show the tree of the frames instead.")
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show where an execution is, or how it ended."""
    wanted = read_eid(eid)
    if journal and frames:
        message = "--journal and --frames are two views; give one of them"
        raise typer.BadParameter(message)
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        if journal:
            entries = await engine.journal(wanted)
            view = views.JournalView(out, {entry.fid for entry in entries})
            for entry in entries:
                view.show(entry)
        elif frames:
            views.show_frames(out, await engine.frames(wanted), engine.clock.now())
        else:
            row = await engine.execution(wanted)
            if row.eid != wanted:
                note(f"{wanted} continued as {row.eid}, which is shown")
            views.show_execution(out, row, engine.clock.now())

    look(store, work, debug=debug)


def list_executions(
    *,
    status: StatusOption = None,
    workflow: WorkflowOption = None,
    tag: TagFilterOption = None,
    text: TextOption = None,
    parent: ParentOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, max=LIMIT_MAX, metavar="N", help="Show at most so many."),
    ] = 50,
    cursor: Annotated[
        str | None,
        typer.Option(
            "--cursor", metavar="CURSOR", help="Go on where a list ended, which gave this cursor."
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List executions, newest first.

    In a pipe the cells are: eid, status, workflow, version, created, key, detail.
    """
    which = read_filter(
        status=status,
        workflow=workflow,
        tag=tag,
        text=text,
        parent=parent,
        since=since,
        until=until,
        now=datetime.now(UTC),
    )
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        now = engine.clock.now()
        page = await engine.executions(limit=limit, cursor=cursor, **which)
        if page.items:
            views.show_executions(out, page.items, now)
        elif out.terminal:
            out.text(_NOTHING_FOUND if which or cursor else _NOTHING_YET)
        if page.cursor is not None:
            note(f"there are more: --cursor {page.cursor}")

    look(store, work, debug=debug)


_NOTHING_FOUND = "No execution fits; widen the search, or leave the options away to see all."
_NOTHING_YET = (
    "No execution yet; start one with: perdure start WORKFLOW [ARGUMENTS] --app MODULE:ATTR"
)


def result(
    eid: EidArgument,
    *,
    timeout: TimeoutOption = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Wait for an execution to end, and print its result."""
    wanted = read_eid(eid)
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        out.value(await engine.result(wanted, timeout=timeout))

    look(store, work, debug=debug)


def watch(
    eid: EidArgument,
    *,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Follow the journal of an execution until its end."""
    wanted = read_eid(eid)
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        view = views.JournalView(out)
        async for entry in engine.watch(wanted):
            view.show(entry)

    look(store, work, debug=debug)


def stream(
    eid: EidArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the stream.")],
    *,
    after: Annotated[
        int, typer.Option("--after", min=0, metavar="N", help="Leave out the first N items.")
    ] = 0,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Follow what an execution publishes on a stream, until its end: one JSON document per line."""
    wanted = read_eid(eid)
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        async for value in engine.stream(wanted, name, after=after):
            if out.terminal:
                out.text(json_text(value))
            else:
                out.document(value)

    look(store, work, debug=debug)


def show_queue(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")],
    *,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=LIMIT_MAX, metavar="N", help="At most so many.")
    ] = 100,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List the tasks of a queue, in the order in which they are taken.

    In a pipe the cells are: task, state, kind, enqueued, not before, holder, reason, payload.
    """
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        depth = await engine.queues.depth(queue)
        tasks = await engine.queues.pending(queue, limit=limit)
        if out.terminal:
            out.text(f"{depth.ready} ready, {depth.delayed} delayed, {depth.leased} leased")
        if tasks:
            views.show_tasks(out, tasks, engine.clock.now())
        if len(tasks) < depth.ready + depth.delayed + depth.leased:
            note(f"only {len(tasks)} are shown; show more with --limit")

    look(store, work, debug=debug)


def store_info(
    *,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what the store is and holds."""
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        views.show_store(out, await engine.store_info())

    look(store, work, debug=debug)
