"""Does the invoice example settle the right rows, and does its demo survive the kills?"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

import perdure
from examples.invoices import app, audit, demo

ROOT = Path(demo.__file__).parents[2]

# Five processes start one after the other, and two sessions have to expire: that is ten seconds on
# an idle machine, and may be more than the usual limit on a busy one.
slow = pytest.mark.timeout(60)

GOOD = app.Row(
    id="INV-1",
    customer="Ambervale Papier GmbH",
    date="2025-04-30",
    currency="USD",
    amount="100.50",
    due="2025-05-30",
    reference="PO 1",
)


# -- the rows --------------------------------------------------------------------------------------


def check_row(**fields: str) -> app.Checked:
    return asyncio.run(app.check_row(replace(GOOD, **fields)))


def test_a_row_in_order_is_an_invoice() -> None:
    invoice = check_row(customer=" Ambervale Papier GmbH ", currency="usd", amount=" 7.5").invoice

    assert invoice == app.Invoice(
        id="INV-1",
        customer="Ambervale Papier GmbH",
        issued=date(2025, 4, 30),
        due=date(2025, 5, 30),
        currency="USD",
        amount=Decimal("7.5"),
        reference="PO 1",
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"customer": ""}, "empty customer"),
        ({"customer": " \t"}, "empty customer"),
        ({"currency": ""}, "unknown currency"),
        ({"currency": "XBT"}, "unknown currency"),
        ({"amount": ""}, "missing amount"),
        ({"amount": "  "}, "missing amount"),
        ({"amount": "1.250,00"}, "malformed amount"),
        ({"amount": "1,250.00"}, "malformed amount"),
        ({"amount": "€ 10.00"}, "malformed amount"),
        ({"amount": "10.001"}, "malformed amount"),
        ({"amount": "10."}, "malformed amount"),
        ({"amount": ".50"}, "malformed amount"),
        ({"amount": "--1"}, "malformed amount"),
        ({"amount": "1e3"}, "malformed amount"),
        ({"amount": "1_000"}, "malformed amount"),
        ({"amount": "NaN"}, "malformed amount"),
        ({"amount": "Infinity"}, "malformed amount"),
        ({"amount": "١٢"}, "malformed amount"),
        ({"amount": "1\n2"}, "malformed amount"),
        ({"amount": "10.5", "currency": "JPY"}, "malformed amount"),
        ({"amount": "0"}, "amount not positive"),
        ({"amount": "0.00"}, "amount not positive"),
        ({"amount": "-0.01"}, "amount not positive"),
        ({"date": "30/04/2025"}, "malformed date"),
        ({"date": "20250430"}, "malformed date"),
        ({"date": "2025-4-3"}, "malformed date"),
        ({"date": "2025-02-30"}, "malformed date"),
        ({"date": "2025-W18-3"}, "malformed date"),
        ({"due": ""}, "malformed date"),
        ({"due": "2025-13-01"}, "malformed date"),
    ],
)
def test_a_row_not_in_order_is_refused_with_the_reason(fields: dict[str, str], reason: str) -> None:
    assert check_row(**fields) == app.Checked(None, reason)
    assert audit.expect({**asdict(GOOD), **fields}, audit.read_rates()).faults == {reason}


@pytest.mark.parametrize(
    ("amount", "currency", "euros"),
    [
        ("100.50", "EUR", "100.50"),
        ("100", "USD", "86.73"),
        ("0.50", "GBP", "0.58"),
        ("3.10", "CHF", "3.30"),
        ("15000", "JPY", "90.63"),
        ("100", "SEK", "8.95"),  # 8.945: halves are rounded up
    ],
)
def test_amounts_are_converted_to_euros(amount: str, currency: str, euros: str) -> None:
    assert asyncio.run(app.convert(Decimal(amount), currency)) == Decimal(euros)


def test_the_file_is_a_realistic_mix() -> None:
    rows = demo.read_rows(None)
    distinct = {row["id"]: row for row in reversed(rows)}
    expected = [audit.expect(row, audit.read_rates()) for row in distinct.values()]

    assert len(rows) >= 240
    assert len(rows) - len(distinct) >= 12
    assert all(row == distinct[row["id"]] for row in rows)
    assert len({row["currency"].upper() for row in rows}) >= 8
    assert sum(one.accepted for one in expected) > 150
    reasons = Counter(reason for one in expected for reason in one.faults)
    assert set(reasons) == {
        "empty customer",
        "unknown currency",
        "missing amount",
        "malformed amount",
        "amount not positive",
        "malformed date",
        "amount over the limit",
    }
    assert min(reasons.values()) >= 4


# -- the demo --------------------------------------------------------------------------------------


def run_demo(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """Run the demo as a user does; give its exit code and what it printed."""
    process = subprocess.Popen(
        [sys.executable, "examples/invoices/demo.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    try:
        output, _ = process.communicate()
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()
    return process.returncode, output


async def collect_again(directory: Path, rows: int) -> audit.Evidence:
    """Read once more what a kept run left behind, except what was running when."""
    options = demo.Options(rows=rows, keep=True, seed=0, careless=False)
    async with (
        demo.start_ledger(options, directory) as ledger_url,
        perdure.open(demo.store_url(directory), app.registry) as engine,
    ):
        outbox = directory / "outbox"
        return await demo.collect(engine, demo.read_rows(rows), ledger_url, outbox, kills=[])


@slow
def test_the_demo_survives_two_kills_and_notices_a_charge_recorded_twice(tmp_path: Path) -> None:
    code, output = run_demo(tmp_path, "--rows", "50", "--keep")

    assert code == 0, output
    assert "no invoice was charged twice" in output
    assert re.search(r"workers killed\W+2\b", output), output
    (directory,) = tmp_path.iterdir()
    assert str(directory) in output
    evidence = asyncio.run(collect_again(directory, 50))
    assert audit.check(evidence, kills=0) == []
    numbers = audit.tally(evidence)
    assert numbers.recovered > 0
    assert numbers.replayed > 0
    assert numbers.retried > 0
    assert numbers.refused_duplicates > 0

    with sqlite3.connect(directory / "ledger.db") as tampered:
        tampered.execute(
            "INSERT INTO charges (key, invoice, amount) "
            "SELECT 'another', invoice, amount FROM charges LIMIT 1"
        )
    tampered.close()
    problems = audit.check(asyncio.run(collect_again(directory, 50)), kills=0)
    assert any("was charged 2 times" in problem for problem in problems), problems


@slow
def test_the_demo_fails_if_the_ledger_breaks_its_promise(tmp_path: Path) -> None:
    code, output = run_demo(tmp_path, "--rows", "50", "--careless")

    assert code == 1
    assert re.search(r"INV-2025-\d+ was charged \d+ times", output), output
    (directory,) = tmp_path.iterdir()
    assert f"The files are kept in {directory}" in output
