"""For users' tests: an engine on a clock that stands still, and the contract of every store."""

from __future__ import annotations

from perdure.testing.clock import ManualClock
from perdure.testing.harness import EngineUnderTest, engine_under_test
from perdure.testing.store_contract import STORE_CHECKS, Report, store_contract

__all__ = [
    "STORE_CHECKS",
    "EngineUnderTest",
    "ManualClock",
    "Report",
    "engine_under_test",
    "store_contract",
]
