"""How does a workflow work with a slow agent? It delegates each question, and waits for them all.

The workflow knows nothing of the agent but the queue: a question goes in, an answer comes back, or
none in time. While it waits it is suspended, and no process has to live for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from perdure import Context, Registry
from perdure.patterns import delegate

QUEUE = "agents"
PATIENCE = timedelta(hours=1)
QUESTIONS = {
    "what": "What are {}?",
    "who": "Who knows most about {}?",
    "doubt": "What is said against {}?",
}
"""What is asked of each topic, by the key of its branch."""

registry = Registry()


@dataclass(frozen=True)
class Finding:
    """A question, and what the agent found; `answer` is ``None`` if it did not answer in time."""

    question: str
    answer: str | None


@dataclass(frozen=True)
class Report:
    """What was found out about a topic."""

    topic: str
    findings: list[Finding]


@registry.workflow("research", version="1")
async def research(ctx: Context, topic: str) -> Report:
    """Ask all questions about a topic at the same time; announce that the report is there."""
    branches = [ask(ctx, key, question.format(topic)) for key, question in QUESTIONS.items()]
    report = Report(topic, list(await ctx.gather(*branches)))
    answered = sum(finding.answer is not None for finding in report.findings)
    await ctx.announce("researched", {"topic": topic, "answered": answered})
    return report


async def ask(ctx: Context, key: str, question: str) -> Finding:
    """Have the agent answer one question."""
    answer = await delegate(ctx, QUEUE, {"question": question}, timeout=PATIENCE, key=key)
    return Finding(question, None if answer is None else answer.payload["answer"])
