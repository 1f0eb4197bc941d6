"""Where is the SQL? In files beside this module; this reads them once."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources

_FOLDER = resources.files("perdure.stores.sqlite")

SCHEMA = _FOLDER.joinpath("schema.sql").read_text(encoding="utf-8")
SCHEMA_VERSION = 3
APPLICATION_ID = int.from_bytes(b"perd")

# A statement costs as much as a row, so many rows share one. Few sizes keep few statements cached.
_ROWS = (64, 16, 4, 1)


def _load(text: str) -> dict[str, str]:
    """Split a file of statements at its ``-- name:`` lines, and drop the comments."""
    _, *parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return {
        name: re.sub(r"^--.*$", "", body, flags=re.MULTILINE).strip()
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


SQL = _load(_FOLDER.joinpath("queries.sql").read_text(encoding="utf-8"))


def _many(statement: str) -> list[tuple[int, str]]:
    """Give an insert of one row for several rows, each with how many values it takes."""
    head, row = re.split(r"(?<=VALUES) ", statement)
    width = row.count("?")
    return [(width * rows, f"{head} {', '.join([row] * rows)}") for rows in _ROWS]


_MANY = {name: _many(SQL[name]) for name in ("append", "control")}


def insert_many(
    execute: Callable[[str, list[object]], object], name: str, values: list[object]
) -> None:
    """Insert rows with the statement `name`; `values` are theirs, one row after the other."""
    at, end = 0, len(values)
    for width, statement in _MANY[name]:
        while end - at >= width:
            execute(statement, values[at : at + width])
            at += width
