"""Is a slow agent asked once, though everybody who waits for it is killed? Starts three topics.

A worker and a consumer are processes of their own; the consumer runs the agent's command for each
question. While the agent thinks, both are killed with SIGKILL and started again. At the end the
demo counts what the agent was asked, and exits with 1 if a question was asked twice, or anything
else is not as it must be. With ``--careless`` the command forgets what it has submitted.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from asyncio.subprocess import Process
from collections import Counter
from pathlib import Path
from uuid import UUID

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if not __package__:  # run as a file: only its own directory is looked in
    sys.path[0] = str(ROOT)

import perdure  # noqa: E402 - found by the line above, as are those that follow
from examples.agent import app, slow_agent  # noqa: E402
from examples.processes import Commands, end, kill  # noqa: E402
from perdure import Engine  # noqa: E402

TOPICS = ("bridges", "tunnels", "ferries")
HOLDER = "agent-1"
SESSION_TTL_S = "2"
LEASE_TTL_S = "3"
LOOK_S = 0.05
QUESTIONS = len(TOPICS) * len(app.ASPECTS)


class Lab:
    """The processes of the demo, on one store."""

    def __init__(self, directory: Path, *, careless: bool) -> None:
        """Take the directory for the files of the run."""
        self.url = f"sqlite:///{directory / 'agent.db'}"
        self.service = directory / "service"
        self.service.mkdir()
        environment = {"AGENT_SERVICE": str(self.service)}
        if careless:
            environment["AGENT_CARELESS"] = "1"
        self._commands = Commands(self.url, directory / "processes.log", environment)

    async def worker(self) -> Process:
        """Start a worker."""
        return await self._commands.begin(
            "worker", "--app", "examples.agent.app", "--session-ttl", SESSION_TTL_S
        )

    async def consumer(self) -> Process:
        """Start the consumer; under its holder id it attaches to what it held."""
        return await self._commands.begin(
            "consume", "--queue", app.AGENTS, "--holder", HOLDER, "--limit", str(QUESTIONS),
            "--ttl", LEASE_TTL_S, "--", sys.executable, str(HERE / "slow_agent.py"),
        )  # fmt: skip


async def run(directory: Path, *, careless: bool) -> list[str]:
    """Run the demo; give what is not as it must be."""
    lab = Lab(directory, careless=careless)
    service = slow_agent.Service(lab.service)
    async with perdure.open(lab.url, app.registry) as engine:
        eids = await engine.start_many(app.research, [[topic] for topic in TOPICS])
        worker, consumer = await lab.worker(), await lab.consumer()
        try:
            await submitted(engine, service)
            print(f"the agent thinks about {QUESTIONS} questions; killing consumer and worker")
            await kill(consumer, worker)
            worker, consumer = await lab.worker(), await lab.consumer()
            reports = [await engine.result(eid, timeout=60) for eid in eids]
        finally:
            await end(worker, consumer)
        for topic, report in zip(TOPICS, reports, strict=True):
            print(f"  {topic}: {', '.join(found['answer'] for found in report.values())}")
        return await audit(engine, eids, service.submitted())


async def submitted(engine: Engine, service: slow_agent.Service) -> None:
    """Wait until every question is submitted, and its number is kept in its task."""
    holder = engine.consumer([app.AGENTS], holder=HOLDER)
    while len(service.submitted()) < QUESTIONS or any(  # noqa: ASYNC110 - nobody tells
        held.state is None for held in await holder.attach()
    ):
        await asyncio.sleep(LOOK_S)


async def audit(engine: Engine, eids: list[UUID], asked: list[str]) -> list[str]:
    """List what is not as it must be."""
    expected = {f"{aspect} of {topic}" for topic in TOPICS for aspect in app.ASPECTS}
    problems = [f"{q!r} was asked {n} times" for q, n in Counter(asked).items() if n != 1]
    problems += [f"{q!r} was never asked" for q in expected - set(asked)]
    for eid in eids:
        answers = Counter(
            entry.fid
            for entry in await engine.journal(eid)
            if entry.type == "frame.fulfilled" and "delegate-receive" in entry.fid
        )
        if len(answers) != len(app.ASPECTS) or set(answers.values()) != {1}:
            problems.append(f"execution {eid} has the answers {dict(answers)}")
    depth = await engine.queues.depth(app.AGENTS)
    if (depth.ready, depth.delayed, depth.leased) != (0, 0, 0):
        problems.append(f"the queue still holds {depth}")
    return problems


def main() -> int:
    """Run the demo; give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="keep the files of the run")
    parser.add_argument("--careless", action="store_true", help="the command forgets its state")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="perdure-agent-"))
    print(f"the files of this run are in {directory}")
    problems = asyncio.run(run(directory, careless=given.careless))
    for problem in problems:
        print(f"WRONG: {problem}")
    if not problems:
        print("every question was asked once, and every answer arrived once")
        if not given.keep:
            shutil.rmtree(directory)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
