"""What keeps a store in order: services that any number of processes may run."""

from __future__ import annotations
