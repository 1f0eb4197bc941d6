"""Behaviour of executions, on every store."""

from __future__ import annotations
