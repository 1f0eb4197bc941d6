"""Tests of the patterns."""

from __future__ import annotations
