"""What do the tests of the projection share? A log that they write, and a view of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.projection import SqliteProjection
from perdure.testing import ManualClock
from tests.projection.support import Log


@pytest.fixture
def log() -> Log:
    """Give an empty control log."""
    return Log()


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Give where the view is kept."""
    return None if request.param == "memory" else str(tmp_path / "view")


@pytest.fixture
async def view(log: Log, path: str | None) -> AsyncIterator[SqliteProjection]:
    """Give a view of the log."""
    opened = SqliteProjection(log.store, path, ManualClock())
    yield opened
    await opened.close()
