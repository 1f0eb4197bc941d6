"""How does a command not ask twice, although it is killed? It keeps the handle of what it asked.

`perdure consume` runs this script once for each question. It submits the question to a service that
takes its time, keeps the handle that it gets, and looks with it whether the answer is there. If it
finds a handle at its start, somebody before it has submitted the question: it only looks.

The service is pretended: a directory, named by `AGENT_SERVICE`. A question becomes the file
``NAME.1``, a second submission of it ``NAME.2``; the answer appears as ``NAME.answer``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from itertools import count
from pathlib import Path

SERVICE = "AGENT_SERVICE"
LOOK_S = 0.05


def main() -> None:
    """Answer one question."""
    service = Path(os.environ[SERVICE])
    state_file = Path(os.environ["PERDURE_STATE_FILE"])
    question = json.load(sys.stdin)["question"]
    careless = "--careless" in sys.argv[1:]
    if state_file.exists() and not careless:
        handle = json.loads(state_file.read_text(encoding="utf-8"))["handle"]
        print(f"looks for {handle} again, which was submitted before", file=sys.stderr)
    else:
        handle = submit(service, question)
        write_whole(state_file, json.dumps({"handle": handle}))
        print(f"submitted {handle}", file=sys.stderr)
    print(json.dumps({"handle": handle, "answer": wait_for_answer(service, handle)}))


def submit(service: Path, question: str) -> str:
    """Submit a question; give the handle to look for its answer with. Each call costs."""
    for number in count(1):
        handle = f"{name_of(question)}.{number}"
        try:
            with (service / handle).open("x", encoding="utf-8") as file:
                file.write(question)
        except FileExistsError:
            continue
        return handle
    raise AssertionError  # there is always a next number


def wait_for_answer(service: Path, handle: str) -> str:
    """Look until the answer is there. A service that is polled gives no signal, so this sleeps."""
    file = answer_file(service, handle)
    while not file.exists():
        time.sleep(LOOK_S)
    return file.read_text(encoding="utf-8")


def answer_file(service: Path, handle: str) -> Path:
    """Give the file in which the answer appears."""
    return service / f"{handle.rpartition('.')[0]}.answer"


def name_of(question: str) -> str:
    """Make a name for the files of a question."""
    return re.sub(r"[^a-z0-9]+", "-", question.lower()).strip("-")


def write_whole(path: Path, text: str) -> None:
    """Put a file in place whole, so that nobody reads a half."""
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


if __name__ == "__main__":
    main()
