"""Examples: a small program for each of three patterns; the other two have folders of their own."""

from __future__ import annotations
