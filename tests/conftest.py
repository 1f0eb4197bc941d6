"""What do the tests share? The stores they run on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that begins tests in the background lets them ignore interrupts, and every process
    # that they start, too. Some tests interrupt such a process.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of a fresh store: in memory, then in a file."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'test.db'}"
