"""Does every store keep every rule of the port? And does the suite notice one that does not?"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from perdure.ports.commands import Transition
from perdure.ports.store import Committed, Store
from perdure.testing import STORE_CHECKS, Report, store_contract
from perdure.testing.contract.stage import StoreCheck
from perdure.wiring import open_store


@pytest.mark.parametrize("check", STORE_CHECKS, ids=str)
async def test_contract(url: str, check: StoreCheck) -> None:
    await check(await open_store(url))


def test_every_check_has_a_name_of_its_own_and_a_rule() -> None:
    assert len({check.name for check in STORE_CHECKS}) == len(STORE_CHECKS)
    assert [check.name for check in STORE_CHECKS if not check.rule.endswith(".")] == []


async def test_report_of_a_store_that_keeps_the_contract(tmp_path: Path) -> None:
    numbers = itertools.count()
    report = await store_contract(lambda: open_store(f"sqlite:///{tmp_path}/{next(numbers)}.db"))
    assert report.passed, str(report)
    assert [result.name for result in report.results] == [check.name for check in STORE_CHECKS]
    assert str(report) == f"{len(STORE_CHECKS)} passed, 0 failed"
    assert next(numbers) == len(STORE_CHECKS), "each check opens a store of its own"


class Silent:
    """A store that does not tell what a commit has stirred."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(
        self, session: int, batch_no: int, transitions: Sequence[Transition]
    ) -> Committed:
        committed = await self._store.commit(session, batch_no, transitions)
        return Committed(committed.outcomes)

    async def close(self) -> None:
        self.closed = True
        await self._store.close()


class Mute(Silent):
    """A store that never answers a commit."""

    async def commit(self, *_: object) -> Committed:
        await asyncio.Future()
        raise AssertionError


async def report_of(kind: type[Silent]) -> tuple[Report, list[Silent]]:
    opened: list[Silent] = []

    async def open_one() -> Store:
        opened.append(kind(await open_store("memory:")))
        return cast("Store", opened[-1])

    return await store_contract(open_one), opened


async def test_report_says_which_rule_is_broken_and_where() -> None:
    report, opened = await report_of(Silent)
    assert not report.passed
    assert all(store.closed for store in opened)
    failed = {result.name: result for result in report.failures}
    assert failed.keys() > {"create_enqueues_a_start", "send_tells_an_owner"}
    assert "dequeue_takes_at_most_the_limit" not in failed
    result = failed["end_closes_with_the_result"]
    assert not result.passed
    assert result.reason is not None
    assert result.reason.startswith("AssertionError: assert committed == Committed(")
    assert "commands.py:" in result.reason
    text = str(report)
    assert "FAILED end_closes_with_the_result: A completed execution keeps its result" in text
    assert text.endswith(f"{len(STORE_CHECKS) - len(failed)} passed, {len(failed)} failed")


async def test_report_of_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = importlib.import_module("perdure.testing.store_contract")
    monkeypatch.setattr(suite, "CHECK_TIMEOUT_S", 0.001)
    monkeypatch.setattr(suite, "STORE_CHECKS", STORE_CHECKS[:1])
    report, opened = await report_of(Mute)
    assert report.results[0].reason is not None
    assert report.results[0].reason.startswith("TimeoutError: ")
    assert opened[0].closed


async def test_report_of_a_store_that_does_not_open() -> None:
    async def open_none() -> Store:
        message = "there is none"
        raise OSError(message)

    report = await store_contract(open_none)
    assert not any(result.passed for result in report.results)
    assert report.results[0].reason is not None
    assert report.results[0].reason.startswith("OSError: there is none")


def test_without_assertions_nothing_would_be_checked() -> None:
    script = (
        "import asyncio; from perdure.testing import store_contract; "
        "from perdure.wiring import open_store; "
        "asyncio.run(store_contract(lambda: open_store('memory:')))"
    )
    done = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"assertions are off" in done.stderr
