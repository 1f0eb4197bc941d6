"""What does a bad day of somebody else's service look like? A ledger that fails on purpose.

It charges at most once for each idempotency key, whatever happens around it: that promise is kept,
everything else is not. One call in five fails, half of them *after* the charge was recorded, with
an error or a connection that just ends; one call in twenty is slow. Which call meets which fate
depends on the seed, the invoice and how often it was called for, on nothing else.

``POST /charges`` charges; ``GET /charges`` and ``GET /calls`` list everything that ever happened.
It serves until its standard input ends, so it does not outlive the process that started it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import socket
import sqlite3
import sys
import threading
import time
from contextlib import suppress
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

SEED = 7
CALL_S = 0.03
"""How long one call takes. Calls are served one after the other: there is one clerk."""
SLOW_S = 2.5
"""How much longer a slow call takes, while others are served."""

_AMOUNT = re.compile(r"[0-9]+\.[0-9]{2}")
_HIGHEST = 1 << 64

_SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL, invoice TEXT NOT NULL, amount TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS charges_by_key ON charges (key);
CREATE TABLE IF NOT EXISTS calls (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL, invoice TEXT NOT NULL, fate TEXT NOT NULL,
    effect TEXT);
CREATE INDEX IF NOT EXISTS calls_by_invoice ON calls (invoice);
"""


class Fate(StrEnum):
    """What becomes of a call."""

    SERVED = "served"
    ERROR = "error"
    DROPPED = "dropped"
    ERROR_AFTER = "error after the charge"
    DROPPED_AFTER = "dropped after the charge"
    SLOW = "slow"


_FATES = (Fate.ERROR, Fate.DROPPED, Fate.ERROR_AFTER, Fate.DROPPED_AFTER, Fate.SLOW)
_EARLY = frozenset({Fate.ERROR, Fate.DROPPED})
_SILENT = frozenset({Fate.DROPPED, Fate.DROPPED_AFTER})


class Charged(NamedTuple):
    """A charge, and whether the key had one already."""

    number: int
    invoice: str
    amount: str
    repeated: bool


def decide_fate(seed: int, invoice: str, nth: int) -> Fate:
    """Decide the fate of the `nth` call for an invoice: each unhappy one is one call in twenty."""
    text = f"{seed}/{invoice}/{nth}".encode()
    drawn = int.from_bytes(hashlib.sha256(text).digest()[:8]) * 20 // _HIGHEST
    return _FATES[drawn] if drawn < len(_FATES) else Fate.SERVED


class Book:
    """The charges and the calls, in a SQLite file; every change is committed before it is told.

    Args:
        path: the file.
        careless: forget the promise and charge again for a key that was charged already.
    """

    def __init__(self, path: Path, *, careless: bool = False) -> None:
        self._lock = threading.Lock()
        self._careless = careless
        self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._file.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def begin_call(self, key: str, invoice: str, seed: int) -> tuple[int, Fate]:
        """Note that a call has arrived; give its number and its fate."""
        with self._lock:
            (before,) = self._file.execute(
                "SELECT count(*) FROM calls WHERE invoice = ?", (invoice,)
            ).fetchone()
            fate = decide_fate(seed, invoice, before + 1)
            cursor = self._file.execute(
                "INSERT INTO calls (key, invoice, fate) VALUES (?, ?, ?)", (key, invoice, fate)
            )
            return cursor.lastrowid or 0, fate

    def charge(self, call: int, key: str, invoice: str, amount: str) -> Charged | None:
        """Charge, unless the key was charged before: then give the charge that it has.

        Returns:
            ``None`` if the key belongs to a charge of something else.
        """
        with self._lock:
            found = self._file.execute(
                "SELECT number, invoice, amount FROM charges WHERE key = ?", (key,)
            ).fetchone()
            if found is None or self._careless:
                cursor = self._file.execute(
                    "INSERT INTO charges (key, invoice, amount) VALUES (?, ?, ?)",
                    (key, invoice, amount),
                )
                charged = Charged(cursor.lastrowid or 0, invoice, amount, repeated=False)
            else:
                number, known_invoice, known_amount = found
                charged = Charged(number, known_invoice, known_amount, repeated=True)
            mismatch = (charged.invoice, charged.amount) != (invoice, amount)
            effect = "mismatch" if mismatch else "duplicate" if charged.repeated else "charged"
            self._file.execute("UPDATE calls SET effect = ? WHERE number = ?", (effect, call))
            return None if mismatch else charged

    def charges(self) -> list[dict[str, Any]]:
        """List all charges in their order."""
        return self._list("SELECT number, key, invoice, amount FROM charges ORDER BY number")

    def calls(self) -> list[dict[str, Any]]:
        """List all calls in their order.

        `effect` is ``charged``, ``duplicate``, ``mismatch`` or ``None`` where the call had none.
        """
        return self._list("SELECT number, key, invoice, fate, effect FROM calls ORDER BY number")

    def _list(self, query: str) -> list[dict[str, Any]]:
        with self._lock:
            cursor = self._file.execute(query)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class Ledger(ThreadingHTTPServer):
    """The server: one thread per connection, one clerk who serves the calls in turn."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        book: Book,
        *,
        port: int = 0,
        seed: int = SEED,
        call_s: float = CALL_S,
        slow_s: float = SLOW_S,
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.book = book
        self.seed = seed
        self._call_s = call_s
        self._slow_s = slow_s
        self._clerk = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def work(self, fate: Fate) -> None:
        """Take the time that a call of this fate takes."""
        if fate is Fate.SLOW:
            time.sleep(self._slow_s)
        with self._clerk:
            time.sleep(self._call_s)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that are gone: here they are killed on purpose."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Serves one request."""

    server: Ledger
    timeout = 10

    def do_GET(self) -> None:
        """List what happened."""
        book = self.server.book
        lists = {"/charges": book.charges, "/calls": book.calls}
        if self.path in lists:
            self._answer(HTTPStatus.OK, lists[self.path]())
        else:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path}")

    def do_POST(self) -> None:
        """Charge, or fail to, as the fate of the call will have it."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self.headers.get("Idempotency-Key")
        if self.path != "/charges":
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path}")
            return
        if not key:
            self._refuse(HTTPStatus.BAD_REQUEST, "give an Idempotency-Key")
            return
        try:
            order = json.loads(body)
            invoice, amount = str(order["invoice"]), str(order["amount"])
        except (ValueError, LookupError, TypeError):
            self._refuse(HTTPStatus.BAD_REQUEST, "give a JSON object with invoice and amount")
            return
        if _AMOUNT.fullmatch(amount) is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "give the amount in EUR with two decimals")
            return
        self._charge(key, invoice, amount)

    def _charge(self, key: str, invoice: str, amount: str) -> None:
        ledger = self.server
        call, fate = ledger.book.begin_call(key, invoice, ledger.seed)
        ledger.work(fate)
        charged = None
        if fate not in _EARLY:
            charged = ledger.book.charge(call, key, invoice, amount)
            if charged is None:
                self._refuse(HTTPStatus.CONFLICT, "this key belongs to another charge")
                return
        if fate in _SILENT:
            self._drop()
        elif charged is None or fate is Fate.ERROR_AFTER:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "something went wrong")
        else:
            status = HTTPStatus.OK if charged.repeated else HTTPStatus.CREATED
            answer = {"id": f"C-{charged.number}", "amount": charged.amount}
            self._answer(status, {**answer, "repeated": charged.repeated})

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, {"error": why})

    def _answer(self, status: HTTPStatus, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Log nothing: the book has every call."""


def main() -> None:
    """Serve until standard input ends; the first line of output is the URL."""
    parser = argparse.ArgumentParser(description="A ledger that fails on purpose.")
    parser.add_argument("--book", type=Path, required=True, help="the SQLite file to keep")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=SEED, help="decides which calls fail")
    parser.add_argument(
        "--careless", action="store_true", help="charge again for a key that was charged already"
    )
    options = parser.parse_args()
    book = Book(options.book, careless=options.careless)
    ledger = Ledger(book, port=options.port, seed=options.seed)
    threading.Thread(target=ledger.serve_forever, daemon=True).start()
    print(ledger.url, flush=True)
    with suppress(KeyboardInterrupt):
        sys.stdin.read()
    ledger.shutdown()


if __name__ == "__main__":
    main()
