"""How fast is perdure? Measured beside the raw limit of SQLite here, and beside its peers."""

from __future__ import annotations
