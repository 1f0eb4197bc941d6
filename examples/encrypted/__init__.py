"""An example: values that are encrypted on their way to the store."""

from __future__ import annotations
