"""What is checked of a store? The rules of the port, one check for each."""

from __future__ import annotations
