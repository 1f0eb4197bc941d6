"""The view of the control log."""

from __future__ import annotations
