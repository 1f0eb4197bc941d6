"""Where it lands: one package for each store."""

from __future__ import annotations
