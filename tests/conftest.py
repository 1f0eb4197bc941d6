"""What do the tests share? The stores they run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of a fresh store: in memory, then in a file."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'test.db'}"
