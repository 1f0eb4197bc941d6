"""Would the audit of the invoice example notice if something went wrong?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from examples.invoices import app, audit
from perdure import Actor, Entry, ExecutionRow, ExecutionStatus, Provenance

NOW = datetime(2030, 1, 1, tzinfo=UTC)
GOOD = app.Row(
    id="INV-1",
    customer="Ambervale Papier GmbH",
    date="2025-04-30",
    currency="USD",
    amount="100.50",
    due="2025-05-30",
    reference="PO 1",
)
ROWS = [asdict(GOOD), asdict(replace(GOOD, id="INV-2", amount="")), asdict(GOOD)]


def execution_of(invoice: str, **result: object) -> ExecutionRow:
    return ExecutionRow(
        eid=UUID(int=0),
        kind="code",
        workflow="invoice",
        version="1",
        status=ExecutionStatus.COMPLETED,
        queue="default",
        args=None,
        dispatch_key=invoice,
        created_at=NOW,
        created_by=Actor.system("test"),
        started_at=NOW,
        ended_at=NOW,
        updated_at=NOW,
        epoch=1,
        worker_id=None,
        suspended_on=(),
        blocked=None,
        result={"invoice": invoice, "reason": None, "charge": None, **result},
        error=None,
        tags={},
    )


def journal_of(*entries: tuple[int, str, str]) -> list[Entry]:
    """Make a journal of (epoch, type, fid); a resumed execution was recovered."""
    provenance = Provenance(Actor.system("test"), None, None, 0, NOW)
    return [
        Entry(
            seq=number,
            type=kind,
            fid=fid,
            at=NOW,
            attempt=1,
            epoch=epoch,
            payload={"reason": audit.RECOVERY} if kind == "execution.resumed" else {},
            provenance=provenance,
            eid=UUID(int=0),
        )
        for number, (epoch, kind, fid) in enumerate(entries, 1)
    ]


CHARGED = execution_of("INV-1", status="completed", charge={"amount": "87.16"})
REFUSED = execution_of("INV-2", status="refused", reason="missing amount")
JOURNAL = journal_of(
    (1, "execution.started", "root"),
    (1, "frame.started", "root/a#0"),
    (1, "frame.completed", "root/a#0"),
    (1, "frame.started", "root/b#0"),
    (2, "execution.resumed", "root"),
    (2, "frame.started", "root/b#0"),
    (2, "frame.completed", "root/b#0"),
    (2, "execution.completed", "root"),
)
EVIDENCE = audit.Evidence(
    rows=ROWS,
    executions=[CHARGED, REFUSED],
    journals={"INV-1": JOURNAL, "INV-2": journal_of((1, "execution.started", "root"))},
    charges=[{"number": 1, "key": "k", "invoice": "INV-1", "amount": "87.16"}],
    calls=[
        {"number": 1, "invoice": "INV-1", "fate": "error after the charge", "effect": "charged"},
        {"number": 2, "invoice": "INV-1", "fate": "slow", "effect": "duplicate"},
    ],
    notes=["INV-1"],
    kills=[audit.Kill(1, frozenset({"INV-1"}))],
)


def test_the_audit_finds_nothing_where_all_is_well() -> None:
    assert audit.check(EVIDENCE, kills=1) == []


def twice(evidence: audit.Evidence) -> audit.Evidence:
    again = {**evidence.charges[0], "number": 2}
    return replace(evidence, charges=[*evidence.charges, again])


def with_charge(evidence: audit.Evidence, **changes: str) -> audit.Evidence:
    return replace(evidence, charges=[{**evidence.charges[0], **changes}])


def with_execution(evidence: audit.Evidence, execution: ExecutionRow) -> audit.Evidence:
    others = [row for row in evidence.executions if row.dispatch_key != execution.dispatch_key]
    return replace(evidence, executions=[*others, execution])


def with_entry(evidence: audit.Evidence, *entry: tuple[int, str, str]) -> audit.Evidence:
    journal = [*JOURNAL[:-1], *journal_of(*entry)]
    return replace(evidence, journals={**evidence.journals, "INV-1": journal})


@pytest.mark.parametrize(
    ("tamper", "problem"),
    [
        (twice, "INV-1 was charged 2 times"),
        (twice, "the ledger has 2 charges for 1 charged invoices"),
        (lambda e: replace(e, charges=[]), "INV-1 was charged 0 times"),
        (lambda e: with_charge(e, amount="87.17"), "INV-1 87.17 EUR, not 87.16 EUR"),
        (lambda e: with_charge(e, invoice="INV-2"), "INV-2 should be refused, but the ledger"),
        (
            lambda e: with_execution(
                e, execution_of("INV-1", status="completed", charge={"amount": "1.00"})
            ),
            "INV-1 was charged 1.00 EUR instead of 87.16 EUR",
        ),
        (
            lambda e: with_execution(e, execution_of("INV-1", status="refused", reason="mood")),
            "INV-1 was refused (mood); it should be charged",
        ),
        (
            lambda e: with_execution(e, execution_of("INV-2", status="refused", reason="mood")),
            "INV-2 was refused (mood); it should be refused: missing amount",
        ),
        (
            lambda e: with_execution(
                e, execution_of("INV-2", status="completed", charge={"amount": "1.00"})
            ),
            "INV-2 was completed (None); it should be refused",
        ),
        (lambda e: replace(e, executions=[CHARGED]), "INV-2 has 0 executions"),
        (lambda e: replace(e, executions=[*e.executions, CHARGED]), "INV-1 has 2 executions"),
        (lambda e: replace(e, executions=[*e.executions, execution_of("X", status="")]), "X has 1"),
        (lambda e: replace(e, notes=[]), "the outbox has 0 notes for INV-1"),
        (lambda e: replace(e, notes=["INV-1", "INV-1"]), "the outbox has 2 notes for INV-1"),
        (lambda e: replace(e, notes=["INV-1", "INV-2"]), "the outbox has 1 notes for INV-2"),
        (lambda e: replace(e, kills=[]), "0 workers were killed instead of 1"),
        (lambda e: replace(e, kills=[audit.Kill(1, frozenset())]), "nothing was running then"),
        (
            lambda e: replace(e, kills=[audit.Kill(1, frozenset({"INV-2"}))]),
            "INV-2 was interrupted 1 times, but recovered 0 times",
        ),
        (
            lambda e: with_entry(e, (2, "frame.started", "root/a#0")),
            "root/a#0 ran again although it was completed",
        ),
        (lambda e: with_entry(e, (1, "execution.completed", "root")), "has epoch 1 after 2"),
    ],
)
def test_the_audit_finds_what_is_wrong(
    tamper: Callable[[audit.Evidence], audit.Evidence], problem: str
) -> None:
    problems = audit.check(tamper(EVIDENCE), kills=1)

    assert any(problem in found for found in problems), problems


def test_the_tally_counts_what_happened() -> None:
    assert audit.tally(EVIDENCE) == audit.Tally(
        rows=3,
        duplicates=1,
        completed=1,
        refused={"missing amount": 1},
        interrupted=[1],
        recovered=1,
        epochs=1,
        cut_off=1,
        replayed=1,
        retried=0,
        calls=2,
        failed_calls=1,
        slow_calls=1,
        charges=1,
        refused_duplicates=1,
        charged_twice=0,
        cents=8716,
    )
    assert audit.tally(twice(EVIDENCE)).charged_twice == 1
