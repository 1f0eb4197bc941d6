"""Does the ledger of the invoice example charge once, and does the workflow get along with it?"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import perdure
from examples.invoices import app, ledger
from examples.invoices.ledger import Book, Fate, Ledger, decide_fate
from perdure import Entry, ExecutionRow, ExecutionStatus

GOOD = app.Row(
    id="INV-1",
    customer="Ambervale Papier GmbH",
    date="2025-04-30",
    currency="USD",
    amount="100.50",
    due="2025-05-30",
    reference="PO 1",
)


# -- the ledger ------------------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "ledger.db")
    yield book
    book.close()


@pytest.fixture
def url(book: Book) -> Iterator[str]:
    """Serve the book without taking time for the calls."""
    server = Ledger(book, call_s=0, slow_s=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.url
    server.shutdown()
    server.server_close()
    thread.join()


def post(url: str, body: object, key: str | None = "k") -> tuple[int, dict[str, Any]]:
    """Post to the ledger; give the status and the answer."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        headers = {} if key is None else {"Idempotency-Key": key}
        connection.request("POST", "/charges", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def invoice_with(*fates: Fate) -> str:
    """Find an invoice whose first calls meet these fates."""
    numbers = (f"INV-{number}" for number in range(100_000))
    return next(
        invoice
        for invoice in numbers
        if all(decide_fate(ledger.SEED, invoice, nth) is fate for nth, fate in enumerate(fates, 1))
    )


def order(invoice: str, amount: str = "10.00") -> dict[str, str]:
    return {"invoice": invoice, "amount": amount}


def test_one_call_in_five_fails_and_one_in_twenty_is_slow() -> None:
    fates = Counter(decide_fate(7, f"INV-{n}", nth) for n in range(2_000) for nth in range(1, 6))

    failed = sum(fates[fate] for fate in fates if fate not in {Fate.SERVED, Fate.SLOW})
    assert 0.19 < failed / fates.total() < 0.21
    assert 0.045 < fates[Fate.SLOW] / fates.total() < 0.055
    assert set(fates) == set(Fate)


def test_the_seed_alone_decides_which_calls_fail() -> None:
    def draw(seed: int) -> list[Fate]:
        return [decide_fate(seed, f"INV-{n}", 1) for n in range(100)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_the_ledger_charges_once_for_a_key(book: Book, url: str) -> None:
    invoice = invoice_with(Fate.SERVED, Fate.SERVED)

    assert post(url, order(invoice)) == (
        201,
        {"id": "C-1", "amount": "10.00", "repeated": False},
    )
    assert post(url, order(invoice)) == (
        200,
        {"id": "C-1", "amount": "10.00", "repeated": True},
    )
    assert [charge["invoice"] for charge in book.charges()] == [invoice]
    assert [call["effect"] for call in book.calls()] == ["charged", "duplicate"]


def test_an_error_after_the_charge_leaves_it_recorded(book: Book, url: str) -> None:
    invoice = invoice_with(Fate.ERROR_AFTER, Fate.SERVED)

    status, _ = post(url, order(invoice))
    assert status == 500
    assert len(book.charges()) == 1
    status, answer = post(url, order(invoice))
    assert (status, answer["repeated"]) == (200, True)
    assert len(book.charges()) == 1


def test_a_connection_dropped_after_the_charge_leaves_it_recorded(book: Book, url: str) -> None:
    invoice = invoice_with(Fate.DROPPED_AFTER, Fate.SERVED)

    with pytest.raises(http.client.RemoteDisconnected):
        post(url, order(invoice))
    assert len(book.charges()) == 1
    assert post(url, order(invoice))[1]["repeated"] is True


def test_an_early_failure_charges_nothing(book: Book, url: str) -> None:
    invoice = invoice_with(Fate.ERROR, Fate.DROPPED, Fate.SERVED)

    assert post(url, order(invoice))[0] == 500
    with pytest.raises(http.client.RemoteDisconnected):
        post(url, order(invoice))
    assert book.charges() == []
    assert post(url, order(invoice))[0] == 201


def test_calls_with_one_key_at_the_same_time_charge_once(book: Book, url: str) -> None:
    invoice = invoice_with(*[Fate.SERVED] * 8)
    answers: list[tuple[int, dict[str, Any]]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(post(url, order(invoice)))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(status for status, _ in answers) == [200] * 7 + [201]
    assert len(book.charges()) == 1


@pytest.mark.parametrize(
    "body", [order("INV-1", "10"), order("INV-1", "-1.00"), {"invoice": "INV-1"}, [], "text"]
)
def test_the_ledger_refuses_a_wrong_request(book: Book, url: str, body: object) -> None:
    assert post(url, body)[0] == 400
    assert book.calls() == []


def test_the_ledger_refuses_a_request_without_a_key(book: Book, url: str) -> None:
    assert post(url, order("INV-1"), key=None)[0] == 400
    assert book.calls() == []


def test_the_ledger_refuses_a_key_that_belongs_to_another_charge(book: Book, url: str) -> None:
    invoice = invoice_with(Fate.SERVED, Fate.SERVED)
    post(url, order(invoice))

    assert post(url, order(invoice, "11.00"))[0] == 409
    assert [charge["amount"] for charge in book.charges()] == ["10.00"]
    assert [call["effect"] for call in book.calls()] == ["charged", "mismatch"]


def test_the_book_outlives_the_ledger(tmp_path: Path, book: Book, url: str) -> None:
    invoice = invoice_with(Fate.SERVED)
    post(url, order(invoice))

    again = Book(tmp_path / "ledger.db")
    assert again.charges() == book.charges()
    assert again.calls() == book.calls()
    again.close()


# -- the workflow ----------------------------------------------------------------------------------


@pytest.fixture
def outbox(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    monkeypatch.setenv(app.LEDGER, url)
    monkeypatch.setenv(app.OUTBOX, str(outbox))
    return outbox


async def settle(row: app.Row) -> tuple[ExecutionRow, list[Entry]]:
    """Run one row to its end in this process; give the execution and its journal."""
    async with perdure.open("memory:", app.registry) as engine, engine.worker():
        eid = await engine.start(app.settle_invoice, row)
        ended = await engine.wait(eid, timeout=15)
        return ended, await engine.journal(eid)


def test_an_invoice_is_charged_once_although_the_ledger_loses_the_answer(
    book: Book, outbox: Path
) -> None:
    row = replace(GOOD, id=invoice_with(Fate.ERROR_AFTER, Fate.DROPPED_AFTER, Fate.SERVED))

    execution, journal = asyncio.run(settle(row))

    assert execution.result == {
        "invoice": row.id,
        "status": "completed",
        "reason": None,
        "charge": {"id": "C-1", "amount": "87.16", "repeated": True},
    }
    assert [charge["amount"] for charge in book.charges()] == ["87.16"]
    assert [call["effect"] for call in book.calls()] == ["charged", "duplicate", "duplicate"]
    assert len({call["key"] for call in book.calls()}) == 1
    assert [entry.fid for entry in journal if entry.type == "frame.failed"] == [
        "root/charge_invoice#0"
    ] * 2
    (note,) = outbox.iterdir()
    assert json.loads(note.read_text(encoding="utf-8"))["invoice"] == row.id


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"currency": "XBT"}, "unknown currency"),
        ({"amount": "30000.00"}, "amount over the limit"),
    ],
)
def test_a_refused_row_is_a_result_and_reaches_nobody(
    book: Book, outbox: Path, fields: dict[str, str], reason: str
) -> None:
    execution, _ = asyncio.run(settle(replace(GOOD, **fields)))

    assert execution.status is ExecutionStatus.COMPLETED
    assert execution.result["status"] == "refused"
    assert execution.result["reason"] == reason
    assert book.calls() == []
    assert list(outbox.iterdir()) == []


def test_a_request_that_the_ledger_finds_wrong_is_not_repeated(
    outbox: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(app.LEDGER, f"{url}/elsewhere")

    execution, journal = asyncio.run(settle(GOOD))

    assert execution.status is ExecutionStatus.FAILED
    assert execution.error is not None
    assert "the ledger answered 404" in execution.error.message
    assert [entry.type for entry in journal].count("frame.failed") == 1
    assert list(outbox.iterdir()) == []
