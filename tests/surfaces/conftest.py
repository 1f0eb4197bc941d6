"""What do the tests of the command line share? A store of their own, and a way to call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.support import Cli, Filled, start_one_of_each


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Give the command line on a store that does not exist yet."""
    return Cli(f"sqlite:///{tmp_path / 'test.db'}")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Give a store with one execution in each status. To look at, not to change."""
    return start_one_of_each(Cli(f"sqlite:///{tmp_path_factory.mktemp('filled') / 'test.db'}"))
