"""Tests of the pure parts: values in, values out, no store and no clock."""

from __future__ import annotations
