"""How do the tests write a control log, and compare two views of it?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import msgspec

from perdure.model.instants import to_us
from perdure.ports.projection import Projection
from perdure.ports.store import ControlEntry, Store

BEGIN = to_us(datetime(2030, 1, 1, tzinfo=UTC))
SECOND = 1_000_000


class Log:
    """A control log that a test writes. It is also the store that a projection reads it from."""

    def __init__(self) -> None:
        self.entries: list[ControlEntry] = []
        self.read = 0

    @property
    def store(self) -> Store:
        return cast("Store", self)

    def tell(
        self, eid: UUID, kind: str, facts: Any = None, *, at: int | None = None, epoch: int = 1
    ) -> int:
        """Append an entry, a second after the one before; give its position."""
        position = self.entries[-1].position + 1 if self.entries else 1
        instant = BEGIN + position * SECOND if at is None else at
        body = facts if isinstance(facts, bytes) else msgspec.json.encode(facts or {})
        self.entries.append(ControlEntry(position, eid, kind, instant, epoch, body))
        return position

    def create(self, eid: UUID, workflow: str = "w", **facts: Any) -> int:
        """Tell that an execution was created."""
        given = {"workflow": workflow, "version": "1", "queue": "default", **facts}
        return self.tell(eid, "execution.created", given)

    def announce(self, eid: UUID, kind: str, payload: Any, fid: str = "root/tell#0") -> int:
        """Tell what a function announced."""
        return self.tell(eid, f"announce.{kind}", {"fid": fid, "payload": payload})

    async def control(self, after: int = 0, limit: int = 1_000) -> list[ControlEntry]:
        """Read the log as a store does."""
        self.read += 1
        return [entry for entry in self.entries if entry.position > after][:limit]


def names(folder: Path) -> list[str]:
    """List the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


async def everything(view: Projection) -> list[Any]:
    """Read all that a view knows, of logs that fit on one page."""
    executions = (await view.executions(limit=500)).items
    return [
        executions,
        await view.counts(),
        (await view.reviews(limit=500)).items,
        await view.announcements(limit=500),
        [await view.tasks(one.eid) for one in executions],
        [await view.children(one.eid) for one in executions],
    ]
