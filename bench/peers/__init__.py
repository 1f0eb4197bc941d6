"""What do others take for the same work? One module for each peer; absent ones are reported so."""

from __future__ import annotations

import importlib
from typing import Any

from bench.measurement import Absent


def import_peer(module: str, package: str) -> Any:
    """Import a peer.

    Raises:
        Absent: if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"{package} is not installed ({error})"
        raise Absent(message) from error
