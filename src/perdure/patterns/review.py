"""How does a workflow ask a person? It asks for a review, and exactly one decision counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure import Context, Decision, Message, reply_channel
from perdure.model.review import claim_key, keep, recall

ANSWERED = "answered"
"""The verdict of an answer that names none."""


async def review(
    ctx: Context,
    queue: str,
    payload: Any = None,
    *,
    schema: Any = None,
    timeout: timedelta | float | None = None,
    name: str = "review",
    key: str | None = None,
) -> Decision | None:
    """Ask the people of a queue for a decision, and wait for it.

    The review stands in the inbox (``engine.reviews.pending()``, ``perdure reviews list``) until
    somebody decides it or it expires. However many decide, one decision counts: the first. The
    control log is told ``review.requested``, then ``review.decided`` or ``review.expired``.

    Args:
        ctx: the context of the workflow function.
        queue: whose inbox it is for.
        payload: what is to be decided, any JSON value.
        schema: a JSON Schema of the data that a decision is to bring, for whoever shows a form.
        timeout: how long to wait, a timedelta or seconds; for ever if it is not given.
        name: begins the names of the frames.
        key: the key of each of these frames; give one in a loop.

    Returns:
        The decision: verdict, data, who and when. ``None`` if it expired.

    Example:
        ``decision = await review(ctx, "finance", {"invoice": "INV-7"}, timeout=timedelta(days=3))``
    """
    rid = str(ctx.uuid())
    asked = {"rid": rid, "queue": queue, "payload": payload, "schema": schema}
    enqueued = ctx.enqueue(queue, asked, task_key=rid, name=f"{name}-enqueue", key=key)
    task = await enqueued
    channel = reply_channel(task, enqueued.fid)
    request = {
        **asked,
        "deadline": None if timeout is None else ctx.now() + _duration(timeout),
        "task_id": task,
        "reply_channel": channel,
    }
    await ctx.announce("review.requested", request, name=f"{name}-requested", key=key)
    answer = await ctx.receive(channel, timeout, name=f"{name}-receive", key=key)
    if answer is None:
        won, first = await ctx.claim(claim_key(rid), None, name=f"{name}-claim")
        if not won:  # somebody decided at the last moment
            return recall(rid, first)
        await ctx.announce("review.expired", {"rid": rid}, name=f"{name}-expired", key=key)
        await ctx.withdraw(queue, task, name=f"{name}-withdraw", key=key)
        return None
    if answer.correlation == rid:  # it came through ``reviews.decide``, which holds the claim
        return recall(rid, answer.payload)
    decision = _read(rid, answer)
    won, first = await ctx.claim(claim_key(rid), keep(decision), name=f"{name}-claim")
    if not won:
        return recall(rid, first)
    told = {"rid": rid, **keep(decision)}
    await ctx.announce("review.decided", told, name=f"{name}-decided", key=key)
    return decision


def _duration(given: timedelta | float) -> timedelta:
    return given if isinstance(given, timedelta) else timedelta(seconds=given)


def _read(rid: str, answer: Message) -> Decision:
    """Read the decision of a consumer that took the task from the queue itself."""
    given, by, at = answer.payload, answer.actor, answer.sent_by.at
    verdict = given.get("verdict") if isinstance(given, dict) else None
    if isinstance(verdict, str) and verdict:
        return Decision(rid, verdict, given.get("data"), by, at)
    return Decision(rid, ANSWERED, given, by, at)
