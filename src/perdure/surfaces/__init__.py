"""How you touch it: the command line. It commands through the engine and holds nothing itself."""

from __future__ import annotations
