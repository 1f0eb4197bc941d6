"""Every test of the patterns runs as those of the engine do: with and without warm executions."""

from __future__ import annotations

from tests.engine.conftest import _warmth, pytest_generate_tests

__all__ = ["_warmth", "pytest_generate_tests"]
