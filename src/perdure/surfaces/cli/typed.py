"""What did the user type? Options that commands share, and the reading of what is written in them.

Everything here is settled before a store is opened: what cannot be meant is refused as usage.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast, get_args
from uuid import UUID

import msgspec
import typer

from perdure.errors import InvalidArgument
from perdure.model.ids import parse_eid
from perdure.model.provenance import Actor, ActorKind

DEFAULT_STORE = "sqlite:///perdure.db"
DEFAULT_ACTOR = "system:perdure-cli"

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        envvar="PERDURE_CONFIG",
        metavar="MODULE:ATTR",
        help="An EngineConfig, for example app:config, of which some options have their own words.",
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        envvar="PERDURE_APP",
        metavar="MODULE:ATTR",
        help="The registry, for example app:registry; MODULE alone means MODULE:registry.",
    ),
]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store", envvar="PERDURE_STORE", metavar="URL", help="The store, a SQLite file."
    ),
]
ByOption = Annotated[
    str,
    typer.Option(
        "--by",
        envvar="PERDURE_BY",
        metavar="WHO",
        help="Who acts: an email address, or KIND:ID, for example system:billing.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, one document per line.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0, metavar="SECONDS", help="How long to wait; for ever if not given."
    ),
]
EidArgument = Annotated[str, typer.Argument(metavar="EID", help="The id of the execution.")]

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_SPANS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_eid(typed: str, hint: str = "EID") -> UUID:
    """Read an execution id; no prefix of one is accepted."""
    try:
        return parse_eid(typed)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def read_actor(typed: str) -> Actor:
    """Read an actor: an email address is a person, ``kind:id`` anything."""
    kind, colon, name = typed.partition(":")
    try:
        if colon and kind in get_args(ActorKind):
            return Actor(cast("ActorKind", kind), name)
        if "@" in typed:
            return Actor.human(typed)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error), param_hint="--by") from error
    message = (
        f"{typed!r} names nobody; give an email address, or kind:id with a kind of "
        f"{', '.join(get_args(ActorKind))}"
    )
    raise typer.BadParameter(message, param_hint="--by")


def read_value(typed: str) -> Any:
    """Read a value: JSON if it is JSON, else the text as it stands."""
    try:
        return msgspec.json.decode(typed)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return typed


def read_json(option: str, typed: str) -> Any:
    """Read a value that must be JSON."""
    try:
        return msgspec.json.decode(typed)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        message = f"{typed!r} is not JSON; a text needs quotes of its own, like '\"text\"'"
        raise typer.BadParameter(message, param_hint=option) from error


def read_pairs(option: str, typed: Sequence[str]) -> dict[str, str]:
    """Read ``name=value`` pairs; each name once."""
    pairs: dict[str, str] = {}
    for one in typed:
        name, equals, value = one.partition("=")
        if not name or not equals:
            message = f"{one!r} is no pair; write name=value"
            raise typer.BadParameter(message, param_hint=option)
        if name in pairs:
            message = f"{name!r} is given twice; give it once"
            raise typer.BadParameter(message, param_hint=option)
        pairs[name] = value
    return pairs


def read_payload(typed: str | None) -> Any:
    """Read the payload of a message: ``None``, a value, or what ``-`` has on the standard input."""
    if typed == "-":
        # Bytes that are no text are kept for the engine to refuse, which says where they are.
        typed = sys.stdin.buffer.read().decode(errors="surrogateescape").rstrip("\n")
    return None if typed is None else read_value(typed)


def read_overrides(typed: Sequence[str]) -> dict[str, Any]:
    """Read values by frame id: ``root/quote#0=12``.

    The key of a frame id may hold equals signs, so the value is what is JSON behind the first one
    that leaves JSON.
    """
    overrides: dict[str, Any] = {}
    for one in typed:
        fid, value = _split_override(one)
        if fid in overrides:
            message = f"{fid!r} is given twice; give it once"
            raise typer.BadParameter(message, param_hint="--override")
        overrides[fid] = value
    return overrides


def _split_override(typed: str) -> tuple[str, Any]:
    at = typed.find("=")
    while at > 0:
        try:
            return typed[:at], msgspec.json.decode(typed[at + 1 :])
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            at = typed.find("=", at + 1)
    message = f"{typed!r} is no frame id with a value; write FID=JSON, for example 'root/f#0=\"x\"'"
    raise typer.BadParameter(message, param_hint="--override")


def read_instant(option: str, typed: str, now: datetime) -> datetime:
    """Read an instant: a span before `now` like ``2h``, or ISO 8601, in UTC if no zone is given."""
    span = _SPAN.fullmatch(typed)
    try:
        if span is not None:
            return now - timedelta(**{_SPANS[span[2]]: float(span[1])})
        at = datetime.fromisoformat(typed)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"{typed!r} is no instant; give a span like 30m, 2h or 7d, or 2030-01-31T12:00Z"
        raise typer.BadParameter(message, param_hint=option) from error
