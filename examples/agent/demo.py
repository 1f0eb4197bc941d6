"""Does a crash make an agent do its work twice? Kills what stands between a workflow and its agent.

It starts a worker and a consumer, each a process of its own, and one execution for each topic. The
consumer runs `slow_agent.py` for each question. Twice the consumer is killed with SIGKILL while its
commands wait for answers, once the worker, too; they are started again. At the end the demo audits
what is left behind, and exits with 1 if anything is not as it must be.

The demo also plays the service that the agent asks: it lets half of the answers appear after the
first kill, while nobody looks, and the other half after the second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import perdure
from perdure import Engine, Held

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if not __package__:  # run as a file: only its own directory is looked in
    sys.path[0] = str(ROOT)

from examples.agent import app, audit, slow_agent  # noqa: E402 - found by the line above

TOPICS = ("bees", "tides")
QUESTIONS = {
    topic: [question.format(topic) for question in app.QUESTIONS.values()] for topic in TOPICS
}
ALL = [question for questions in QUESTIONS.values() for question in questions]
HOLDER = "agent-1"
KILLS = 2
LOOK_S = 0.05
TIME_MAX_S = 30


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


def main() -> int:
    """Run the demo; give the exit code."""
    parser = argparse.ArgumentParser(
        description="Kill what stands between a workflow and its agent."
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of the run")
    parser.add_argument(
        "--careless",
        action="store_true",
        help="let the agent ignore the state that it finds, and see the audit fail",
    )
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="perdure-agent-"))
    print(f"The files of this run are in {directory}")
    # A terminated demo takes its processes with it, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    problems = None
    try:
        evidence = asyncio.run(run(Site(directory, careless=options.careless)))
    except DemoError as error:
        print(f"The demo cannot go on: {error}")
    except KeyboardInterrupt:
        print("Interrupted.")
    else:
        problems = audit.check(evidence, kills=KILLS)
        report(evidence, problems)
    if problems == [] and not options.keep:
        shutil.rmtree(directory)
        return 0
    print(f"The files are kept in {directory}")
    return 0 if problems == [] else 1


async def run(site: Site) -> audit.Evidence:
    """Run everything once; give what is left behind."""
    site.service.mkdir()
    began = time.monotonic()
    async with perdure.open(site.url, app.registry) as engine:
        eids = await engine.start_many(
            app.research, [(topic,) for topic in TOPICS], keys=list(TOPICS)
        )
        print(f"{len(eids)} executions delegate {len(ALL)} questions")
        kills = await drive(engine, site)
        print(f"all executions have ended, after {time.monotonic() - began:.1f} s")
        return await collect(engine, site, kills)


# -- processes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """A process of the demo, and its log."""

    name: str
    process: Process
    log: Path

    def check_alive(self) -> None:
        """Raise if it ended by itself."""
        if self.process.returncode is not None:
            raise DemoError(self._describe(f"ended with code {self.process.returncode}"))

    async def kill(self) -> None:
        """Kill it: no handler of it runs, nothing is flushed, nothing is handed back."""
        self.check_alive()
        self.process.kill()
        await self.process.wait()
        print(f"{self.name} is killed with SIGKILL")

    async def stop(self) -> None:
        """Ask it to stop, and see that it does so properly."""
        self.check_alive()
        self.process.terminate()
        code = await self.process.wait()
        if code != 0:
            raise DemoError(self._describe(f"was asked to stop and exited with {code}"))

    def _describe(self, what: str) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"{self.name} {what}; its log ends with", *lines[-15:]])


class Site:
    """Where a run happens: its directory, its store, and the processes that are started in it."""

    def __init__(self, directory: Path, *, careless: bool) -> None:
        """Name what a run needs; nothing is made yet."""
        self.directory = directory
        self.service = directory / "service"
        self.url = f"sqlite:///{directory / 'agent.db'}"
        self._careless = careless
        self._started: Counter[str] = Counter()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Running]:
        """Run a worker; kill it at the end if it is still there."""
        async with self._start("worker", "--app", f"{app.__name__}:registry") as running:
            yield running

    @asynccontextmanager
    async def consumer(self) -> AsyncIterator[Running]:
        """Run a consumer, always under the same holder id; it takes all questions at one time."""
        command = [sys.executable, str(HERE / "slow_agent.py")]
        if self._careless:
            command.append("--careless")
        options = ["--queue", app.QUEUE, "--holder", HOLDER, "--limit", str(len(ALL))]
        async with self._start("consume", *options, "--", *command) as running:
            yield running

    @asynccontextmanager
    async def _start(self, command: str, *arguments: str) -> AsyncIterator[Running]:
        self._started[command] += 1
        name = f"{command}-{self._started[command]}"
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "perdure", command, *arguments),
                cwd=ROOT,
                env={
                    **os.environ,
                    "PERDURE_STORE": self.url,
                    slow_agent.SERVICE: str(self.service),
                },
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
            )
        try:
            yield Running(name, process, log)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


# -- the service -----------------------------------------------------------------------------------


def give_answers(service: Path, questions: Iterable[str]) -> None:
    """Let the answers to some questions appear, however often each was submitted."""
    for question in questions:
        text = f"The service has thought long about {question!r}. It depends."
        file = slow_agent.answer_file(service, f"{slow_agent.name_of(question)}.1")
        slow_agent.write_whole(file, text)


def read_answers(service: Path) -> dict[str, str]:
    """Read the answers that are there, by question."""
    files = {
        question: slow_agent.answer_file(service, f"{slow_agent.name_of(question)}.1")
        for question in ALL
    }
    return {
        question: file.read_text(encoding="utf-8")
        for question, file in files.items()
        if file.exists()
    }


def count_submissions(service: Path) -> Counter[str]:
    """Count how often each question was submitted."""
    files = (file for file in service.iterdir() if file.suffix != ".answer")
    return Counter(file.read_text(encoding="utf-8") for file in files)


# -- the run ---------------------------------------------------------------------------------------


async def drive(engine: Engine, site: Site) -> list[list[audit.Task]]:
    """Let it work, kill and start again, until every execution has ended; give what was killed."""
    half = len(ALL) // 2
    async with site.worker() as worker, site.consumer() as consumer:
        first = await watch(engine, len(ALL), worker, consumer)
        print(f"the agent has submitted {len(first)} questions, and its consumer keeps the handles")
        await worker.kill()
        await consumer.kill()
    give_answers(site.service, ALL[:half])
    print(f"{half} answers appear while nobody looks; both are started again")
    async with site.worker() as worker:
        async with site.consumer() as consumer:
            second = await watch(engine, len(ALL) - half, worker, consumer)
            print(f"{half} questions are answered, {len(second)} are open")
            await consumer.kill()
        give_answers(site.service, ALL[half:])
        print("the other answers appear while nobody looks; the consumer is started again")
        async with site.consumer() as consumer:
            await watch(engine, 0, worker, consumer)
            async with asyncio.timeout(TIME_MAX_S):
                for row in (await engine.executions()).items:
                    await engine.wait(row.eid)
            await consumer.stop()
        await worker.stop()
    return [first, second]


async def watch(engine: Engine, wanted: int, *running: Running) -> list[audit.Task]:
    """Watch until the holder has `wanted` tasks, each with a state; give them."""
    peeking = engine.consumer([app.QUEUE], holder=HOLDER)  # it only reads, and takes nothing
    deadline = time.monotonic() + TIME_MAX_S
    while True:
        held = await peeking.attach()
        if len(held) == wanted and all(one.state is not None for one in held):
            return [task_of(one) for one in held]
        for one in running:
            one.check_alive()
        if time.monotonic() > deadline:
            message = f"{HOLDER} holds {len(held)} tasks instead of {wanted} after {TIME_MAX_S} s"
            raise DemoError(message)
        await asyncio.sleep(LOOK_S)  # a lease that is renewed is no event that one could wait for


def task_of(held: Held) -> audit.Task:
    """Describe a task that is held."""
    return audit.Task(held.task.payload["question"], held.epoch, held.state["handle"])


async def collect(engine: Engine, site: Site, kills: list[list[audit.Task]]) -> audit.Evidence:
    """Collect what the run left behind."""
    executions = (await engine.executions()).items
    return audit.Evidence(
        questions=QUESTIONS,
        executions=executions,
        journals={str(row.dispatch_key): await engine.journal(row.eid) for row in executions},
        submissions=count_submissions(site.service),
        answers=read_answers(site.service),
        kills=kills,
    )


def report(evidence: audit.Evidence, problems: list[str]) -> None:
    """Say what was submitted, and what the audit found."""
    for question, times in sorted(evidence.submissions.items()):
        print(f"  {question:<35} submitted {times} time{'s' * (times != 1)}")
    if not problems:
        print("The audit found nothing: every question was submitted once and answered once.")
        return
    print(f"The audit found {len(problems)} problems:")
    for problem in problems:
        print(f"  {problem}")


if __name__ == "__main__":
    sys.exit(main())
