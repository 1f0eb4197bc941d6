"""What exists: the values of the system. No state, no clock, no input or output."""

from __future__ import annotations
