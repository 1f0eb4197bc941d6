"""Charges a file of invoices through a flaky service, and survives the death of its workers."""

from __future__ import annotations
