"""How is one workflow run for each of many items? As a child for each, the results in order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, overload

from perdure import Context, InvalidArgument

Item = TypeVar("Item")
T = TypeVar("T")


@overload
async def fan_out(
    ctx: Context,
    workflow: Callable[[Context, Item], Coroutine[Any, Any, T]],
    items: Iterable[Item],
    *,
    name: str | None = None,
    queue: str | None = None,
    limit: int | None = None,
) -> list[T]: ...
@overload
async def fan_out(
    ctx: Context,
    workflow: str,
    items: Iterable[Any],
    *,
    name: str | None = None,
    queue: str | None = None,
    limit: int | None = None,
) -> list[Any]: ...
async def fan_out(
    ctx: Context,
    workflow: Callable[..., Coroutine[Any, Any, Any]] | str,
    items: Iterable[Any],
    *,
    name: str | None = None,
    queue: str | None = None,
    limit: int | None = None,
) -> list[Any]:
    """Start one child execution for each item, and wait for all of them.

    Args:
        ctx: the context of the workflow function.
        workflow: the workflow of the children, the function or its name; the item is its one
            argument.
        items: the items, any iterable of JSON values that has an order: a replay must find the
            same ones at the same positions.
        name: the name in the frame ids ``{name}:{position}``; the function's name by default. The
            second fan-out of a workflow in a function needs another one.
        queue: the queue of the children, if not the workflow's own.
        limit: how many children are open at one time; all by default.

    Returns:
        The results of the children, in the order of the items.

    Raises:
        ChildFailed: of the first child that did not complete; the others are asked to cancel.
        InvalidArgument: if the limit is below 1, the items have no order, or one of them does not
            fit the workflow. Without a limit no child is started then; with one, those that are
            open are asked to cancel.

    Example:
        ``receipts = await fan_out(ctx, ship, orders, limit=20)``
    """
    every = _check_items(items)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        message = f"limit is {limit!r}; it is a whole number of at least 1"
        raise InvalidArgument(message)
    options: dict[str, Any] = {} if name is None else {"name": name}
    results: list[Any] = [None] * len(every)
    left = iter(enumerate(every))

    async def lane() -> None:
        """Run one child after the other, always for the next item that is left."""
        for position, item in left:
            child = ctx.child(workflow, item, key=str(position), queue=queue, **options)
            results[position] = await child

    lanes = len(every) if limit is None else min(limit, len(every))
    await ctx.gather(*(lane() for _ in range(lanes)))
    return results


def _check_items(items: Iterable[Any]) -> list[Any]:
    if isinstance(items, set | frozenset):
        message = (
            "the items are a set, and the next process may give it another order; pass a list, "
            "for example sorted(items)"
        )
        raise InvalidArgument(message)
    if not isinstance(items, Iterable):
        message = f"items is {items!r}; give a list, or something else that can be iterated"
        raise InvalidArgument(message)
    return list(items)
