"""Did it all come right? Works out what must have happened, and compares.

The expectation is computed from the file of invoices and the table of rates alone, in another way
than the workflow does it; nothing of `app` is used. It looks at what is left behind (executions,
journals, the ledger's book, the outbox) and changes nothing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

from perdure import Entry, ExecutionRow

LIMIT_CENTS = 25_000 * 100
RECOVERY = "recovery"


@dataclass(frozen=True)
class Expected:
    """What must become of a row: `cents` are charged, or it is refused for one of `faults`."""

    faults: frozenset[str]
    cents: int = 0

    @property
    def accepted(self) -> bool:
        """Whether it is charged."""
        return not self.faults


@dataclass(frozen=True)
class Kill:
    """A worker that was killed, and the invoices whose executions it left ``running``."""

    worker: int
    running: frozenset[str]


@dataclass(frozen=True)
class Evidence:
    """What a run leaves behind; mappings are by invoice id.

    Attributes:
        rows: the rows that were started, in order, duplicates included.
        executions: every execution in the store, in any order.
        journals: the journal of each execution.
        charges: the ledger's charges: number, key, invoice, amount.
        calls: the ledger's calls: number, key, invoice, fate, effect.
        notes: the invoice named in each note of the outbox.
        kills: the workers that were killed, in order.
    """

    rows: Sequence[Mapping[str, str]]
    executions: Sequence[ExecutionRow]
    journals: Mapping[str, Sequence[Entry]]
    charges: Sequence[Mapping[str, Any]]
    calls: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    kills: Sequence[Kill]


def read_rates() -> dict[str, Fraction]:
    """Read the table of rates: EUR for one unit of each currency."""
    text = Path(__file__).with_name("rates.json").read_text(encoding="utf-8")
    return {currency: Fraction(rate) for currency, rate in json.loads(text)["rates"].items()}


def expect(row: Mapping[str, str], rates: Mapping[str, Fraction]) -> Expected:
    """Work out what must become of a row: all its faults, or the cents to charge."""
    faults: set[str] = set()
    if row["customer"].strip() == "":
        faults.add("empty customer")
    if not (_is_date(row["date"]) and _is_date(row["due"])):
        faults.add("malformed date")
    currency, amount = row["currency"].strip().upper(), row["amount"].strip()
    if currency not in rates:
        faults.add("unknown currency")
    faults |= _find_amount_faults(amount, decimals=0 if currency == "JPY" else 2)
    if faults:
        return Expected(frozenset(faults))
    cents = int(Fraction(amount) * rates[currency] * 100 + Fraction(1, 2))
    if cents > LIMIT_CENTS:
        return Expected(frozenset({"amount over the limit"}))
    return Expected(frozenset(), cents)


def _find_amount_faults(amount: str, *, decimals: int) -> set[str]:
    whole, point, fraction = amount.removeprefix("-").partition(".")
    if amount == "":
        return {"missing amount"}
    digits = set(whole + fraction) <= set("0123456789")
    if not (digits and whole and bool(fraction) == bool(point) and len(fraction) <= decimals):
        return {"malformed amount"}
    if amount.startswith("-") or not (whole + fraction).strip("0"):
        return {"amount not positive"}
    return set()


def _is_date(text: str) -> bool:
    try:
        return f"{datetime.strptime(text, '%Y-%m-%d'):%Y-%m-%d}" == text  # noqa: DTZ007 - a date
    except ValueError:
        return False


def check(evidence: Evidence, *, kills: int) -> list[str]:
    """Check that everything came right although `kills` workers were killed.

    Returns:
        What did not, one sentence each; empty if all is well.
    """
    expected = _expect_all(evidence.rows)
    return [
        *_check_settlements(evidence, expected),
        *_check_charges(evidence, expected),
        *_check_notes(evidence, expected),
        *_check_kills(evidence, kills),
        *_check_replays(evidence),
    ]


def _expect_all(rows: Sequence[Mapping[str, str]]) -> dict[str, Expected]:
    rates = read_rates()
    return {row["id"]: expect(row, rates) for row in reversed(rows)}


def _check_settlements(evidence: Evidence, expected: Mapping[str, Expected]) -> Iterator[str]:
    counts = Counter(str(row.dispatch_key) for row in evidence.executions)
    for invoice in expected.keys() | counts.keys():
        if invoice not in expected or counts[invoice] != 1:
            yield f"{invoice} has {counts[invoice]} executions instead of one for each row's id"
    for execution in evidence.executions:
        invoice = str(execution.dispatch_key)
        if execution.status != "completed":
            yield f"{invoice} is {execution.status} instead of completed: {execution.error}"
        elif invoice in expected:
            yield from _check_settlement(invoice, execution.result, expected[invoice])


def _check_settlement(invoice: str, result: Any, expected: Expected) -> Iterator[str]:
    status, reason = result["status"], result["reason"]
    if not expected.accepted:
        if status != "refused" or reason not in expected.faults:
            reasons = " or ".join(sorted(expected.faults))
            yield f"{invoice} was {status} ({reason}); it should be refused: {reasons}"
    elif status != "completed":
        yield f"{invoice} was {status} ({reason}); it should be charged"
    elif _cents(result["charge"]["amount"]) != expected.cents:
        amount = result["charge"]["amount"]
        yield f"{invoice} was charged {amount} EUR instead of {expected.cents / 100:.2f} EUR"


def _check_charges(evidence: Evidence, expected: Mapping[str, Expected]) -> Iterator[str]:
    booked = defaultdict(list)
    for charge in evidence.charges:
        booked[charge["invoice"]].append(charge)
    for invoice in sorted(booked.keys() | expected.keys()):
        charges = booked[invoice]
        wanted = expected.get(invoice)
        if wanted is None or not wanted.accepted:
            if charges:
                yield f"{invoice} should be refused, but the ledger has a charge for it"
        elif len(charges) != 1:
            yield f"{invoice} was charged {len(charges)} times"
        elif _cents(charges[0]["amount"]) != wanted.cents:
            amount = charges[0]["amount"]
            yield f"the ledger charged {invoice} {amount} EUR, not {wanted.cents / 100:.2f} EUR"
    settled = sum(1 for row in evidence.executions if _settled(row))
    if len(evidence.charges) != settled:
        yield f"the ledger has {len(evidence.charges)} charges for {settled} charged invoices"


def _check_notes(evidence: Evidence, expected: Mapping[str, Expected]) -> Iterator[str]:
    notes = Counter(evidence.notes)
    wanted = {invoice for invoice, row in expected.items() if row.accepted}
    for invoice in sorted(notes.keys() | wanted):
        if notes[invoice] != (invoice in wanted):
            yield f"the outbox has {notes[invoice]} notes for {invoice}"


def _check_kills(evidence: Evidence, kills: int) -> Iterator[str]:
    if len(evidence.kills) != kills:
        yield f"{len(evidence.kills)} workers were killed instead of {kills}"
    recoveries = {
        invoice: sum(map(is_recovery, journal)) for invoice, journal in evidence.journals.items()
    }
    interrupted: Counter[str] = Counter()
    for kill in evidence.kills:
        interrupted.update(kill.running)
        if not kill.running:
            yield f"worker {kill.worker} was killed, but nothing was running then"
    for invoice, times in interrupted.items():
        if recoveries.get(invoice, 0) < times:
            yield (
                f"{invoice} was interrupted {times} times, "
                f"but recovered {recoveries.get(invoice, 0)} times"
            )


def _check_replays(evidence: Evidence) -> Iterator[str]:
    for invoice, journal in evidence.journals.items():
        memoized: set[str] = set()
        epoch = 0
        for entry in journal:
            if entry.epoch < epoch:
                yield f"{invoice}: entry {entry.seq} has epoch {entry.epoch} after {epoch}"
            epoch = max(epoch, entry.epoch)
            if entry.type == "frame.started" and entry.fid in memoized:
                yield f"{invoice}: {entry.fid} ran again although it was completed"
            if entry.type == "frame.completed":
                memoized.add(entry.fid)


@dataclass(frozen=True)
class Tally:
    """The numbers of a run.

    Attributes:
        rows: rows in the file, duplicates included.
        duplicates: rows whose id was there already.
        completed: invoices charged.
        refused: invoices refused, by reason.
        interrupted: executions running at each kill.
        recovered: executions that were recovered at least once.
        epochs: executions with more than one epoch.
        cut_off: attempts that a kill cut off.
        replayed: completed steps that were given from the journal after a recovery, not run again.
        retried: attempts that failed and were followed by another one.
        calls: calls that reached the ledger.
        failed_calls: those that it failed.
        slow_calls: those that were slow.
        charges: charges in the ledger.
        refused_duplicates: charges that the ledger refused to repeat.
        charged_twice: invoices with more than one charge.
        cents: the sum of all charges, in cents.
    """

    rows: int
    duplicates: int
    completed: int
    refused: Mapping[str, int]
    interrupted: Sequence[int]
    recovered: int
    epochs: int
    cut_off: int
    replayed: int
    retried: int
    calls: int
    failed_calls: int
    slow_calls: int
    charges: int
    refused_duplicates: int
    charged_twice: int
    cents: int


def tally(evidence: Evidence) -> Tally:
    """Count what happened."""
    journals = evidence.journals.values()
    fates = Counter(call["fate"] for call in evidence.calls)
    charged = Counter(charge["invoice"] for charge in evidence.charges)
    return Tally(
        rows=len(evidence.rows),
        duplicates=len(evidence.rows) - len({row["id"] for row in evidence.rows}),
        completed=sum(1 for row in evidence.executions if _settled(row)),
        refused=Counter(
            row.result["reason"]
            for row in evidence.executions
            if row.result is not None and row.result["status"] == "refused"
        ),
        interrupted=[len(kill.running) for kill in evidence.kills],
        recovered=sum(1 for journal in journals if any(map(is_recovery, journal))),
        epochs=sum(1 for journal in journals if len({e.epoch for e in journal}) > 1),
        cut_off=sum(map(count_cut_off, journals)),
        replayed=sum(map(count_replayed, journals)),
        retried=sum(
            1
            for journal in journals
            for entry in journal
            if entry.type == "frame.failed" and entry.payload["retryable"]
        ),
        calls=len(evidence.calls),
        failed_calls=fates.total() - fates["served"] - fates["slow"],
        slow_calls=fates["slow"],
        charges=len(evidence.charges),
        refused_duplicates=sum(1 for call in evidence.calls if call["effect"] == "duplicate"),
        charged_twice=sum(1 for count in charged.values() if count > 1),
        cents=sum(_cents(charge["amount"]) for charge in evidence.charges),
    )


def is_recovery(entry: Entry) -> bool:
    """Whether with this entry another worker took over from one that died."""
    return entry.type == "execution.resumed" and bool(entry.payload["reason"] == RECOVERY)


def count_replayed(journal: Sequence[Entry]) -> int:
    """Count the completed steps that a later owner took from the journal.

    A step counts once for each recovery behind it; that none of them was started again is
    something to check.
    """
    completed = replayed = 0
    for entry in journal:
        if entry.type == "frame.completed":
            completed += 1
        elif is_recovery(entry):
            replayed += completed
    return replayed


def find_cut_off(evidence: Evidence) -> UUID | None:
    """Find an execution to look at: one with a step that a kill cut off, if there is one."""
    return next(
        (
            row.eid
            for row in evidence.executions
            if count_cut_off(evidence.journals[str(row.dispatch_key)])
        ),
        None,
    )


def count_cut_off(journal: Sequence[Entry]) -> int:
    """Count the attempts that had begun and had no outcome when their worker died."""
    cut_off = 0
    running: set[str] = set()
    for entry in journal:
        if entry.type == "frame.started":
            running.add(entry.fid)
        elif entry.type in {"frame.completed", "frame.failed"}:
            running.discard(entry.fid)
        elif is_recovery(entry):
            cut_off += len(running)
            running.clear()
    return cut_off


def _settled(row: ExecutionRow) -> bool:
    return row.result is not None and row.result["status"] == "completed"


def _cents(amount: str) -> int:
    return int(Fraction(amount) * 100)
