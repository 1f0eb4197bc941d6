"""Delegates questions to a slow agent, and survives the death of what stands between them."""

from __future__ import annotations
