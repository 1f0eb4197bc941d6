"""What happens to an expense report? Its receipts are checked, a person decides, and it is paid.

The receipts are checked by a consumer outside the engine, whoever decides has a while for it, and
the payment is written in the transaction that remembers that it was made: exactly once.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from perdure import Context, Registry
from perdure.patterns import delegate, review

RECEIPTS = "receipts"
"""The queue of whoever checks receipts."""
FINANCE = "finance"
"""The queue of the people who decide."""

registry = Registry()


@dataclass(frozen=True)
class Item:
    """One expense, in cents."""

    what: str
    cents: int


@dataclass(frozen=True)
class Report:
    """What somebody wants to have back."""

    id: str
    employee: str
    items: list[Item]


@registry.workflow("expense_report", version="1")
async def expense_report(ctx: Context, report: Report, decide_within_s: float) -> dict[str, Any]:
    """Settle one report, and say how it ended."""
    total = sum(item.cents for item in report.items)
    request = {"id": report.id, "items": [item.what for item in report.items]}
    checked = await delegate(ctx, RECEIPTS, request, name="receipts")
    missing = checked.payload["missing"] if checked is not None else []
    question = {"report": report.id, "by": report.employee, "cents": total, "missing": missing}
    decision = await review(ctx, FINANCE, question, timeout=decide_within_s)
    if decision is None:
        outcome, by = "expired", None
    else:
        outcome, by = ("paid" if decision.verdict == "approve" else "rejected"), decision.by.id
    if outcome == "paid":
        await ctx.transaction(pay, report.id, report.employee, total)
    await ctx.announce("expense.settled", {"report": report.id, "outcome": outcome})
    return {"report": report.id, "outcome": outcome, "by": by, "cents": total}


def pay(connection: sqlite3.Connection, report: str, employee: str, cents: int) -> None:
    """Write the payment in the books, which are tables of the same database."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS payments (report TEXT, employee TEXT, cents INTEGER)"
    )
    connection.execute("INSERT INTO payments VALUES (?, ?, ?)", (report, employee, cents))
