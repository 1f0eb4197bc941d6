"""The SQLite store: one file, or memory."""

from __future__ import annotations

from perdure.stores.sqlite.store import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "open_sqlite"]
