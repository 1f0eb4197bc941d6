"""Where is the SQL? In files beside this module; this reads them once."""

from __future__ import annotations

import re
from importlib import resources

_FOLDER = resources.files("perdure.stores.sqlite")

SCHEMA = _FOLDER.joinpath("schema.sql").read_text(encoding="utf-8")
SCHEMA_VERSION = 1


def _load(text: str) -> dict[str, str]:
    """Split a file of statements at its ``-- name:`` lines, and drop the comments."""
    _, *parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return {
        name: re.sub(r"^--.*$", "", body, flags=re.MULTILINE).strip()
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


SQL = _load(_FOLDER.joinpath("queries.sql").read_text(encoding="utf-8"))
