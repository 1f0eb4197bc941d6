"""Programs that use perdure, each in a directory of its own with a README."""

from __future__ import annotations
