"""Real processes on one file, killed and stopped from outside."""

from __future__ import annotations
