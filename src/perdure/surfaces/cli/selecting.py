"""Which executions are meant? One by its id, or all that a filter names: the options for that."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from perdure.model.execution import ExecutionStatus
from perdure.runtime.operators import Filter
from perdure.surfaces.cli.typed import read_eid, read_instant, read_pairs

OneArgument = Annotated[
    str | None,
    typer.Argument(metavar="EID", help="The id of the execution; or give a filter instead."),
]
StatusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help=f"Only {', '.join(ExecutionStatus)}; again for a further one.",
    ),
]
WorkflowOption = Annotated[
    str | None, typer.Option("--workflow", metavar="NAME", help="Only of this workflow.")
]
TagFilterOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME=VALUE", help="Only with this tag; all that are given."),
]
TextOption = Annotated[
    str | None,
    typer.Option(
        "--text", metavar="TEXT", help="Only with this text in the workflow, the key or a tag."
    ),
]
ParentOption = Annotated[
    str | None, typer.Option("--parent", metavar="EID", help="Only children of this execution.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Only created since then: 30m, 2h, 7d, or an instant in ISO 8601.",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="Only created before then; like --since."),
]


def read_filter(
    *,
    status: list[str] | None,
    workflow: str | None,
    tag: list[str] | None,
    text: str | None,
    parent: str | None,
    since: str | None,
    until: str | None,
    now: datetime,
) -> Filter:
    """Read the options that name executions; what is not given is not in the filter."""
    which = Filter()
    if status:
        which["status"] = list(status)
    if workflow is not None:
        which["workflow"] = workflow
    if tag:
        which["tags"] = read_pairs("--tag", tag)
    if text is not None:
        which["text"] = text
    if parent is not None:
        which["parent"] = read_eid(parent, hint="--parent")
    if since is not None:
        which["since"] = read_instant("--since", since, now)
    if until is not None:
        which["until"] = read_instant("--until", until, now)
    return which


def read_one(eid: str | None, which: Filter) -> UUID | None:
    """Read the id of the one execution that is meant; ``None`` if a filter names them.

    A text that is empty, as of a variable that is not set, is refused: it fits every execution.
    """
    if which.get("text") == "":
        message = "the text is empty and fits every execution; give a part of what is meant"
        raise typer.BadParameter(message, param_hint="--text")
    if (eid is None) == (not which):
        message = "say which executions are meant: give one id, or a filter, --workflow for example"
        raise typer.BadParameter(message, param_hint="EID")
    return None if eid is None else read_eid(eid)
