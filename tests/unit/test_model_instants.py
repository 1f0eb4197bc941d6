"""Instants and durations: exact to the microsecond, and refused where they have no meaning."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidArgument
from perdure.model.instants import duration_us, from_us, to_us

OFFSETS = st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59))
# Two days away from the ends of the calendar, so that every offset stays inside it.
LOCAL = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29))  # noqa: DTZ001 - made aware below
HUNDRED_YEARS_US = 36_525 * 86_400 * 1_000_000


class NoOffset(tzinfo):
    """A timezone that cannot tell its offset."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None

    def dst(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _: datetime | None) -> str | None:
        return None


@given(local=LOCAL, offset=OFFSETS)
def test_an_instant_survives_the_way_to_microseconds_and_back(
    local: datetime, offset: timedelta
) -> None:
    instant = local.replace(tzinfo=timezone(offset))
    back = from_us(to_us(instant))
    assert back == instant
    assert back.tzinfo is UTC


@given(us=st.integers(-(10**15), 10**15))
def test_microseconds_survive_the_way_to_an_instant_and_back(us: int) -> None:
    assert to_us(from_us(us)) == us


@given(local=LOCAL, step=st.timedeltas(timedelta(0), timedelta(days=1)))
def test_differences_and_order_are_kept_exactly(local: datetime, step: timedelta) -> None:
    instant = local.replace(tzinfo=UTC)
    assert to_us(instant + step) - to_us(instant) == step // timedelta(microseconds=1)


def test_the_epoch_is_zero() -> None:
    assert to_us(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert to_us(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    assert to_us(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1
    assert from_us(1) == datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)


def test_both_readings_of_a_repeated_hour_are_told_apart() -> None:
    zone = ZoneInfo("Europe/Paris")
    first = datetime(2025, 10, 26, 2, 30, tzinfo=zone)
    assert to_us(first.replace(fold=1)) - to_us(first) == 3_600_000_000


@pytest.mark.parametrize(
    "instant",
    [
        datetime(2030, 1, 1),  # noqa: DTZ001 - what is refused
        datetime.min,  # noqa: DTZ901 - what is refused
        datetime.max,  # noqa: DTZ901 - what is refused
        datetime(2030, 1, 1, tzinfo=NoOffset()),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        date(2030, 1, 1),
        "2030-01-01T00:00:00Z",
        0,
        None,
    ],
)
def test_what_is_no_aware_instant_is_refused_by_name(instant: object) -> None:
    with pytest.raises(InvalidArgument, match="aware datetime") as caught:
        to_us(instant, "option not_before")  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"option not_before is {instant!r}")


@given(duration=st.timedeltas(timedelta(0), timedelta(days=36_525)))
def test_a_timedelta_is_exact(duration: timedelta) -> None:
    assert timedelta(microseconds=duration_us("it", duration)) == duration


@given(seconds=st.floats(0, 36_525 * 86_400) | st.integers(0, 36_525 * 86_400))
def test_a_number_is_seconds(seconds: float) -> None:
    assert duration_us("it", seconds) == timedelta(seconds=seconds) // timedelta(microseconds=1)


def test_durations_by_example() -> None:
    assert duration_us("it", 1.5) == 1_500_000
    assert duration_us("it", timedelta(minutes=1)) == 60_000_000
    assert duration_us("it", 0) == duration_us("it", -0.0) == 0
    assert duration_us("it", 1e-6, allow_zero=False) == 1
    assert duration_us("it", timedelta(days=36_525)) == HUNDRED_YEARS_US


@pytest.mark.parametrize(
    "duration",
    [
        -1,
        -1e-6,
        timedelta(microseconds=-1),
        timedelta(days=36_525, microseconds=1),
        36_525 * 86_400 + 1,
        float("nan"),
        float("inf"),
        float("-inf"),
        10**400,
        True,
        False,
        None,
        "5",
        [5],
    ],
)
@pytest.mark.parametrize("allow_zero", [True, False])
def test_what_is_no_duration_is_refused_by_name(*, duration: object, allow_zero: bool) -> None:
    with pytest.raises(InvalidArgument, match=r"^the timeout is ") as caught:
        duration_us("the timeout", duration, allow_zero=allow_zero)  # type: ignore[arg-type]
    assert repr(duration) in str(caught.value)
    assert ("more than zero" in str(caught.value)) != allow_zero


@pytest.mark.parametrize("duration", [0, 0.0, -0.0, 1e-7, timedelta(0)])
def test_zero_is_refused_where_it_has_no_meaning(duration: timedelta | float) -> None:
    assert duration_us("it", duration) == 0
    with pytest.raises(InvalidArgument, match="more than zero"):
        duration_us("it", duration, allow_zero=False)
