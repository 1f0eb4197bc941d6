"""How does a workflow have something done outside the engine? It delegates, and waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure import Context, Message, reply_channel


async def delegate(
    ctx: Context,
    queue: str,
    payload: Any = None,
    *,
    timeout: timedelta | float | None = None,
    name: str = "delegate",
    key: str | None = None,
    task_key: str | None = None,
) -> Message | None:
    """Put a task on a queue, and wait for the answer of the consumer that takes it.

    If no answer comes in time the task is withdrawn: its consumer loses the lease, and an answer
    that comes later reaches nobody.

    Args:
        ctx: the context of the workflow function.
        queue: the queue of the consumers: people, an agent, a service.
        payload: what they are asked for, any JSON value.
        timeout: how long to wait, a timedelta or seconds; for ever if it is not given.
        name: begins the names of the frames: ``{name}-enqueue``, ``{name}-receive`` and, after a
            timeout, ``{name}-withdraw``.
        key: the key of each of these frames; give one in a loop.
        task_key: tells the task from others of this execution; see ``ctx.enqueue``.

    Returns:
        The answer as a message: its payload, and who sent it when. ``None`` after a timeout.

    Example:
        ``answer = await delegate(ctx, "agents", {"question": text}, timeout=3600)``
    """
    enqueued = ctx.enqueue(queue, payload, task_key=task_key, name=f"{name}-enqueue", key=key)
    task = await enqueued
    channel = reply_channel(task, enqueued.fid)
    answer = await ctx.receive(channel, timeout, name=f"{name}-receive", key=key)
    if answer is None:
        await ctx.withdraw(queue, task, name=f"{name}-withdraw", key=key)
    return answer
