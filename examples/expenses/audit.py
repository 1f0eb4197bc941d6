"""Is everything as it must be? Compares what was asked for with what is left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure import Entry


@dataclass(frozen=True)
class Evidence:
    """What a run has left behind.

    Attributes:
        verdicts: what people decided, by report; whoever is not in it let the time pass.
        results: what the executions returned, by report.
        journals: their journals, by report.
        announced: the control log's announcements: type and report, or id of a review.
        pending: how many reviews the inbox still shows.
        payments: the reports in the books.
    """

    verdicts: Mapping[str, str]
    results: Mapping[str, Mapping[str, Any]]
    journals: Mapping[str, Sequence[Entry]]
    announced: Sequence[tuple[str, str]]
    pending: int
    payments: Sequence[str]


def audit(reports: Sequence[str], evidence: Evidence) -> list[str]:
    """List what is not as it must be."""
    problems: list[str] = []
    for report in reports:
        verdict = evidence.verdicts.get(report)
        expected = {"approve": "paid", None: "expired"}.get(verdict, "rejected")
        outcome = evidence.results.get(report, {}).get("outcome")
        if outcome != expected:
            problems.append(f"{report}: decided {verdict}, so it is {expected}, but was {outcome}")
        paid = evidence.payments.count(report)
        if paid != (expected == "paid"):
            problems.append(f"{report}: {expected}, and paid {paid} times")
        problems += _check_journal(report, evidence.journals.get(report, ()))
    problems += _check_announcements(reports, evidence)
    if evidence.pending:
        problems.append(f"the inbox still shows {evidence.pending} reviews")
    return problems


def _check_journal(report: str, journal: Sequence[Entry]) -> list[str]:
    if [entry.seq for entry in journal] != list(range(1, len(journal) + 1)):
        return [f"{report}: its journal has a hole"]
    twice = [
        fid
        for fid, count in Counter(
            entry.fid for entry in journal if entry.type == "frame.completed"
        ).items()
        if count > 1
    ]
    return [f"{report}: the frame {fid} has two memos" for fid in twice]


def _check_announcements(reports: Sequence[str], evidence: Evidence) -> list[str]:
    told = Counter(evidence.announced)
    problems = [f"{what}: announced {n} times" for what, n in told.items() if n > 1]
    kinds = Counter(kind for kind, _ in told)
    decided = len(evidence.verdicts)
    expected = {
        "review.requested": len(reports),
        "review.decided": decided,
        "review.expired": len(reports) - decided,
        "expense.settled": len(reports),
    }
    return problems + [
        f"{kinds[kind]} times {kind}, not {count}"
        for kind, count in expected.items()
        if kinds[kind] != count
    ]
