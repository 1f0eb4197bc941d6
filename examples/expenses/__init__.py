"""An example: expense reports that a person decides on."""

from __future__ import annotations
