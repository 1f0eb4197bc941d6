"""The driver of a workflow function: its context, its scheduler, its replay."""

from __future__ import annotations
