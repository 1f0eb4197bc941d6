"""What we need: the store, the clock. Protocols and the values that cross them, no behaviour."""

from __future__ import annotations
