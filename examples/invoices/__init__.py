"""Charges a file of invoices through a flaky service, and survives the death of its worker."""
