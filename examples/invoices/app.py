"""What happens to one invoice? The workflow `invoice` and the four steps that it takes.

The workflow function decides, the steps act. A row that cannot be accepted is *refused*, which is a
result like any other; only a fault of the world around it is an error. No step may have an effect
that a second attempt would double: a charge carries the idempotency key of its step, and a note is
named after its execution.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from perdure import Context, NonRetryableError, Registry, RetryPolicy, step_info

LEDGER = "INVOICES_LEDGER"
"""The environment variable with the URL of the ledger."""

OUTBOX = "INVOICES_OUTBOX"
"""The environment variable with the directory in which notes to customers are left."""

RATES = {
    currency: Decimal(rate)
    for currency, rate in json.loads(
        Path(__file__).with_name("rates.json").read_text(encoding="utf-8")
    )["rates"].items()
}
LIMIT_EUR = Decimal(25000)
CENT = Decimal("0.01")
WHOLE_CURRENCIES = frozenset({"JPY"})

# One call in four fails or is too slow: twelve in a row are one invoice in seventeen million.
CHARGE_RETRY = RetryPolicy(
    max_attempts=12,
    backoff=timedelta(milliseconds=100),
    backoff_factor=1.5,
    max_backoff=timedelta(seconds=1),
)
CHARGE_TIMEOUT = timedelta(seconds=1.5)

_AMOUNT = re.compile(r"-?[0-9]+(\.[0-9]{1,2})?")
_WHOLE_AMOUNT = re.compile(r"-?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

registry = Registry()


@dataclass(frozen=True)
class Row:
    """One row of the file, as it was read: nothing is known of its fields yet."""

    id: str
    customer: str
    date: str
    currency: str
    amount: str
    due: str
    reference: str


@dataclass(frozen=True)
class Invoice:
    """A row that was found to be in order; `amount` is in its `currency`."""

    id: str
    customer: str
    issued: date
    due: date
    currency: str
    amount: Decimal
    reference: str


@dataclass(frozen=True)
class Checked:
    """The invoice that a row holds, or the reason why it holds none."""

    invoice: Invoice | None
    reason: str | None = None


@dataclass(frozen=True)
class Charge:
    """What the ledger answered.

    Attributes:
        id: the ledger's own number of the charge.
        amount: what was charged, in EUR.
        repeated: whether the ledger had it already, and refused to charge again.
    """

    id: str
    amount: Decimal
    repeated: bool


@dataclass(frozen=True)
class Settlement:
    """How an invoice ended: charged, or refused for a reason."""

    invoice: str
    status: Literal["completed", "refused"]
    reason: str | None = None
    charge: Charge | None = None


class FieldFault(Exception):
    """A field of a row is not in order; the text is the reason to refuse it for."""


class LedgerFault(Exception):
    """The ledger did not do what it was asked; the next attempt may succeed."""


@registry.workflow("invoice", version="1")
async def settle_invoice(ctx: Context, row: Row) -> Settlement:
    """Check, convert, charge and notify; refuse what cannot be accepted."""
    checked = await ctx.step(check_row, row)
    invoice = checked.invoice
    if invoice is None:
        return Settlement(row.id, "refused", reason=checked.reason)
    total = await ctx.step(convert, invoice.amount, invoice.currency)
    if total > LIMIT_EUR:
        return Settlement(row.id, "refused", reason="amount over the limit")
    charge = await ctx.step(
        charge_invoice, invoice.id, total, retry=CHARGE_RETRY, timeout=CHARGE_TIMEOUT
    )
    await ctx.step(notify, invoice, charge)
    return Settlement(row.id, "completed", charge=charge)


async def check_row(row: Row) -> Checked:
    """Parse the fields of a row; the first one that is not in order is the reason."""
    try:
        customer = parse_customer(row.customer)
        currency = parse_currency(row.currency)
        amount = parse_amount(row.amount, currency)
        issued, due = parse_date(row.date), parse_date(row.due)
    except FieldFault as fault:
        return Checked(None, str(fault))
    return Checked(Invoice(row.id, customer, issued, due, currency, amount, row.reference))


def parse_customer(text: str) -> str:
    """Read the name of a customer."""
    if not text.strip():
        message = "empty customer"
        raise FieldFault(message)
    return text.strip()


def parse_currency(text: str) -> str:
    """Read a currency that there is a rate for."""
    currency = text.strip().upper()
    if currency not in RATES:
        message = "unknown currency"
        raise FieldFault(message)
    return currency


def parse_amount(text: str, currency: str) -> Decimal:
    """Read an amount: digits, and after a point as many decimals as the currency has."""
    text = text.strip()
    grammar = _WHOLE_AMOUNT if currency in WHOLE_CURRENCIES else _AMOUNT
    if not text:
        message = "missing amount"
        raise FieldFault(message)
    if grammar.fullmatch(text) is None:
        message = "malformed amount"
        raise FieldFault(message)
    amount = Decimal(text)
    if amount <= 0:
        message = "amount not positive"
        raise FieldFault(message)
    return amount


def parse_date(text: str) -> date:
    """Read a date in the form ``2025-04-30``, and in no other."""
    message = "malformed date"
    if _DATE.fullmatch(text) is None:
        raise FieldFault(message)
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise FieldFault(message) from error


async def convert(amount: Decimal, currency: str) -> Decimal:
    """Convert an amount to EUR, rounded to the cent, halves up."""
    return (amount * RATES[currency]).quantize(CENT, rounding=ROUND_HALF_UP)


def charge_invoice(invoice: str, amount: Decimal) -> Charge:
    """Charge an amount in EUR. The function blocks, so perdure runs it in a thread.

    Every attempt of this step sends the same idempotency key. So it does not matter whether an
    attempt that brought no answer was recorded: the ledger answers the next one with the charge
    that it has.

    Raises:
        NonRetryableError: if the ledger finds the request wrong; another attempt would be, too.
        LedgerFault: if the ledger failed.
        OSError: if the connection did.
    """
    request = Request(  # noqa: S310 - the operator gives the URL
        f"{_setting(LEDGER)}/charges",
        data=json.dumps({"invoice": invoice, "amount": str(amount)}).encode(),
        headers={
            "Content-Type": "application/json",
            "Idempotency-Key": step_info().idempotency_key,
        },
    )
    try:
        # The step's own timeout comes first; this one ends the thread that it leaves behind.
        with urlopen(request, timeout=2 * CHARGE_TIMEOUT.total_seconds()) as response:  # noqa: S310
            answer = json.load(response)
    except HTTPError as error:
        with error:
            message = f"the ledger answered {error.code}: {error.read().decode(errors='replace')}"
        if error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise NonRetryableError(message) from error
        raise LedgerFault(message) from error
    return Charge(answer["id"], Decimal(answer["amount"]), answer["repeated"])


async def notify(invoice: Invoice, charge: Charge) -> str:
    """Leave a note to the customer in the outbox; give its name.

    The note is named after the execution and put in place whole, so a second attempt replaces the
    first one's note instead of adding another.
    """
    info = step_info()
    note = {
        "invoice": invoice.id,
        "to": invoice.customer,
        "text": f"We have charged {charge.amount} EUR for your invoice {invoice.id}.",
    }
    path = Path(_setting(OUTBOX)) / f"{info.eid}.json"
    await asyncio.to_thread(_write_whole, path, json.dumps(note, ensure_ascii=False))
    return path.name


def _write_whole(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _setting(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        message = f"the environment variable {name} is not set; the demo sets it for its workers"
        raise NonRetryableError(message)
    return value
