"""What is built of the context's methods alone? Patterns; write your own the same way.

A pattern is an async function whose first parameter is the context. It needs no support from the
engine: what it opens are frames like any other.
"""

from __future__ import annotations

from perdure.patterns.delegate import delegate
from perdure.patterns.fan_out import fan_out
from perdure.patterns.on_tick import on_tick
from perdure.patterns.review import review
from perdure.patterns.saga import saga

__all__ = ["delegate", "fan_out", "on_tick", "review", "saga"]
