"""When is a failed attempt repeated? A pure decision; the runner applies it."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from perdure.errors import (
    InvalidArgument,
    NonRetryableError,
    NotSerializable,
    PayloadTooLarge,
)
from perdure.model.instants import LONGEST, duration_us

NEVER_RETRIED = (NonRetryableError, NotSerializable, PayloadTooLarge)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a step is attempted, and how long it waits between attempts.

    The delay after attempt ``n`` is ``min(backoff * backoff_factor ** (n - 1), max_backoff)``,
    lengthened by a random share of at most `jitter` of itself.

    Attributes:
        max_attempts: attempts in all; 1 means no retry.
        backoff: the delay before attempt 2, a timedelta or seconds. Zero repeats at once.
        backoff_factor: multiplies the delay at each further attempt; at least 1.
        max_backoff: the ceiling of the delay, or ``None``.
        jitter: between 0 and 1; 0.1 lengthens each delay by up to a tenth.
        retry_on: only errors of these classes are repeated; ``None`` repeats every error.

    Raises:
        InvalidArgument: if a value is out of range.

    Example:
        ``RetryPolicy(max_attempts=5, backoff=timedelta(seconds=2), backoff_factor=2.0)``
    """

    max_attempts: int = 1
    backoff: timedelta | float = timedelta(0)
    backoff_factor: float = 1.0
    max_backoff: timedelta | float | None = None
    jitter: float = 0.0
    retry_on: tuple[type[BaseException], ...] | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        attempts = self.max_attempts
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            message = f"max_attempts is {attempts!r}; it is a whole number of at least 1"
            raise InvalidArgument(message)
        duration_us("backoff", self.backoff)
        if self.max_backoff is not None:
            duration_us("max_backoff", self.max_backoff)
        if not _is_between(self.backoff_factor, 1.0, sys.float_info.max):
            message = f"backoff_factor is {self.backoff_factor!r}; it is a number of at least 1"
            raise InvalidArgument(message)
        if not _is_between(self.jitter, 0.0, 1.0):
            message = f"jitter is {self.jitter!r}; it is a number between 0 and 1"
            raise InvalidArgument(message)
        classes = self.retry_on
        if classes is not None and not (
            isinstance(classes, tuple)
            and all(isinstance(c, type) and issubclass(c, BaseException) for c in classes)
        ):
            message = f"retry_on is {classes!r}; it is a tuple of exception classes"
            raise InvalidArgument(message)

    def delay_us(self, attempt: int, chance: float) -> int | None:
        """Decide the delay after failed attempt `attempt`, or ``None`` if none is left.

        Args:
            attempt: the attempt that failed, from 1.
            chance: a random number in [0, 1) that decides the jitter.

        Returns:
            Microseconds until the next attempt; 0 means at once.
        """
        if attempt >= self.max_attempts:
            return None
        backoff = duration_us("backoff", self.backoff)
        if backoff == 0:
            return 0
        ceiling = LONGEST if self.max_backoff is None else self.max_backoff
        try:
            grown = backoff * float(self.backoff_factor) ** (attempt - 1)
        except OverflowError:
            grown = float("inf")
        return int(min(grown, duration_us("max_backoff", ceiling)) * (1 + self.jitter * chance))

    def retries(self, error: BaseException) -> bool:
        """Decide whether an attempt that failed with `error` may be repeated at all."""
        if isinstance(error, NEVER_RETRIED):
            return False
        return self.retry_on is None or isinstance(error, self.retry_on)

    def retries_classes(self, names: Collection[str]) -> bool:
        """Decide the same of an error elsewhere whose class and the classes above have `names`."""
        return self.retry_on is None or any(class_name(one) in names for one in self.retry_on)


def class_name(one: type) -> str:
    """Name a class so that another process with the same code names it alike."""
    return f"{one.__module__}.{one.__qualname__}"


def _is_between(value: object, least: float, most: float) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return least <= value <= most


NO_RETRY = RetryPolicy()
