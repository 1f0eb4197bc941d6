"""How is time written down? Conversions between datetimes, durations and microseconds.

Inside the engine and the stores an instant is an integer: microseconds since 1970-01-01T00:00Z.
At the public surface it is a timezone-aware UTC datetime.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

from perdure.errors import InvalidArgument

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
LONGEST = timedelta(days=36_525)


def to_us(instant: datetime, what: str = "the instant") -> int:
    """Give an aware datetime as microseconds since the epoch.

    Raises:
        InvalidArgument: naming `what`, if it is no datetime, has no timezone, or lies outside the
            years 1 to 9999 in UTC.
    """
    utc = None
    if isinstance(instant, datetime) and instant.utcoffset() is not None:
        with contextlib.suppress(OverflowError):
            utc = instant.astimezone(UTC)
    if utc is None:
        message = f"{what} is {instant!r}; give an aware datetime, for example in UTC"
        raise InvalidArgument(message)
    return (utc - EPOCH) // MICROSECOND


def from_us(instant_us: int) -> datetime:
    """Give microseconds since the epoch as an aware UTC datetime."""
    return EPOCH + timedelta(microseconds=instant_us)


def duration_us(what: str, duration: timedelta | float, *, allow_zero: bool = True) -> int:
    """Give a timedelta, or seconds, as microseconds.

    Raises:
        InvalidArgument: if it is negative, not finite, longer than a hundred years, or zero where
            zero has no meaning.
    """
    try:
        given = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    except (TypeError, ValueError, OverflowError):
        given = None
    least = timedelta(0) if allow_zero else MICROSECOND
    if given is None or isinstance(duration, bool) or not least <= given <= LONGEST:
        bound = "zero or more" if allow_zero else "more than zero"
        message = f"{what} is {duration!r}; give a timedelta or seconds, {bound}, at most 100 years"
        raise InvalidArgument(message)
    return given // MICROSECOND
