"""What can SQLite itself do here? The limit that every durable engine on it has above itself.

The table, the keys, the journal mode and the durability are those of the store; but for the keys
nothing of perdure runs.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from contextlib import closing

from bench.measurement import Bench, check
from bench.workloads import STEPS
from perdure.model.ids import new_eid

BODY = secrets.token_bytes(200)  # about what one step adds to a journal
ROWS_PER_BATCH = 100

INSERT = "INSERT INTO journal (eid, seq, body) VALUES (?, ?, ?)"


def measure_limits(bench: Bench) -> dict[str, float]:
    """Measure commits of one row and of a hundred, each with its fsync."""
    with closing(sqlite3.connect(bench.directory / "raw.db", isolation_level=None)) as connection:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        connection.execute("PRAGMA synchronous=FULL")
        check(holds=mode == "wal", otherwise=f"the journal mode is {mode}")
        connection.execute(
            "CREATE TABLE journal (eid BLOB, seq INTEGER, body BLOB, PRIMARY KEY (eid, seq)) "
            "WITHOUT ROWID"
        )
        _commit(connection, bench.pick(100, 10), 1)
        commits = _commit(connection, bench.pick(5_000, 50), 1)
        rows = ROWS_PER_BATCH * _commit(connection, bench.pick(1_000, 10), ROWS_PER_BATCH)
    return {
        "raw.commits": commits,
        "raw.rows": rows,
        "raw.ten": STEPS / commits * 1e3,
    }


def _commit(connection: sqlite3.Connection, commits: int, rows: int) -> float:
    """Commit so often, with one row for each of so many executions; give the commits per second."""
    batches: list[list[tuple[bytes, int, bytes]]] = []
    eids: list[bytes] = []
    for number in range(commits):
        if number % STEPS == 0:
            eids = [new_eid().bytes for _ in range(rows)]
        batches.append([(eid, number % STEPS + 1, BODY) for eid in eids])
    began = time.perf_counter()
    for batch in batches:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, batch)
        connection.execute("COMMIT")
    return commits / (time.perf_counter() - began)
