"""Is nothing submitted twice although the consumer is killed, and would the audit notice?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from examples.agent import app, audit, demo, slow_agent
from perdure import Actor, Entry, ExecutionRow, ExecutionStatus, Provenance
from perdure.testing import engine_under_test

ROOT = Path(demo.__file__).parents[2]

# Five processes of perdure start one after the other, and fifteen commands: that is five seconds on
# an idle machine, and may be more than the usual limit on a busy one.
slow = pytest.mark.timeout(60)


# -- the workflow ----------------------------------------------------------------------------------


async def test_a_report_has_the_answers_in_the_order_of_the_questions() -> None:
    async with engine_under_test(app.registry) as under:
        eid = await under.engine.start(app.research, "bees")
        await under.run_until_idle()
        consumer = under.engine.consumer([app.QUEUE], holder="agent-1")
        held = [await consumer.dequeue() for _ in app.QUESTIONS]
        for one in reversed(held):
            assert one is not None
            await one.complete({"answer": one.task.payload["question"].upper()})
        await under.run_until_idle()

        result = await under.engine.result(eid)
        journal = await under.engine.journal(eid)
    assert result == {
        "topic": "bees",
        "findings": [
            {"question": question, "answer": question.upper()}
            for question in (
                "What are bees?",
                "Who knows most about bees?",
                "What is said against bees?",
            )
        ],
    }
    announced = [entry.type for entry in journal if entry.fid == "root/announce#0"]
    assert announced == ["frame.started", "frame.completed"]


async def test_what_is_not_answered_in_time_is_missing_in_the_report() -> None:
    async with engine_under_test(app.registry) as under:
        eid = await under.engine.start(app.research, "bees")
        await under.run_until_idle()
        await under.advance(app.PATIENCE)
        await under.run_until_idle()

        result = await under.engine.result(eid)
        held = await under.engine.consumer([app.QUEUE], holder="agent-1").dequeue()
    assert [finding["answer"] for finding in result["findings"]] == [None, None, None]
    assert held is None


# -- the agent -------------------------------------------------------------------------------------


def run_agent(folder: Path, *arguments: str) -> dict[str, str]:
    """Run the agent for one question, whose answer is there already; give what it prints."""
    question = "What are bees?"
    demo.give_answers(folder, [question])
    done = subprocess.run(
        [sys.executable, slow_agent.__file__, *arguments],
        env={"AGENT_SERVICE": str(folder), "PERDURE_STATE_FILE": str(folder / "state.json")},
        input=json.dumps({"question": question}),
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def submitted(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("what-are-bees.[0-9]*"))


def test_the_agent_submits_once_and_looks_with_the_handle_that_it_finds(tmp_path: Path) -> None:
    first = run_agent(tmp_path)
    again = run_agent(tmp_path)

    assert first["handle"] == "what-are-bees.1"
    assert "What are bees?" in first["answer"]
    assert again == first
    assert submitted(tmp_path) == ["what-are-bees.1"]


def test_a_careless_agent_submits_again(tmp_path: Path) -> None:
    run_agent(tmp_path)
    again = run_agent(tmp_path, "--careless")

    assert again["handle"] == "what-are-bees.2"
    assert submitted(tmp_path) == ["what-are-bees.1", "what-are-bees.2"]


# -- the audit -------------------------------------------------------------------------------------

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EXECUTION = ExecutionRow(
    eid=UUID(int=0),
    kind="code",
    workflow="research",
    version="1",
    status=ExecutionStatus.COMPLETED,
    queue="default",
    args=None,
    dispatch_key="bees",
    created_at=NOW,
    created_by=Actor.system("test"),
    started_at=NOW,
    ended_at=NOW,
    updated_at=NOW,
    epoch=1,
    worker_id=None,
    suspended_on=(),
    blocked=None,
    result={"topic": "bees", "findings": [{"question": "Q?", "answer": "A."}]},
    error=None,
    tags={},
)
FAILED = msgspec.structs.replace(EXECUTION, status=ExecutionStatus.FAILED)
ANSWERED = Entry(
    seq=1,
    type="frame.fulfilled",
    fid="root/delegate-receive:what",
    at=NOW,
    attempt=1,
    epoch=1,
    payload={},
    provenance=Provenance(Actor.system("test"), None, None, 0, NOW),
    eid=UUID(int=0),
)
HELD = audit.Task("Q?", 1, "q.1")
EVIDENCE = audit.Evidence(
    questions={"bees": ["Q?"]},
    executions=[EXECUTION],
    journals={"bees": [ANSWERED]},
    submissions={"Q?": 1},
    answers={"Q?": "A."},
    kills=[[HELD]],
)


def test_the_audit_finds_nothing_where_all_is_well() -> None:
    assert audit.check(EVIDENCE, kills=1) == []


@pytest.mark.parametrize(
    ("tamper", "problem"),
    [
        (lambda e: replace(e, submissions={"Q?": 2}), "'Q?' was submitted 2 times"),
        (lambda e: replace(e, submissions={}), "'Q?' was submitted 0 times"),
        (lambda e: replace(e, submissions={"Q?": 1, "R?": 1}), "'R?' was submitted 1 times"),
        (lambda e: replace(e, executions=[]), "bees has 0 executions"),
        (lambda e: replace(e, executions=[EXECUTION, EXECUTION]), "bees has 2 executions"),
        (lambda e: replace(e, questions={}), "bees has 1 executions"),
        (
            lambda e: replace(e, executions=[FAILED]),
            "bees is failed",
        ),
        (lambda e: replace(e, answers={"Q?": "B."}), "is not what the service answered"),
        (
            lambda e: replace(e, journals={"bees": [ANSWERED, ANSWERED]}),
            "root/delegate-receive:what has 2 outcomes",
        ),
        (lambda e: replace(e, journals={}), "the journal has 0 answers to 1 questions"),
        (lambda e: replace(e, kills=[]), "0 consumers were killed instead of 1"),
        (lambda e: replace(e, kills=[[]]), "consumer 1 held nothing"),
        (lambda e: replace(e, kills=[[replace(HELD, attempt=2)]]), "'Q?' was taken 2 times"),
    ],
)
def test_the_audit_finds_what_is_wrong(
    tamper: Callable[[audit.Evidence], audit.Evidence], problem: str
) -> None:
    problems = audit.check(tamper(EVIDENCE), kills=1)

    assert any(problem in found for found in problems), problems


# -- the demo --------------------------------------------------------------------------------------


def run_demo(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """Run the demo as a user does; give its exit code and what it printed."""
    process = subprocess.Popen(
        [sys.executable, "examples/agent/demo.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    try:
        output, _ = process.communicate()
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()
    return process.returncode, output


@slow
def test_the_demo_survives_the_kills_and_submits_nothing_twice(tmp_path: Path) -> None:
    code, output = run_demo(tmp_path, "--keep")

    assert code == 0, output
    assert output.count("SIGKILL") == 3
    assert "every question was submitted once and answered once" in output
    (directory,) = tmp_path.glob("perdure-agent-*")
    assert f"The files are kept in {directory}" in output
    assert sorted(demo.count_submissions(directory / "service").items()) == [
        (question, 1) for question in sorted(demo.ALL)
    ]
    # The second consumer attached to all, the third one to those that were still open.
    logs = [(directory / f"consume-{number}.log").read_text() for number in (2, 3)]
    assert [log.count("which was submitted before") for log in logs] == [6, 3]


@slow
def test_the_demo_fails_if_the_agent_ignores_its_state(tmp_path: Path) -> None:
    code, output = run_demo(tmp_path, "--careless")

    assert code == 1
    assert "'What are bees?' was submitted 2 times" in output, output
    (directory,) = tmp_path.glob("perdure-agent-*")
    assert f"The files are kept in {directory}" in output
