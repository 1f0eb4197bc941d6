"""For users' tests: an engine on a clock that stands still, and the contract of every store."""

from __future__ import annotations

from perdure.testing.clock import ManualClock
from perdure.testing.harness import EngineUnderTest, engine_under_test

__all__ = ["EngineUnderTest", "ManualClock", "engine_under_test"]
