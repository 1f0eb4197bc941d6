"""The local view of the control log that lists, counts and the inbox are read from."""

from __future__ import annotations

from perdure.projection.view import SqliteProjection

__all__ = ["SqliteProjection"]
