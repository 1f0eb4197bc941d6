"""The examples do what they say."""

from __future__ import annotations
