"""What may a reader ask for? Arguments are checked here, before anything is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args
from uuid import UUID

import msgspec

from perdure.errors import InvalidArgument
from perdure.model.execution import ExecutionStatus
from perdure.model.ids import is_text, parse_eid
from perdure.ports.projection import ReviewStatus

Statuses = ExecutionStatus | str | Iterable[ExecutionStatus | str]

LIMIT_MAX = 500
POSITION_END = 2**63
_REVIEW_STATUSES = get_args(ReviewStatus)


def number(what: str, value: object, least: int, most: int) -> int:
    """Refuse what is no number in a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        message = f"{what} is {value!r}; it is between {least} and {most}"
        raise InvalidArgument(message)
    return value


def limit(value: int) -> int:
    """Refuse a limit out of range."""
    return number("limit", value, 1, LIMIT_MAX)


def position(what: str, value: object) -> int:
    """Refuse what is no position of a log."""
    return number(what, value, 0, POSITION_END - 1)


def text(what: str, value: str | None) -> str | None:
    """Refuse what cannot be compared with text."""
    if value is not None and not is_text(value):
        message = f"{what} is {value!r}; it is a text"
        raise InvalidArgument(message)
    return value


def eid_bytes(eid: UUID | str | None) -> bytes | None:
    """Give the bytes of an id, if there is one."""
    return None if eid is None else parse_eid(eid).bytes


def statuses(status: Statuses | None) -> bytes | None:
    """Give one status or several as JSON."""
    if status is None:
        return None
    try:
        given = [status] if isinstance(status, str) else list(status)
        return msgspec.json.encode(sorted({ExecutionStatus(one) for one in given}))
    except (TypeError, ValueError) as error:
        message = f"{error}: a status is one of {', '.join(ExecutionStatus)}"
        raise InvalidArgument(message) from None


def review_status(status: ReviewStatus | None) -> bytes | None:
    """Give the status of a review as JSON."""
    if status is None:
        return None
    if status not in _REVIEW_STATUSES:
        message = f"status is {status!r}; a review is {', '.join(_REVIEW_STATUSES)}"
        raise InvalidArgument(message)
    return msgspec.json.encode([status])


def place(cursor: str | None) -> tuple[int | None, bytes | None]:
    """Read the cursor of a list of executions: an instant and the bytes of an id."""
    if cursor is None:
        return None, None
    try:
        at, eid = cursor.rsplit("-", 1)
        instant = int(at)
        if -POSITION_END <= instant < POSITION_END:
            return instant, UUID(hex=eid).bytes
    except (ValueError, AttributeError, TypeError):
        pass
    raise _no_cursor(cursor)


def place_in_log(cursor: str | None) -> int | None:
    """Read the cursor of a list that is in the order of the log."""
    if cursor is None:
        return None
    if isinstance(cursor, str) and cursor.isdecimal() and int(cursor) < POSITION_END:
        return int(cursor)
    raise _no_cursor(cursor)


def _no_cursor(cursor: object) -> InvalidArgument:
    return InvalidArgument(f"{cursor!r} is no cursor; pass the one that the page before gave")
