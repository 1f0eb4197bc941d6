"""What do the tests of the command line share? A store of their own, and a way to call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.support import Cli


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERDURE_APP", "PERDURE_STORE", "PERDURE_BY", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Give the command line on a store that does not exist yet."""
    return Cli(f"sqlite:///{tmp_path / 'test.db'}")
