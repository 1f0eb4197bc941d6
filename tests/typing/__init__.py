"""Tests of the public types: what a type checker accepts and refuses."""

from __future__ import annotations
