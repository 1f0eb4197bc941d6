"""Every test of the engine runs twice: with and without warm executions.

A test that looks at replays themselves says ``@pytest.mark.cold``: it runs without only.
"""

from __future__ import annotations

import pytest

from perdure import EngineConfig


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test its modes."""
    cold = metafunc.definition.get_closest_marker("cold") is not None
    modes = [0] if cold else [0, 1_000]
    metafunc.parametrize("warm_executions", modes, ids=["cold", "warm"][: len(modes)])


@pytest.fixture(autouse=True)
def _warmth(warm_executions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what the configurations of the test begin with."""
    defaults = EngineConfig.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "warm_executions", warm_executions)
