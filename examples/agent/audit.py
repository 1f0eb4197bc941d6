"""Was every question asked and answered once? Looks at what is left behind, and changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perdure import Entry, ExecutionRow, ExecutionStatus

OUTCOMES = {"frame.completed", "frame.failed", "frame.fulfilled", "frame.abandoned"}


@dataclass(frozen=True)
class Task:
    """A task as a consumer held it when it was killed.

    Attributes:
        question: what was asked.
        attempt: how often the task had been taken.
        handle: what the agent had kept in it.
    """

    question: str
    attempt: int
    handle: str


@dataclass(frozen=True)
class Evidence:
    """What a run leaves behind.

    Attributes:
        questions: the questions that had to be asked, by topic.
        executions: every execution in the store.
        journals: the journal of each execution, by topic.
        submissions: how often each question was submitted to the service.
        answers: what the service answered, by question.
        kills: what each consumer held when it was killed.
    """

    questions: Mapping[str, Sequence[str]]
    executions: Sequence[ExecutionRow]
    journals: Mapping[str, Sequence[Entry]]
    submissions: Mapping[str, int]
    answers: Mapping[str, str]
    kills: Sequence[Sequence[Task]]


def check(evidence: Evidence, *, kills: int) -> list[str]:
    """Check that everything came right although `kills` consumers were killed.

    Returns:
        What did not, one sentence each; empty if all is well.
    """
    return [
        *_check_reports(evidence),
        *_check_submissions(evidence),
        *_check_journals(evidence),
        *_check_kills(evidence, kills),
    ]


def _check_reports(evidence: Evidence) -> Iterator[str]:
    counts = Counter(str(row.dispatch_key) for row in evidence.executions)
    for topic in sorted(evidence.questions.keys() | counts.keys()):
        if topic not in evidence.questions or counts[topic] != 1:
            yield f"{topic} has {counts[topic]} executions"
    for row in evidence.executions:
        topic = str(row.dispatch_key)
        findings = [
            {"question": question, "answer": evidence.answers.get(question)}
            for question in evidence.questions.get(topic, ())
        ]
        if row.status is not ExecutionStatus.COMPLETED:
            yield f"{topic} is {row.status}"
        elif row.result != {"topic": topic, "findings": findings}:
            yield f"the report on {topic} is not what the service answered: {row.result}"


def _check_submissions(evidence: Evidence) -> Iterator[str]:
    asked = {question for questions in evidence.questions.values() for question in questions}
    for question in sorted(asked | evidence.submissions.keys()):
        times = evidence.submissions.get(question, 0)
        if question not in asked or times != 1:
            yield f"{question!r} was submitted {times} times"


def _check_journals(evidence: Evidence) -> Iterator[str]:
    """Every frame has one outcome, and there is one answer for each question."""
    for topic, questions in evidence.questions.items():
        outcomes = [entry for entry in evidence.journals.get(topic, ()) if entry.type in OUTCOMES]
        for fid, times in Counter(entry.fid for entry in outcomes).items():
            if times != 1:
                yield f"{topic}: {fid} has {times} outcomes"
        answered = sum(entry.type == "frame.fulfilled" for entry in outcomes)
        if answered != len(questions):
            yield f"{topic}: the journal has {answered} answers to {len(questions)} questions"


def _check_kills(evidence: Evidence, kills: int) -> Iterator[str]:
    if len(evidence.kills) != kills:
        yield f"{len(evidence.kills)} consumers were killed instead of {kills}"
    for number, held in enumerate(evidence.kills, 1):
        if not held:
            yield f"consumer {number} held nothing when it was killed, so the kill shows nothing"
        for task in held:
            if task.attempt != 1:
                yield f"{task.question!r} was taken {task.attempt} times instead of attached to"
