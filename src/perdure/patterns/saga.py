"""How is a row of actions undone when one of them fails? In reverse, each that was completed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perdure import Cancelled, Context, InvalidArgument, RetryPolicy, StepFailed

Action = Callable[[], Any]
Undo = Callable[[Any], Any]
UNDO_RETRY = RetryPolicy(max_attempts=5)


async def saga(
    ctx: Context,
    actions: Sequence[tuple[Action, Undo | None]],
    *,
    name: str = "saga",
    undo_retry: RetryPolicy = UNDO_RETRY,
) -> list[Any]:
    """Run actions in order; if one fails, or a cancel is requested, undo those that completed.

    Each action is a step, and so is each undo. An action that failed is not undone: let it leave
    nothing behind, or make its undo a part of it.

    Args:
        ctx: the context of the workflow function.
        actions: pairs of an action, a function without parameters, and what undoes it, a function
            of what the action returned, or ``None``. ``functools.partial`` gives an action its
            arguments; take them from the workflow's own, so that a replay gives the same.
        name: begins the names of the frames: ``{name}-act:{i}`` and ``{name}-undo:{i}``, from 0.
        undo_retry: how often an undo is attempted.

    Returns:
        What the actions returned, in order.

    Raises:
        StepFailed: of the action that failed, when the others are undone; of an undo, if one has
            failed for good. The undos that are left run all the same.
        Cancelled: when a cancel was requested and everything is undone.
        InvalidArgument: before anything runs, if `actions` holds something else.

    Example:
        ``await saga(ctx, [(partial(book_hotel, trip), cancel_hotel), (charge, refund)])``
    """
    pairs = _check(actions)
    values: list[Any] = []
    try:
        for index, (act, _) in enumerate(pairs):
            values.append(await ctx.step(act, name=f"{name}-act", key=str(index)))
    except (Exception, Cancelled) as failure:
        async with ctx.shield():
            lasting = await _undo(ctx, pairs, values, name=f"{name}-undo", retry=undo_retry)
        if lasting is not None:
            raise lasting from failure
        raise
    return values


async def _undo(
    ctx: Context,
    pairs: list[tuple[Action, Undo | None]],
    values: list[Any],
    *,
    name: str,
    retry: RetryPolicy,
) -> StepFailed | None:
    """Undo what has completed, in reverse; give the first undo that has failed for good."""
    lasting: StepFailed | None = None
    for index in reversed(range(len(values))):
        undo = pairs[index][1]
        if undo is not None:
            try:
                await ctx.step(undo, values[index], name=name, key=str(index), retry=retry)
            except StepFailed as failed:
                lasting = lasting or failed
    return lasting


def _check(actions: Sequence[tuple[Action, Undo | None]]) -> list[tuple[Action, Undo | None]]:
    try:
        pairs = [(act, undo) for act, undo in actions]
    except (TypeError, ValueError) as error:
        message = "saga takes pairs of an action and what undoes it: [(book, cancel), …]"
        raise InvalidArgument(message) from error
    for index, (act, undo) in enumerate(pairs):
        if not callable(act) or not (undo is None or callable(undo)):
            message = f"pair {index} of the saga is {(act, undo)!r}; give two functions, or None"
            raise InvalidArgument(message)
    return pairs
