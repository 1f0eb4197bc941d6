"""What is a measurement? A function that gives readings, each with a unit and maybe a bar.

Nothing here measures: the functions stand in the modules beside, and `bench.table` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class Absent(Exception):
    """What was to be measured is not on this machine; the text says what is missing."""


class Wrong(AssertionError):
    """A result is not what it must be, so its time counts for nothing."""


def check(*, holds: bool, otherwise: str) -> None:
    """Refuse to go on with a measurement whose results are wrong.

    Raises:
        Wrong: unless `holds`.
    """
    if not holds:
        raise Wrong(otherwise)


@dataclass(frozen=True)
class Bench:
    """Where and how much a measurement measures.

    Attributes:
        directory: a fresh directory on a disk.
        quick: whether little work is enough, since only errors count.
    """

    directory: Path
    quick: bool

    def pick(self, full: int, quick: int) -> int:
        """Give the amount of work to do."""
        return quick if self.quick else full

    def url(self, name: str = "perdure") -> str:
        """Give the URL of a store file in the directory."""
        return f"sqlite:///{self.directory / name}.db"


@dataclass(frozen=True)
class Bar:
    """What a reading must reach: at least, or at most, `value`."""

    value: float
    at_most: bool = False

    def met(self, value: float) -> bool:
        """Tell whether a reading reaches it."""
        return value <= self.value if self.at_most else value >= self.value


@dataclass(frozen=True)
class Reading:
    """One figure that a measurement gives.

    Attributes:
        name: its name in the output and in what the function returns.
        title: what it is, for people.
        unit: ``/s``, ``ms`` … Figures per second are better when higher, all others when lower.
        bar: what it must reach, if anything.
        beside: the names of readings that it is compared with.
    """

    name: str
    title: str
    unit: str
    bar: Bar | None = None
    beside: tuple[str, ...] = ()

    @property
    def more_is_better(self) -> bool:
        """Whether a higher figure is a better one."""
        return self.unit == "/s"

    def times_better(self, value: float, other: float) -> float | None:
        """Give how many times better `value` is than `other`; ``None`` if that is no number."""
        over, under = (value, other) if self.more_is_better else (other, value)
        return over / under if under else None


@dataclass(frozen=True)
class Measurement:
    """A function to run in a process of its own, and the readings that it gives."""

    name: str
    function: Callable[[Bench], dict[str, float]]
    readings: tuple[Reading, ...]
    timeout_s: float = 600.0
