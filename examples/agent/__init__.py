"""An example: a workflow that waits for a slow agent."""

from __future__ import annotations
