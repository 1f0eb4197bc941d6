"""Where is the SQL? In files beside this module; this reads them once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

_FOLDER = resources.files("perdure.projection")

SCHEMA = _FOLDER.joinpath("schema.sql").read_text(encoding="utf-8").split(";\n")
SCHEMA_VERSION = 1
APPLICATION_ID = int.from_bytes(b"pdpj")


def _load(text: str) -> dict[str, str]:
    """Split a file of statements at its ``-- name:`` lines, and drop the comments."""
    _, *parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return {
        name: re.sub(r"^--.*$", "", body, flags=re.MULTILINE).strip()
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


SQL = _load(_FOLDER.joinpath("queries.sql").read_text(encoding="utf-8"))


# What a list can be narrowed by: the name of the value, and the condition.
_CONDITIONS = {
    "status": "status IN (SELECT value FROM json_each(:status))",
    "workflow": "workflow = :workflow",
    "parent": "parent = :parent",
    "text": "(instr(coalesce(workflow, ''), :text) OR instr(coalesce(dispatch_key, ''), :text))",
    "since": "created_at >= :since",
    "until": "created_at < :until",
    "last_at": "updated_at <= :last_at AND (updated_at < :last_at OR eid > :last_eid)",
    "queue": "queue = :queue",
    "rid": "rid = :rid",
    "type": "type = :type",
    "eid": "eid = :eid",
    "after": "position > :after",
}


def narrowed(name: str, values: Mapping[str, object]) -> str:
    """Give a statement with the conditions of those values that are not ``None``."""
    wanted = [condition for key, condition in _CONDITIONS.items() if values.get(key) is not None]
    return SQL[name].format(where=f"WHERE {' AND '.join(wanted)}" if wanted else "")
