"""What waits for a person, and how does one decide it? The inbox on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.ports.projection import Review
from perdure.runtime.engine import Engine
from perdure.runtime.requests import LIMIT_MAX
from perdure.surfaces.cli import views
from perdure.surfaces.cli.output import Output, note
from perdure.surfaces.cli.target import look
from perdure.surfaces.cli.typed import (
    DEFAULT_ACTOR,
    DEFAULT_STORE,
    ByOption,
    DebugOption,
    JsonOption,
    StoreOption,
    read_actor,
    read_json,
)

_NOTHING = "Nothing waits for a decision; --all shows what was decided and what has expired."


def list_reviews(
    *,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="Only of this queue.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also what was decided and what has expired.")
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List the reviews that wait for a decision, oldest first.

    In a pipe the cells are: rid, status, queue, requested, deadline, payload, decision.
    """
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        found = await (_all(engine, queue) if every else engine.reviews.pending(queue))
        if found:
            views.show_reviews(out, found, engine.clock.now(), every=every)
        elif out.terminal:
            out.text("No review was asked for." if every else _NOTHING)

    look(store, work, debug=debug)


async def _all(engine: Engine, queue: str | None) -> list[Review]:
    found: list[Review] = []
    cursor = None
    while True:
        page = await engine.projection.reviews(queue=queue, limit=LIMIT_MAX, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


def decide(
    rid: Annotated[str, typer.Argument(metavar="RID", help="The id of the review.")],
    verdict: Annotated[
        str, typer.Argument(metavar="VERDICT", help="What is decided, for example approve.")
    ],
    *,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="JSON", help="What else is to be known of it, as JSON."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    by: ByOption = DEFAULT_ACTOR,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Decide a review, and print the decision that counts: the first.

    If somebody decided before, that decision is printed, and a note on the standard error says so;
    with --json it has "first": false.
    """
    actor = read_actor(by)
    value = None if data is None else read_json("--data", data)
    out = Output(as_json=as_json)

    async def work(engine: Engine) -> None:
        result = await engine.reviews.decide_result(rid, verdict=verdict, data=value, by=actor)
        if not result.first:
            decided = result.decision
            note(f"review {rid} was decided before, by {decided.by}; that decision counts")
        views.show_decision(out, result)

    look(store, work, debug=debug)
