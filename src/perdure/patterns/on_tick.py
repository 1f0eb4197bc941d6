"""How is one execution started for each tick of a schedule, however many ask? By its key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from perdure import Actor, Engine, InvalidArgument, InvalidName

SCHEDULE = re.compile(r"[A-Za-z0-9_.-]{1,200}")


async def on_tick(
    engine: Engine,
    workflow: Callable[..., Any] | str,
    schedule: str,
    tick: datetime,
    *args: Any,
    queue: str | None = None,
    **kwargs: Any,
) -> UUID:
    """Start the execution of one tick of a schedule, unless it was started before.

    Whoever notices the tick may call it, from any number of processes: the dispatch key
    ``tick:{schedule}:{tick}`` makes all of them mean one execution.

    Args:
        engine: the engine.
        workflow: the registered function, or the name of a workflow.
        schedule: the name of the schedule; letters, digits, ``_ . -``.
        tick: the instant of the tick, an aware datetime.
        *args: the function's arguments, without the context.
        queue: the queue it stands on, if not the workflow's own.
        **kwargs: the function's keyword arguments; ``options=`` and ``version=`` are those of
            ``engine.start``.

    Returns:
        The id of the execution, also if it has ended.

    Raises:
        InvalidName: if the schedule's name is out of its grammar.
        InvalidArgument: if the tick is no aware datetime.
        Conflict: if the tick of this schedule has started another workflow.

    Example:
        ``await on_tick(engine, nightly, "nightly", midnight)``
    """
    if not isinstance(schedule, str) or SCHEDULE.fullmatch(schedule) is None:
        what = "schedule"
        raise InvalidName(what, schedule, SCHEDULE.pattern)
    key, by = f"tick:{schedule}:{_utc(tick)}", Actor.schedule(schedule)
    return await engine.start(workflow, *args, key=key, queue=queue, by=by, **kwargs)


def _utc(tick: datetime) -> str:
    """Write an instant in one way, whatever its time zone."""
    utc = None
    if isinstance(tick, datetime) and tick.utcoffset() is not None:
        with contextlib.suppress(OverflowError):
            utc = tick.astimezone(UTC)
    if utc is None:
        message = f"tick is {tick!r}; give an aware datetime, for example in UTC"
        raise InvalidArgument(message)
    return utc.isoformat().replace("+00:00", "Z")
