"""How is one workflow run for each of many items? As a child for each, the results in order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from perdure import Context, InvalidArgument

T = TypeVar("T")


async def fan_out(
    ctx: Context,
    workflow: Callable[..., Coroutine[Any, Any, T]] | str,
    items: Iterable[Any],
    *,
    name: str | None = None,
    queue: str | None = None,
    limit: int | None = None,
) -> list[T]:
    """Start one child execution for each item, and wait for all of them.

    Args:
        ctx: the context of the workflow function.
        workflow: the workflow of the children, the function or its name; the item is its one
            argument.
        items: the items, any iterable of JSON values.
        name: the name in the frame ids ``{name}:{position}``; the function's name by default.
        queue: the queue of the children, if not the workflow's own.
        limit: how many children are open at one time; all by default.

    Returns:
        The results of the children, in the order of the items.

    Raises:
        ChildFailed: of the first child that did not complete; the others are asked to cancel.
        InvalidArgument: if the limit is below 1.

    Example:
        ``receipts = await fan_out(ctx, ship, orders, limit=20)``
    """
    every = list(items)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        message = f"limit is {limit!r}; it is a whole number of at least 1"
        raise InvalidArgument(message)

    def child(position: int) -> Any:
        options: dict[str, Any] = {} if name is None else {"name": name}
        if queue is not None:
            options["queue"] = queue
        return ctx.child(workflow, every[position], key=str(position), **options)

    if limit is None or limit >= len(every):
        results: list[T] = await ctx.gather(*(child(n) for n in range(len(every))))
        return results
    found: list[Any] = [None] * len(every)
    positions = iter(range(len(every)))

    async def lane(left: Iterator[int]) -> None:
        for position in left:
            found[position] = await child(position)

    await ctx.gather(*(lane(positions) for _ in range(limit)))
    return found
