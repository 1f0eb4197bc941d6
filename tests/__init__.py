"""The tests of perdure."""

from __future__ import annotations
