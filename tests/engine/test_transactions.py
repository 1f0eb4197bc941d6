"""Transactional steps: what they write in the database happens exactly once, with their memo."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from typing import Any

import pytest

from perdure import Context, InvalidArgument, NonRetryableError, Registry, RetryPolicy, step_info
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, cluster, nothing_left, running, until
from tests.engine.support import Machine, Runs, result_of, trace_of

MAKE = "CREATE TABLE IF NOT EXISTS ledger (account TEXT, amount INTEGER)"


def misbehave(connection: Any, what: str) -> Any:
    connection.execute(MAKE)
    connection.execute("INSERT INTO ledger VALUES ('bad', 1)")
    tricks: dict[str, Any] = {
        "commit": connection.commit,
        "rollback": connection.rollback,
        "close": connection.close,
        "script": lambda: connection.executescript("SELECT 1"),
        "authorizer": lambda: connection.set_authorizer(None),
        "COMMIT": lambda: connection.execute("COMMIT"),
        "end": lambda: connection.execute("end transaction"),
        "ROLLBACK": lambda: connection.execute("ROLLBACK"),
        "attach": lambda: connection.execute("ATTACH ':memory:' AS other"),
        "journal": lambda: connection.execute("DELETE FROM journal"),
        "Executions": lambda: connection.execute("UPDATE Executions SET status = 'x'"),
        "drop": lambda: connection.execute("DROP TABLE claims"),
        "index": lambda: connection.execute("DROP INDEX tasks_ready"),
        "trigger": lambda: connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON control BEGIN SELECT 1; END"
        ),
        "pragma": lambda: connection.execute("PRAGMA user_version = 7"),
        "or rollback": lambda: connection.execute(
            "INSERT OR ROLLBACK INTO unique_one VALUES (1), (1)"
        ),
        "not json": object,
        "publish": lambda: step_info().publish("s", 1),
    }
    if what == "or rollback":
        connection.execute("CREATE TABLE unique_one (one INTEGER UNIQUE)")
    return tricks[what]()


def behave(connection: Any) -> list[Any]:
    """Do what is allowed."""
    connection.row_factory = sqlite3.Row
    with connection:
        connection.execute(MAKE)
        connection.execute("SAVEPOINT inner")
        connection.execute("INSERT INTO ledger VALUES ('inner', 1)")
        connection.execute("ROLLBACK TO inner")
        connection.execute("RELEASE inner")
        connection.executemany("INSERT INTO ledger VALUES (?, ?)", [("a", 1), ("b", 2)])
    rows = connection.execute("SELECT account FROM ledger ORDER BY account").fetchall()
    seen = connection.execute("SELECT count(*) AS n FROM executions").fetchone()["n"]
    return [[row["account"] for row in rows], seen]


async def not_sync(connection: Any) -> None: ...


class Bank:
    """Workflows that write in a table of the user's, in the store's own database."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.failures = 0
        self.meanwhile = threading.Event()
        self.begun = threading.Event()
        self.gate = Gate()
        self.slow_errors: list[str] = []
        self.registry = Registry()

        def book(connection: sqlite3.Connection, account: str, amount: int = 1) -> list[Any]:
            self.runs["book"] += 1
            connection.execute(MAKE)
            connection.execute("INSERT INTO ledger VALUES (?, ?)", (account, amount))
            if self.runs["book"] <= self.failures:
                raise ValueError("no luck")
            (total,) = connection.execute("SELECT sum(amount) FROM ledger").fetchone()
            return [account, total, step_info().attempt]

        def hold(connection: sqlite3.Connection) -> str:
            connection.execute(MAKE)
            connection.execute("INSERT INTO ledger VALUES ('held', 1)")
            self.begun.set()
            self.meanwhile.wait(10)
            try:
                connection.execute("INSERT INTO ledger VALUES ('late', 1)")
            except sqlite3.Error as error:
                self.slow_errors.append(str(error))
                raise
            return "held"

        self.book, self.hold = book, hold
        self._register_workflows()
        self._register_wrong_ones()

    def _register_workflows(self) -> None:
        book, hold = self.book, self.hold

        @self.registry.workflow("book", version="1")
        async def booking(ctx: Context, accounts: list[str], backoff: float = 0.0) -> Any:
            retry = RetryPolicy(max_attempts=3, backoff=backoff)
            return [
                await ctx.transaction(book, account, amount=5, key=account, retry=retry)
                for account in accounts
            ]

        @self.registry.workflow("beside", version="1")
        async def beside(ctx: Context) -> Any:
            def add() -> int:
                self.runs["add"] += 1
                return 1

            parts: list[Any] = [
                ctx.transaction(book, "a"),
                ctx.step(add),
                ctx.transaction(book, "b"),
                ctx.receive("x"),
                ctx.send("x", "hello"),
                ctx.transaction(book, "c"),
            ]
            found: list[Any] = await ctx.gather(*parts)
            return [found[0][1], found[1], found[2][1], found[3].payload, found[5][1]]

        @self.registry.workflow("hold", version="1")
        async def holding(ctx: Context, select: bool = False) -> Any:  # noqa: FBT002
            held = ctx.transaction(hold, timeout=0.2 if not select else 5)
            if select:
                place, value = await ctx.select(held, ctx.receive("x"))
                return [place, value]
            return await held

    def _register_wrong_ones(self) -> None:
        @self.registry.workflow("bad", version="1")
        async def bad(ctx: Context, what: str) -> Any:
            return await ctx.transaction(misbehave, what)

        @self.registry.workflow("good", version="1")
        async def good(ctx: Context) -> Any:
            return await ctx.transaction(behave)

        @self.registry.workflow("refused", version="1")
        async def refused(ctx: Context, what: str) -> Any:
            if what == "async":
                return await ctx.transaction(not_sync)
            return await ctx.transaction(self.book, "a", timeout=float(what))

        @self.registry.workflow("final", version="1")
        async def final(ctx: Context) -> Any:
            def fail(connection: Any) -> None:
                connection.execute(MAKE)
                connection.execute("INSERT INTO ledger VALUES ('final', 1)")
                raise NonRetryableError("no")

            return await ctx.transaction(fail, retry=RetryPolicy(max_attempts=5))


def ledger(store: Any) -> list[Any]:
    """Read the user's table, as another program would."""
    connection = store._reading  # noqa: SLF001 - memory has no other door
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'ledger'").fetchone() is None:
        return []
    return [tuple(row) for row in connection.execute("SELECT * FROM ledger ORDER BY rowid")]


async def test_its_writes_and_its_memo_are_one(url: str) -> None:
    bank = Bank()
    async with engine_under_test(bank.registry, url=url) as under:
        eid = await under.engine.start("book", ["a", "b"])
        await under.run_until_idle()
        assert await result_of(under, eid) == [["a", 5, 1], ["b", 10, 1]]
        assert ledger(under.engine.store) == [("a", 5), ("b", 5)]
        assert await trace_of(under, eid) == ("XS FS book:a/1 FC book:a FS book:b/1 FC book:b XC")


@pytest.mark.parametrize("backoff", [0.0, 30.0])
async def test_a_failed_attempt_leaves_nothing(url: str, backoff: float) -> None:
    bank = Bank()
    bank.failures = 2
    async with engine_under_test(bank.registry, url=url) as under:
        eid = await under.engine.start("book", ["a"], backoff)
        await under.advance(100)
        assert await result_of(under, eid) == [["a", 5, 3]]
        assert ledger(under.engine.store) == [("a", 5)]
        entries = [e.type for e in await under.engine.journal(eid) if e.fid == "root/book:a"]
        assert entries.count("frame.started") == 3
        assert entries.count("frame.failed") == 2
        final = await under.engine.start("final")
        await under.run_until_idle()
        assert (await under.engine.status(final)) == "failed"
        assert ledger(under.engine.store) == [("a", 5)]


async def test_it_runs_beside_other_frames(url: str) -> None:
    """Journals stay dense, and a replay agrees."""
    bank = Bank()
    async with cluster(bank.registry, url) as machines:
        process = await machines.boot()
        eids = [await process.engine.start("beside") for _ in range(5)]
        await process.run_until_idle()
        for eid in eids:
            result = await result_of(process, eid)
            assert result[1] == 1
            assert result[3] == "hello"
            entries = await process.engine.journal(eid)
            assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
        assert len(ledger(machines.store)) == 15
        assert (bank.runs["book"], bank.runs["add"]) == (15, 5)
        assert await nothing_left(machines.store)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_crash_at_any_commit_changes_nothing(url: str, *, before: bool) -> None:
    crash_at, died = 0, True
    while died:
        crash_at += 1
        machine = await Machine.open(Bank().registry, url)
        under = await machine.boot(crash_at=crash_at, before=before)
        eids: list[Any] = []
        count = len(ledger(machine.store))

        async def work(under: Any, eids: list[Any] = eids) -> None:
            if not eids:
                eids.append(await under.engine.start("beside", key=f"k{crash_at}"))  # noqa: B023
            await under.advance(100)

        died = await machine.until_death(work(under))
        if died:
            await machine.bury()
            under = await machine.boot()
            await work(under)
        assert (await under.engine.status(eids[0])) == "completed"
        assert [row[0] for row in ledger(machine.store)[count:]] == ["a", "b", "c"]
        await machine.bury()
        await machine.store.close()
    assert crash_at > 8


async def test_a_worker_that_lost_the_execution_writes_nothing(tmp_path: Any) -> None:
    """Another worker has acquired it while the function ran: its writes are undone."""
    bank = Bank()
    url = f"sqlite:///{tmp_path / 'fence.db'}"
    async with cluster(bank.registry, url) as machines:
        process = await machines.boot()
        eid = await process.engine.start("hold", select=True)
        async with running(process):
            await asyncio.to_thread(bank.begun.wait, 10)
            # Nobody can write while it holds the lock: the fence comes from within.
            bank.meanwhile.set()
            await process.run_until_idle()
        assert await result_of(process, eid) == [0, "held"]
        assert [row[0] for row in ledger(machines.store)] == ["held", "late"]


async def test_a_journal_that_has_grown_refuses_it(url: str) -> None:
    """The number of its entries is taken: everything is undone, and the worker has lost."""
    bank = Bank()
    async with cluster(bank.registry, url) as machines:
        process = await machines.boot()
        store = machines.store
        transact = store.transact
        hit: list[int] = []

        async def fenced(run: Any, timeout: float) -> Any:
            if not hit:
                hit.append(1)
                await store.close_session(process.worker.session)  # type: ignore[union-attr]
                other = await machines.boot()
                await other.run_until_idle()
            return await transact(run, timeout)

        store.transact = fenced  # type: ignore[method-assign]
        eid = await process.engine.start("book", ["a"])
        await process.run_until_idle()
        assert await result_of(process, eid) == [["a", 5, 1]]
        assert ledger(store) == [("a", 5)]
        assert bank.runs["book"] == 2


async def test_time_is_short(tmp_path: Any) -> None:
    """The lock is free when the time is over, whatever the function does, and it is shut out."""
    bank = Bank()
    url = f"sqlite:///{tmp_path / 'short.db'}"
    async with engine_under_test(bank.registry, url=url) as under:
        eid = await under.engine.start("hold")
        other = await under.engine.start("book", ["a"])
        await under.run_until_idle()  # though the function still waits
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert "StepTimeout" in row.error.message
        assert (await under.engine.status(other)) == "completed"
        bank.meanwhile.set()
        await until(lambda: bool(bank.slow_errors))
        assert ledger(under.engine.store) == [("a", 5)]


@pytest.mark.parametrize(
    "what",
    [
        "commit", "rollback", "close", "script", "authorizer", "COMMIT", "end", "ROLLBACK",
        "attach", "journal", "Executions", "drop", "index", "trigger", "pragma", "or rollback",
        "not json", "publish",
    ],
)  # fmt: skip
async def test_a_function_cannot_harm(url: str, what: str) -> None:
    bank = Bank()
    async with engine_under_test(bank.registry, url=url) as under:
        eid = await under.engine.start("bad", what)
        await under.run_until_idle()
        assert (await under.engine.status(eid)) == "failed"
        assert ledger(under.engine.store) == []
        after = await under.engine.start("book", ["a"])
        await under.run_until_idle()
        assert await result_of(under, after) == [["a", 5, 1]]
        assert await nothing_left(under.engine.store)


async def test_a_function_may_do_much(url: str) -> None:
    bank = Bank()
    async with engine_under_test(bank.registry, url=url) as under:
        eid = await under.engine.start("good")
        await under.run_until_idle()
        assert await result_of(under, eid) == [["a", "b"], 1]
        assert (await under.engine.status(eid)) == "completed"


@pytest.mark.parametrize("what", ["async", "0", "11"])
async def test_bad_input_is_refused_at_the_call(url: str, what: str) -> None:
    bank = Bank()
    async with engine_under_test(bank.registry, url=url) as under:
        eid = await under.engine.start("refused", what)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"


# -- starts in a transaction of the caller's ------------------------------------------------


async def test_a_start_is_part_of_the_callers_transaction(tmp_path: Any) -> None:
    bank = Bank()
    path = tmp_path / "caller.db"
    async with engine_under_test(bank.registry, url=f"sqlite:///{path}") as under:
        engine = under.engine
        with closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("CREATE TABLE orders (name TEXT)")
            connection.execute("INSERT INTO orders VALUES ('one')")
            kept = await engine.start("book", ["a"], key="k", connection=connection)
            again = await engine.start_result("book", ["a"], key="k", connection=connection)
            assert again == (kept, True)
            connection.commit()
            connection.execute("INSERT INTO orders VALUES ('two')")
            undone = await engine.start("book", ["b"], connection=connection)
            connection.rollback()
            alone = await engine.start("book", ["c"], connection=connection)
            assert connection.in_transaction
            connection.commit()
            assert connection.row_factory is sqlite3.Row
        await under.run_until_idle()
        assert (await result_of(under, kept))[0][0] == "a"
        assert (await result_of(under, alone))[0][0] == "c"
        rows = (await engine.executions()).items
        assert {row.eid for row in rows} == {kept, alone}
        assert undone not in {row.eid for row in rows}


async def test_another_connection_is_refused(url: str, tmp_path: Any) -> None:
    async with engine_under_test(Bank().registry, url=url) as under:
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            for wrong in (connection, "no connection", 7):
                with pytest.raises(InvalidArgument):
                    await under.engine.start("book", ["a"], connection=wrong)
            assert not connection.in_transaction
        assert (await under.engine.executions()).items == ()
