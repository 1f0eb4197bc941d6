"""What time is it? The one source of time; nothing else in the engine asks the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from perdure.model.instants import EPOCH


class Clock(Protocol):
    """Time as a port: beats, expiry, timers, back-off and deadlines use nothing else."""

    def now(self) -> datetime:
        """Give the instant, an aware UTC datetime. It may jump; it is for people and deadlines."""

    def monotonic(self) -> float:
        """Give seconds that never go back; differences of it measure how long something took."""

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed."""


class SystemClock:
    """The clock of this machine."""

    def now_us(self) -> int:
        """Give microseconds since 1970-01-01T00:00Z, the cheap way."""
        return time.time_ns() // 1000

    def now(self) -> datetime:
        """Give the instant, an aware UTC datetime."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Give seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed."""
        await asyncio.sleep(seconds)


def reader_us(clock: Clock) -> Callable[[], int]:
    """Give a function that reads a clock: microseconds since 1970-01-01T00:00Z."""
    return clock.now_us if isinstance(clock, SystemClock) else lambda: now_us(clock)


def now_us(clock: Clock) -> int:
    """Read a clock: microseconds since 1970-01-01T00:00Z."""
    since = clock.now() - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
