"""How it runs: the engine, the worker, the runner of one execution, and their services."""

from __future__ import annotations
