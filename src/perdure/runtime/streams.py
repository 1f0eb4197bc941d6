"""How is a stream followed? Read what is there, and wait for more until its execution ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure.errors import InvalidArgument
from perdure.model import codec
from perdure.model.ids import CHANNEL, check_name

if TYPE_CHECKING:
    from perdure.runtime.changes import Changes
    from perdure.runtime.engine import Engine

PAGE = 500


def read(engine: Engine, changes: Changes, eid: UUID, name: str, after: int) -> AsyncIterator[Any]:
    """Check what is asked for, and give the items of a stream; see ``Engine.stream``."""
    check_name("stream", name, CHANNEL)
    if not isinstance(after, int) or isinstance(after, bool) or after < 0:
        message = f"after is {after!r}; it is a whole number of at least 0"
        raise InvalidArgument(message)
    return _follow(engine, changes, eid, name, after)


async def _follow(
    engine: Engine, changes: Changes, eid: UUID, name: str, after: int
) -> AsyncIterator[Any]:
    changes.start()
    while True:
        changed = changes.next()
        # The row first: if it has ended there, all its items are there to be read.
        row = await engine.execution(eid, follow=False)
        items = await engine.store.stream(eid, name, after, PAGE)
        for item in items:
            after = item.seq
            yield codec.decode(item.payload)
        if len(items) == PAGE:
            continue
        if row.status.terminal:
            return
        await changed
