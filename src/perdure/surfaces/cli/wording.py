"""How are values written for people and for pipes? Pure functions; nothing here prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from perdure.model.entry import Entry
from perdure.model.execution import ErrorInfo, ExecutionRow, ExecutionStatus, FrameNode
from perdure.model.provenance import describe_stop
from perdure.ports.projection import Review

_KIB = 1024
_OWN_CHANNEL = re.compile(r"^channel:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.")
_UNITS = ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "min"))


def printable(text: str, *, keep: str = "") -> str:
    """Give a text in which every character that would steer a terminal is written as an escape.

    Args:
        text: any text; what users and their errors stored is not trusted.
        keep: characters that stay as they are, for example a line feed.
    """
    if text.isprintable():
        return text
    # The escapes are those of JSON, so JSON stays JSON.
    return "".join(
        one if one.isprintable() or one in keep else json.dumps(one)[1:-1] for one in text
    )


def json_text(value: Any) -> str:
    """Give a value as compact JSON on one line."""
    return msgspec.json.encode(value).decode()


def instant(at: datetime | None) -> str:
    """Give an instant as ISO 8601 in UTC with ``Z``, to the microsecond; ``""`` for none."""
    if at is None:
        return ""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def calendar(at: datetime) -> str:
    """Give an instant for people, to the second: ``2030-01-31 12:00:05Z``."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def clock(at: datetime, *, fine: bool) -> str:
    """Give the time of the day in UTC, to the second, or to the millisecond if `fine`."""
    utc = at.astimezone(UTC)
    return f"{utc.isoformat(timespec='milliseconds' if fine else 'seconds')[11:-6]}Z"


def later(at: datetime, now: datetime, *, fine: bool) -> str:
    """Give an instant beside another one: the time alone if it is on the same day."""
    same_day = at.astimezone(UTC).date() == now.astimezone(UTC).date()
    return clock(at, fine=fine) if same_day else calendar(at)


def duration(span: timedelta) -> str:
    """Give a duration for people, in at most two units: ``350 ms``, ``3.2 s``, ``2 h 5 min``."""
    seconds = max(span.total_seconds(), 0.0)
    if round(seconds * 1000) < 1000:  # noqa: PLR2004 - milliseconds in a second
        return f"{round(seconds * 1000)} ms"
    if round(seconds, 1) < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{seconds:.1f} s"
    whole = timedelta(seconds=round(seconds))
    parts: list[str] = []
    for unit, name in _UNITS:
        count, whole = divmod(whole, unit)
        if count or parts:
            parts.append(f"{count} {name}")
    parts.append(f"{whole.seconds} s")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def ago(at: datetime, now: datetime) -> str:
    """Give how long ago an instant was, in one unit: ``now``, ``5 s ago``, ``3 h ago``."""
    passed = now - at
    if passed < timedelta(seconds=1):
        return "now"
    for unit, name in (*_UNITS, (timedelta(seconds=1), "s")):
        if passed >= unit:
            return f"{passed // unit} {name} ago"
    return "now"


def left(deadline: datetime | None, now: datetime) -> str:
    """Give how long there is until a deadline: ``in 2 h 5 min``, ``passed``; ``""`` for none."""
    if deadline is None:
        return ""
    return f"in {duration(deadline - now)}" if deadline > now else "passed"


def size(count: int | None) -> str:
    """Give a number of bytes for people: ``512 B``, ``1.5 MiB``."""
    if count is None:
        return ""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} TiB"


def error_text(error: ErrorInfo | None) -> str:
    """Give an error as ``Type: message``; ``""`` for none."""
    return "" if error is None else f"{error.type}: {error.message}"


def arguments(args: Any) -> str:
    """Give the arguments of an execution as they would stand in a call."""
    positional, named = args
    parts = [json_text(value) for value in positional]
    parts += [f"{name}={json_text(value)}" for name, value in named.items()]
    return ", ".join(parts)


def tags(row: ExecutionRow) -> str:
    """Give the tags of an execution: ``customer=acme tier=gold``."""
    return " ".join(f"{name}={value}" for name, value in sorted(row.tags.items()))


def conditions(on: Sequence[str]) -> str:
    """Give what an execution waits on, its own channels by the names that it uses itself."""
    return ", ".join(_condition(one) for one in on)


def _condition(on: str) -> str:
    own = _OWN_CHANNEL.sub("channel:", on)
    return f"{on} (global)" if own == on and on.startswith("channel:") else own


def stopped(row: ExecutionRow) -> str:
    """Give who asked for a cancel or terminated an execution, and why; ``""`` for nobody."""
    return "" if row.stopped_by is None else describe_stop(row.stopped_by, row.stop_reason)


def detail(row: ExecutionRow) -> str:
    """Give the one fact about an execution that its status makes the next question."""
    if row.status.terminal:
        return _end(row)
    if row.blocked is not None:
        return f"blocked: {row.blocked}"
    if row.status is ExecutionStatus.SUSPENDED:
        return f"waits on {conditions(row.suspended_on)}"
    if row.status is ExecutionStatus.RUNNING:
        return f"on worker {row.worker_id}" if row.worker_id else ""
    return f"on queue {row.queue}"


def _end(row: ExecutionRow) -> str:
    if row.continued_as is not None:
        return f"continued as {row.continued_as}"
    if row.error is None:
        return json_text(row.result)
    return error_text(row.error) if row.status is ExecutionStatus.FAILED else row.error.message


def facts(entry: Entry, when: Callable[[datetime], str] = instant) -> str:
    """Give the short facts of an entry: what its other columns do not say already.

    Args:
        entry: the entry.
        when: writes an instant.
    """
    given = entry.payload
    main_fact: Callable[[dict[str, Any]], str] = _MAIN_FACT.get(entry.type, json_text)
    parts = [main_fact(given), given.get("reason") or ""]
    if given.get("on") == f"timer:{entry.fid}":
        parts = ["timer"]
    if given.get("retryable"):
        parts.append(f"retry at {when(given['retry_at'])}" if "retry_at" in given else "retry")
    if str(given.get("on", "")).startswith("child:") and "message" in given:
        return f"{parts[0]}  {_child(given['message']['payload'])}"
    if isinstance(given.get("message"), dict):
        sender = given["message"]["sent_by"]
        sent = json_text(given["message"]["payload"])
        parts.append(f"{sent} from {sender['kind']}:{sender['id']}")
    if "deadline" in given:
        parts.append(f"until {when(given['deadline'])}")
    return "  ".join(part for part in parts if part)


def _nothing(_: dict[str, Any]) -> str:
    return ""


def _value(given: dict[str, Any]) -> str:
    return json_text(given["value"])


def _error(given: dict[str, Any]) -> str:
    return f"{given['error_type']}: {given['message']}"


def _child(ended: dict[str, Any]) -> str:
    """Give how a child ended."""
    if ended["status"] == "completed":
        return f"completed {json_text(ended.get('value'))}"
    return f"{ended['status']} {ended.get('error_type')}: {ended.get('message')}"


def _who(given: dict[str, Any]) -> str:
    return f"by {given['by']['kind']}:{given['by']['id']}"


def _forked(given: dict[str, Any]) -> str:
    parts = [f"of {given['origin']} at {given['fid']}"]
    parts += [f"{fid}={json_text(value)}" for fid, value in given["overrides"].items()]
    return "  ".join(parts)


def _completed(given: dict[str, Any]) -> str:
    if "continued_as" in given:
        return f"continued as {given['continued_as']}"
    return _value(given)


_MAIN_FACT: dict[str, Callable[[dict[str, Any]], str]] = {
    "execution.started": lambda given: arguments(given["args"]),
    "execution.resumed": _nothing,
    "execution.suspended": lambda given: conditions(given["on"]),
    "execution.cancelling": _who,
    "execution.migrated": lambda given: f"{given['from_version']} → {given['version']}",
    "execution.forked": _forked,
    "execution.completed": _completed,
    "execution.cancelled": _who,
    "execution.terminated": _who,
    "execution.failed": _error,
    "frame.started": lambda given: str(given["kind"]),
    "frame.completed": _value,
    "frame.failed": _error,
    "frame.suspended": lambda given: conditions([given["on"]]),
    "frame.fulfilled": lambda given: conditions([given["on"]]),
    "frame.abandoned": _nothing,
}


def span(node: FrameNode, now: datetime) -> timedelta | None:
    """Give how long a frame took, or has taken until `now`; ``None`` if it has not begun."""
    if node.started_at is None:
        return None
    return (node.ended_at or now) - node.started_at


def outcome(node: FrameNode) -> str:
    """Give what a frame waits on, failed with or returned."""
    parts = []
    if node.waits_on is not None:
        own = node.waits_on == f"timer:{node.fid}"
        waits_on = node.waits_on.split(", ")  # of the root all that its frames wait on
        parts.append(f"waits on {'timer' if own else conditions(waits_on)}")
    if node.error is not None and node.status != "completed":
        parts.append(error_text(node.error))
    if node.status == "completed":
        parts.append(json_text(node.value))
    return "  ".join(parts)


def decision(review: Review) -> str:
    """Give what was decided, and by whom; ``""`` while nothing is."""
    if review.verdict is None:
        return ""
    data = "" if review.data is None else f" {json_text(review.data)}"
    return f"{review.verdict}{data} by {review.decided_by}"


def plain(value: Any) -> Any:
    """Give a value of the model as what its JSON document shows: errors as objects, by name."""
    if isinstance(value, ErrorInfo):
        return value._asdict()
    if isinstance(value, msgspec.Struct):
        return {name: plain(part) for name, part in msgspec.structs.asdict(value).items()}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return value
