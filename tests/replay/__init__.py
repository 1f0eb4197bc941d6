"""Journals that were recorded, and the workflows that wrote them."""

from __future__ import annotations
