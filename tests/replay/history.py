"""How is a journal recorded, and how is it replayed? A history is a JSON document.

It holds what the function was called with and every entry but the last, which ended the execution.
The replay must reach that end by itself, and must not run anything on the way.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import msgspec

from perdure import EngineConfig, Entry, Registry
from perdure.model.entry import unpack
from perdure.model.execution import Execution, ExecutionRow
from perdure.ports.clock import now_us
from perdure.ports.commands import Consume, CreateExecution
from perdure.runtime import forking
from perdure.runtime.engine import Engine
from perdure.testing import engine_under_test

History = dict[str, Any]


TRACEBACK = 8
"""The place of the traceback in a packed ``frame.failed``: it names files of one machine."""


async def record(engine: Engine, eid: UUID) -> History:
    """Record an execution that has ended."""
    made = await engine.store.record(eid)
    assert made is not None
    packed: list[Any] = []
    for row in await engine.store.journal(eid):
        packed += msgspec.json.decode(row.body)
    for entry in packed:
        if entry[0] == "frame.failed":
            entry[TRACEBACK] = None
    ended = await engine.execution(eid, follow=False)
    assert ended.status.terminal, ended
    return {
        "record": json.loads(msgspec.json.encode(made)),
        "entries": packed[:-1],
        **end_of(ended),
    }


def end_of(row: ExecutionRow) -> dict[str, Any]:
    """Give what a replay must reach."""
    error = None if row.error is None else list(row.error)
    return {"status": row.status.value, "result": row.result, "error": error}


async def replay(history: History, registry: Registry) -> tuple[dict[str, Any], list[Entry]]:
    """Replay a history in an empty store; give the end, and the entries that are new."""
    body = msgspec.json.encode(history["entries"])
    entries = unpack(body)
    async with engine_under_test(registry, config=EngineConfig(drain=0)) as under:
        made = msgspec.json.decode(msgspec.json.encode(history["record"]), type=Execution)
        # What belongs to the record's own store is not in this one.
        made = msgspec.structs.replace(made, dispatch_key=None, parent=None)
        numbers = forking.consumed(entries)
        await under.engine.committer.apply(
            CreateExecution(made, now_us(under.clock), body, len(entries)),
            *(Consume(made.eid, channel, seq) for channel, seq in numbers.items()),
        )
        await under.run_until_idle()
        row = await under.engine.execution(made.eid, follow=False)
        journal = await under.engine.journal(made.eid)
        return end_of(row), journal[len(entries) :]
