"""What does the workflow do? It asks an agent some questions at once, and reports the answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure import Context, Registry
from perdure.patterns import delegate

AGENTS = "agents"
PATIENCE = timedelta(minutes=5)
ASPECTS = ("history", "cost", "risk")

registry = Registry()


@registry.workflow("research", version="1")
async def research(ctx: Context, topic: str) -> dict[str, Any]:
    """Have every aspect of a topic looked into, and give what was found."""
    answers = await ctx.gather(*(ask(ctx, topic, aspect) for aspect in ASPECTS))
    report = dict(zip(ASPECTS, answers, strict=True))
    await ctx.announce("research.done", {"topic": topic, "found": len(report)})
    return report


async def ask(ctx: Context, topic: str, aspect: str) -> Any:
    """Ask one question; ``None`` if the agent takes too long."""
    question = {"question": f"{aspect} of {topic}"}
    answer = await delegate(ctx, AGENTS, question, timeout=PATIENCE, key=aspect)
    return None if answer is None else answer.payload
