"""How is a row of actions undone when one of them fails? In reverse, each that was completed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from perdure import Cancelled, Context, InvalidArgument, RetryPolicy

Action = Callable[[], Any]
Undo = Callable[[Any], Any]
Pair = tuple[Action, Undo | None]

NAME_MAX = 120
"""How long a name may be, so that the names of all frames fit; each is a little longer."""
ACT_RETRY = RetryPolicy()
UNDO_RETRY = RetryPolicy(max_attempts=5)


async def saga(
    ctx: Context,
    actions: Iterable[Pair],
    *,
    name: str = "saga",
    act_retry: RetryPolicy = ACT_RETRY,
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
            The second saga of a function needs another one.
        act_retry: how often an action is attempted before it has failed; once by default.
        undo_retry: how often an undo is attempted.

    Returns:
        What the actions returned, in order.

    Raises:
        StepFailed: of the action that failed, when the others are undone; of an undo, if one has
            failed for good. The undos that are left run all the same.
        Cancelled: when a cancel was requested and everything is undone.
        InvalidArgument: before anything runs, if an argument is something else.

    Example:
        ``await saga(ctx, [(partial(book_hotel, trip), cancel_hotel), (charge, refund)])``
    """
    pairs = _check(actions)
    _check_options(name, act_retry=act_retry, undo_retry=undo_retry)
    values: list[Any] = []
    try:
        for index, (act, _) in enumerate(pairs):
            values.append(await ctx.step(act, name=f"{name}-act", key=str(index), retry=act_retry))
    except (Exception, Cancelled) as failure:
        async with ctx.shield():
            lasting = await _undo(ctx, pairs, values, name=f"{name}-undo", retry=undo_retry)
        if lasting is not None:
            raise lasting from failure
        raise
    return values


async def _undo(
    ctx: Context, pairs: list[Pair], values: list[Any], *, name: str, retry: RetryPolicy
) -> Exception | None:
    """Undo what has completed, in reverse; give the error of the first undo that has failed."""
    lasting: Exception | None = None
    for index in reversed(range(len(values))):
        undo = pairs[index][1]
        if undo is not None:
            try:
                await ctx.step(undo, values[index], name=name, key=str(index), retry=retry)
            except Exception as failed:  # noqa: BLE001 - whatever it is, the others are undone
                lasting = lasting or failed
    return lasting


def _check(actions: Iterable[Pair]) -> list[Pair]:
    try:
        pairs = [(act, undo) for act, undo in actions]
    except (TypeError, ValueError) as error:
        message = "saga takes pairs of an action and what undoes it: [(book, cancel), …]"
        raise InvalidArgument(message) from error
    wrong = [
        index
        for index, (act, undo) in enumerate(pairs)
        if not callable(act) or not (undo is None or callable(undo))
    ]
    if wrong:
        index = wrong[0]
        message = (
            f"pair {index} of the saga is {pairs[index]!r}; give two functions, or None for the "
            "second; functools.partial gives a function its arguments"
        )
        for given in (each for pair in pairs for each in pair):
            if inspect.iscoroutine(given):
                given.close()  # else it would warn that it was never awaited
        raise InvalidArgument(message)
    return pairs


def _check_options(name: str, **policies: RetryPolicy) -> None:
    """Refuse now what would only be noticed at an undo: then nothing would be undone."""
    if not isinstance(name, str) or len(name) > NAME_MAX:
        message = f"the name of the saga is {name!r}; give a text of at most {NAME_MAX} characters"
        raise InvalidArgument(message)
    for option, policy in policies.items():
        if not isinstance(policy, RetryPolicy):
            message = f"{option} is {policy!r}; give a RetryPolicy"
            raise InvalidArgument(message)
