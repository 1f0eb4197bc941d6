"""Retry policies: the formula of the delay, its bounds, its jitter, and what is refused."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidArgument, NonRetryableError, NotSerializable, StepTimeout
from perdure.model.retry import NO_RETRY, RetryPolicy

HUNDRED_YEARS_US = 36_525 * 86_400 * 1_000_000
CHANCES = st.floats(0, 1, exclude_max=True)
BACKOFFS = st.timedeltas(timedelta(0), timedelta(days=36_525))


def us(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


def test_the_delays_of_a_growing_policy() -> None:
    policy = RetryPolicy(
        max_attempts=6,
        backoff=timedelta(seconds=2),
        backoff_factor=3,
        max_backoff=timedelta(seconds=50),
    )
    delays = [policy.delay_us(attempt, 0.9) for attempt in range(1, 7)]
    assert delays == [2_000_000, 6_000_000, 18_000_000, 50_000_000, 50_000_000, None]


def test_seconds_are_as_good_as_timedeltas() -> None:
    policy = RetryPolicy(max_attempts=3, backoff=0.25, backoff_factor=2.0, max_backoff=0.4)
    assert [policy.delay_us(attempt, 0) for attempt in (1, 2)] == [250_000, 400_000]


@given(
    backoff=BACKOFFS,
    factor=st.fractions(1, 1_000).map(float),
    ceiling=BACKOFFS,
    attempt=st.integers(1, 200),
)
def test_the_delay_is_the_formula(
    backoff: timedelta, factor: float, ceiling: timedelta, attempt: int
) -> None:
    policy = RetryPolicy(
        max_attempts=attempt + 1, backoff=backoff, backoff_factor=factor, max_backoff=ceiling
    )
    grown = us(backoff) * Fraction(factor) ** (attempt - 1)
    exact = min(grown, Fraction(us(ceiling)))
    delay = policy.delay_us(attempt, 0.0)
    assert delay is not None
    # A float has 53 bits and is raised to a power; the last one is cut to a microsecond.
    assert abs(delay - exact) <= 1 + exact * attempt * Fraction(1, 2**50)


@given(
    backoff=BACKOFFS,
    factor=st.floats(1, 1e308),
    ceiling=st.none() | BACKOFFS,
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10**12),
    chance=CHANCES,
)
def test_a_delay_is_bounded_whatever_the_policy(
    *,
    backoff: timedelta,
    factor: float,
    ceiling: timedelta | None,
    jitter: float,
    attempt: int,
    chance: float,
) -> None:
    policy = RetryPolicy(
        max_attempts=attempt + 1,
        backoff=backoff,
        backoff_factor=factor,
        max_backoff=ceiling,
        jitter=jitter,
    )
    delay = policy.delay_us(attempt, chance)
    plain = policy.delay_us(attempt, 0)
    assert isinstance(delay, int)
    assert isinstance(plain, int)
    most = HUNDRED_YEARS_US if ceiling is None else us(ceiling)
    assert min(us(backoff), most) <= plain <= most
    assert plain <= delay <= plain * (1 + jitter) + 1


@given(backoff=BACKOFFS, factor=st.floats(1, 10), attempt=st.integers(1, 2_000))
def test_a_later_delay_is_never_shorter(backoff: timedelta, factor: float, attempt: int) -> None:
    policy = RetryPolicy(max_attempts=10_000, backoff=backoff, backoff_factor=factor)
    first, second = policy.delay_us(attempt, 0), policy.delay_us(attempt + 1, 0)
    assert first is not None
    assert second is not None
    assert first <= second


@pytest.mark.parametrize("factor", [1.0, 2, 2.0, 1e308])
@pytest.mark.parametrize("attempt", [1, 2_000, 10**9, 10**18])
def test_without_backoff_every_attempt_is_repeated_at_once(factor: float, attempt: int) -> None:
    policy = RetryPolicy(max_attempts=10**18 + 1, backoff_factor=factor, jitter=1.0)
    assert policy.delay_us(attempt, 0.99) == 0


@pytest.mark.parametrize("factor", [2, 2.0])
def test_a_huge_attempt_waits_for_the_ceiling(factor: float) -> None:
    policy = RetryPolicy(max_attempts=10**12, backoff=1, backoff_factor=factor, max_backoff=60)
    assert policy.delay_us(10**11, 0) == 60_000_000
    unbounded = RetryPolicy(max_attempts=10**12, backoff=1, backoff_factor=factor)
    assert unbounded.delay_us(10**11, 0) == HUNDRED_YEARS_US


def test_a_ceiling_of_zero_repeats_at_once() -> None:
    assert RetryPolicy(max_attempts=2, backoff=5, max_backoff=0).delay_us(1, 0.5) == 0


def test_jitter_lengthens_by_a_share_that_chance_decides() -> None:
    policy = RetryPolicy(max_attempts=2, backoff=10, jitter=0.5)
    assert policy.delay_us(1, 0.0) == 10_000_000
    assert policy.delay_us(1, 0.5) == 12_500_000
    assert policy.delay_us(1, 0.75) == 13_750_000


@given(most=st.integers(1, 100), attempt=st.integers(1, 200), chance=CHANCES)
def test_no_attempt_follows_the_last_one(most: int, attempt: int, chance: float) -> None:
    policy = RetryPolicy(max_attempts=most, backoff=1)
    assert (policy.delay_us(attempt, chance) is None) == (attempt >= most)


def test_the_default_makes_one_attempt() -> None:
    assert RetryPolicy() == NO_RETRY
    assert NO_RETRY.delay_us(1, 0) is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("max_attempts", value) for value in (0, -1, 1.5, "3", True, None)],
        *[("backoff", value) for value in (-1, math.nan, math.inf, "1", None, True)],
        ("backoff", timedelta(microseconds=-1)),
        ("backoff", timedelta(days=36_526)),
        *[("max_backoff", value) for value in (-1, math.nan, "1", True)],
        *[("backoff_factor", value) for value in (0.5, 0, -1, math.nan, math.inf, "2", None)],
        ("backoff_factor", True),
        ("backoff_factor", 10**400),
        *[("jitter", value) for value in (-0.1, 1.1, math.nan, math.inf, "0.5", None, True)],
        *[("retry_on", value) for value in (ValueError, [ValueError], "ValueError", 7)],
        ("retry_on", (ValueError, "TypeError")),
        ("retry_on", (ValueError(),)),
        ("retry_on", (int,)),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"^{option} is ") as caught:
        RetryPolicy(**{option: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_attempts", 10**18),
        ("backoff", timedelta(days=36_525)),
        ("backoff_factor", 1),
        ("backoff_factor", 1.0),
        ("jitter", 0),
        ("jitter", 1),
        ("retry_on", ()),
        ("retry_on", (ValueError, KeyboardInterrupt)),
    ],
)
def test_the_ends_of_each_range_are_accepted(option: str, value: Any) -> None:
    assert getattr(RetryPolicy(**{option: value}), option) == value


def test_a_policy_does_not_change() -> None:
    with pytest.raises(AttributeError):
        NO_RETRY.max_attempts = 2  # type: ignore[misc]


class _Fatal(NonRetryableError):
    pass


def test_every_error_is_repeated_but_those_that_forbid_it() -> None:
    policy = RetryPolicy(max_attempts=2)
    assert policy.retries(ValueError())
    assert policy.retries(KeyboardInterrupt())
    assert policy.retries(StepTimeout("root/f#0", 1))
    assert not policy.retries(NonRetryableError())
    assert not policy.retries(_Fatal())
    assert not policy.retries(NotSerializable("root/f#0", "$", "is a set"))


def test_retry_on_repeats_its_classes_and_their_subclasses_only() -> None:
    policy = RetryPolicy(max_attempts=2, retry_on=(LookupError, NonRetryableError))
    assert policy.retries(KeyError())
    assert not policy.retries(ValueError())
    assert not policy.retries(_Fatal()), "what forbids a repetition wins"
    assert not RetryPolicy(max_attempts=2, retry_on=()).retries(KeyError())
