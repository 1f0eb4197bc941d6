"""A command for ``perdure consume`` that pretends to be a slow agent somewhere else.

It submits the question to a service and waits for the answer. The service takes whatever it is
sent, twice if it is sent twice; so the number that it gives is kept in the task at once. Whoever
has the task next asks for the answer under that number instead of submitting again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

LOOK_S = 0.1
THINKING_S = 3.0


def main() -> None:
    """Answer one task."""
    service = Service(Path(os.environ["AGENT_SERVICE"]))
    question = json.load(sys.stdin)["question"]
    file = Path(os.environ["PERDURE_STATE_FILE"])
    careless = "AGENT_CARELESS" in os.environ
    if file.exists() and not careless:
        job = json.loads(file.read_text())["job"]
        print(f"goes on waiting for {job}", file=sys.stderr)
    else:
        job = service.submit(question)
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"job": job}))
        new.replace(file)
        print(f"has submitted {job}", file=sys.stderr)
    while (answer := service.answer(job)) is None:
        time.sleep(LOOK_S)
    json.dump({"answer": answer, "job": job}, sys.stdout)


class Service:
    """The pretended service: a directory with a file for each question that it was sent."""

    def __init__(self, directory: Path) -> None:
        """Take its directory."""
        self._directory = directory

    def submit(self, question: str) -> str:
        """Begin to think about a question, and give the number of the job."""
        job = f"{time.time_ns()}-{os.getpid()}"
        (self._directory / f"{job}.json").write_text(json.dumps({"question": question}))
        return job

    def answer(self, job: str) -> str | None:
        """Give the answer, or ``None`` while the agent thinks."""
        begun_ns = int(job.partition("-")[0])
        if time.time_ns() - begun_ns < THINKING_S * 1e9:
            return None
        question = json.loads((self._directory / f"{job}.json").read_text())["question"]
        return f"all about the {question}"

    def submitted(self) -> list[str]:
        """List the questions that it was sent, as often as it was."""
        files = sorted(self._directory.glob("*.json"))
        return [json.loads(file.read_text())["question"] for file in files]


if __name__ == "__main__":
    main()
