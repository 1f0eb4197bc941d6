"""Does a store keep the rules of the port? A suite of checks for whoever writes one."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from perdure.ports.store import Store
from perdure.testing.contract import (
    commands,
    commits,
    operators,
    queues,
    reads,
    tasks,
    trees,
    upkeep,
)
from perdure.testing.contract.stage import StoreCheck

CHECK_TIMEOUT_S = 30.0

STORE_CHECKS: tuple[StoreCheck, ...] = (
    *commits.CHECKS,
    *commands.CHECKS,
    *operators.CHECKS,
    *trees.CHECKS,
    *queues.CHECKS,
    *tasks.CHECKS,
    *upkeep.CHECKS,
    *reads.CHECKS,
)
"""Every check of the contract, for a runner that wants each to be a test of its own."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How one check went.

    Attributes:
        name: the name of the check.
        rule: the rule that it checks, in words.
        reason: why it failed; ``None`` if it passed.
    """

    name: str
    rule: str
    reason: str | None

    @property
    def passed(self) -> bool:
        """Whether the rule is kept."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Report:
    """How a suite of checks went; as text, one line for each that failed and one for the count."""

    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not self.failures

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if not result.passed)

    def __str__(self) -> str:
        """Give the report as text."""
        lines = [f"FAILED {one.name}: {one.rule} {one.reason}" for one in self.failures]
        return "\n".join([*lines, f"{len(self.results) - len(lines)} passed, {len(lines)} failed"])


async def store_contract(open_store: Callable[[], Awaitable[Store]]) -> Report:
    """Check a store against the rules that the engine relies on; see `perdure.ports.store`.

    Each check works on a store of its own and closes it. With pytest, parametrize over
    `STORE_CHECKS` instead: ``await check(await open_store())``.

    Args:
        open_store: opens an empty store, a fresh one at each call.

    Returns:
        A report on every check.

    Raises:
        RuntimeError: if Python runs without assertions: then nothing would be checked.

    Example:
        ``report = await store_contract(open_mine)`` then ``assert report.passed, str(report)``
    """
    if not __debug__:
        message = "assertions are off, so nothing would be checked; run Python without -O"
        raise RuntimeError(message)
    return Report(tuple([await _result(check, open_store) for check in STORE_CHECKS]))


async def _result(check: StoreCheck, open_store: Callable[[], Awaitable[Store]]) -> CheckResult:
    reason = None
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check(await open_store())
    except Exception as error:  # noqa: BLE001 - whatever a store raises is the reason
        reason = _reason(error)
    return CheckResult(check.name, check.rule, reason)


def _reason(error: Exception) -> str:
    """Say what went wrong; an assertion has no words, so its line is quoted."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = str(error) or place.line or ""
    return f"{type(error).__name__}: {words} ({place.filename}:{place.lineno})"
