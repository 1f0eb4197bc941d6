"""Does a person's decision survive crashes? Starts twenty expense reports, and kills meanwhile.

A worker, a consumer that checks receipts, and the command line of a person who decides are
processes of their own. Worker and consumer are killed with SIGKILL in the middle and started again.
Some reports are approved, some rejected, and some are left until their time is over. At the end the
inbox, the control log, the journals and the books are audited; the exit code is 1 if anything is
not as it must be.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sqlite3
import sys
import tempfile
from asyncio.subprocess import Process
from contextlib import closing
from pathlib import Path
from uuid import UUID

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if not __package__:  # run as a file: only its own directory is looked in
    sys.path[0] = str(ROOT)

import perdure  # noqa: E402 - found by the line above, as are those that follow
from examples.expenses import app, audit  # noqa: E402
from examples.processes import Commands, end, kill  # noqa: E402
from perdure import Engine  # noqa: E402

REPORTS = 20
REPORTS_MIN = 4
DECIDE_WITHIN_S = 15.0
"""How long a person has: long enough to decide in, short enough for a demo."""
SESSION_TTL_S = "2"
LEASE_TTL_S = "3"
PEOPLE = ("cfo@example.com", "ada@example.com")
WHAT = ("hotel", "train", "dinner", "taxi home", "fair ticket")


class Company:
    """The processes of the demo, on one store."""

    def __init__(self, directory: Path) -> None:
        """Take the directory for the files of the run."""
        self.path = directory / "expenses.db"
        self.url = f"sqlite:///{self.path}"
        self._commands = Commands(self.url, directory / "processes.log")

    async def worker(self) -> Process:
        """Start a worker."""
        return await self._commands.begin(
            "worker", "--app", "examples.expenses.app", "--session-ttl", SESSION_TTL_S
        )

    async def consumer(self) -> Process:
        """Start the consumer; under its holder id it attaches to what it held."""
        return await self._commands.begin(
            "consume", "--queue", app.RECEIPTS, "--holder", "receipts-1", "--limit", "4",
            "--ttl", LEASE_TTL_S, "--", sys.executable, str(HERE / "check_receipts.py"),
        )  # fmt: skip

    async def decide(self, rid: str, verdict: str, by: str) -> bool:
        """Decide a review on the command line, as a person would; tell whether it was in time."""
        deciding = await self._commands.begin("reviews", "decide", rid, verdict, "--by", by)
        return await deciding.wait() == 0


async def run(directory: Path, count: int, decide_within_s: float) -> list[str]:
    """Run the demo with so many reports; give what is not as it must be."""
    company = Company(directory)
    async with perdure.open(company.url, app.registry) as engine:
        reports = [
            app.Report(
                f"EXP-{n:02}",
                f"employee{n}@example.com",
                [app.Item(what, 1_000 + 137 * n) for what in WHAT[: 1 + n % len(WHAT)]],
            )
            for n in range(count)
        ]
        eids = await engine.start_many(
            app.expense_report,
            [(report, decide_within_s) for report in reports],
            keys=[report.id for report in reports],
        )
        by_eid = dict(zip(eids, (report.id for report in reports), strict=True))
        print(f"started {count} reports")
        worker, consumer = await company.worker(), await company.consumer()
        verdicts: dict[str, str] = {}
        try:
            requested = 0
            async for entry in engine.events():
                if entry.type != "announce.review.requested":
                    continue
                requested += 1
                payload = entry.payload["payload"]
                report = by_eid[entry.eid]
                if requested == count // 4:
                    print("killing the consumer and the worker, and starting others")
                    await kill(consumer, worker)
                    worker, consumer = await company.worker(), await company.consumer()
                if requested % 3:
                    verdict = "approve" if requested % 3 == 1 else "reject"
                    person = PEOPLE[requested % len(PEOPLE)]
                    if await company.decide(payload["rid"], verdict, person):
                        verdicts[report] = verdict
                if requested == count // 2:
                    print("killing the worker again")
                    await kill(worker)
                    worker = await company.worker()
                if requested == count:
                    break
            print(f"decided {len(verdicts)}; {count - len(verdicts)} are left to expire")
            results = {by_eid[eid]: await engine.result(eid, timeout=90) for eid in eids}
        finally:
            await end(worker, consumer)
        for result in results.values():
            print(f"  {result['report']}  {result['outcome']:9} {result['by'] or ''}")
        return audit.audit(
            [report.id for report in reports],
            await collect(engine, company, by_eid, verdicts, results),
        )


async def collect(
    engine: Engine,
    company: Company,
    by_eid: dict[UUID, str],
    verdicts: dict[str, str],
    results: dict[str, dict[str, object]],
) -> audit.Evidence:
    """Read the inbox, the control log, the journals and the books."""
    announced = []
    for eid, report in by_eid.items():
        announced += [
            (entry.type, report) for entry in await engine.projection.announcements(eid=eid)
        ]
    with closing(sqlite3.connect(company.path)) as books:
        payments = [row[0] for row in books.execute("SELECT report FROM payments")]
    return audit.Evidence(
        verdicts=verdicts,
        results=results,
        journals={report: await engine.journal(eid) for eid, report in by_eid.items()},
        announced=announced,
        pending=len(await engine.reviews.pending()),
        payments=payments,
    )


def main() -> int:
    """Run the demo; give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="keep the files of the run")
    parser.add_argument(
        "--reports", type=int, default=REPORTS, metavar="N", help=f"at least {REPORTS_MIN}"
    )
    parser.add_argument("--decide-within", type=float, default=DECIDE_WITHIN_S, metavar="SECONDS")
    given = parser.parse_args()
    if given.reports < REPORTS_MIN:
        parser.error(f"--reports is at least {REPORTS_MIN}")
    directory = Path(tempfile.mkdtemp(prefix="perdure-expenses-"))
    print(f"the files of this run are in {directory}")
    problems = asyncio.run(run(directory, given.reports, given.decide_within))
    for problem in problems:
        print(f"WRONG: {problem}")
    if not problems:
        print("the inbox, the control log, every journal and the books are as they must be")
        if not given.keep:
            shutil.rmtree(directory)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
