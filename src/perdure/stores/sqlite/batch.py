"""What do the commands of one batch share? What they stirred, what waits to be inserted."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from perdure.model.entry import KnownEntry, pack
from perdure.stores.sqlite.statements import SQL, insert_many

if TYPE_CHECKING:
    from perdure.model.provenance import Actor
    from perdure.stores.sqlite.connection import Connection

GLOBAL = bytes(16)
"""The id that the channels belong to which no execution owns."""

Sender = tuple["Actor", int, str | None]
"""Who sends a message, when, and with which correlation."""

encode = msgspec.json.encode


class Batch:
    """The state of the batch that is being applied to one connection.

    Attributes:
        execute: runs one statement.
        site: the interned site of the session that commits.
        now: the latest instant that a command gave, in microseconds.
        enqueued, woken, closed, heard: what `Committed` tells.
    """

    def __init__(self, connection: Connection) -> None:
        self.execute = connection.execute
        self._actors: dict[Actor, int] = {}
        self.begin(0)

    def begin(self, site: int) -> None:
        """Begin with nothing done."""
        self.site = site
        self.now = 0
        self.enqueued = False
        self.woken: list[UUID] = []
        self.closed: list[UUID] = []
        self.heard: list[str] = []
        # Rows that nothing reads before the batch is over; they are inserted many at a time.
        self.journal: list[object] = []
        self._control: list[object] = []

    # -- savepoints --------------------------------------------------------------------------

    def mark(self) -> tuple[bool, int, int, int]:
        """Remember what was stirred so far."""
        return self.enqueued, len(self.woken), len(self.closed), len(self.heard)

    def undo(self, mark: tuple[bool, int, int, int]) -> None:
        """Forget what was done since `mark`, which was rolled back."""
        self.enqueued = mark[0]
        del self.woken[mark[1] :], self.closed[mark[2] :], self.heard[mark[3] :]
        self.journal, self._control = [], []
        self.forget()

    def forget(self) -> None:
        """Forget ids of rows that may not be there any more."""
        self._actors.clear()

    def flush(self) -> None:
        """Insert the rows that wait."""
        insert_many(self.execute, "append", self.journal)
        insert_many(self.execute, "control", self._control)
        self.journal, self._control = [], []

    # -- parts -------------------------------------------------------------------------------

    def tell(self, eid: bytes, kind: str, at: int, epoch: int, facts: object) -> None:
        """Write to the control log."""
        self._control += (eid, kind, at, epoch, encode(facts))

    def append(self, eid: bytes, epoch: int, entry: KnownEntry) -> None:
        """Append one entry to a journal whose owner is fenced under `epoch`, or has none."""
        tail = self.execute(SQL["tail"], (eid,)).fetchone()
        seq = 1 if tail is None else tail[0] + 1
        self.journal += (eid, seq, 1, epoch, self.site, pack([entry]))

    def resume(self, eid: bytes, reason: str, now: int) -> None:
        """Enqueue the RESUME of an execution."""
        self.execute(SQL["enqueue_resume"], (reason, now, eid))
        self.enqueued = True

    def woke(self, eid: bytes, row: tuple[str, int | None], reason: str, now: int) -> None:
        """An execution's wake counter rose: enqueue its RESUME, or tell its owner."""
        status, owner = row
        if status == "suspended":
            self.resume(eid, reason, now)
        elif owner is not None:
            self.woken.append(UUID(bytes=eid))

    def wake(self, eid: bytes, reason: str, now: int) -> bool:
        """Wake an execution, and tell whether there is an open one with this id."""
        found = self.execute(SQL["wake"], (eid,)).fetchone()
        if found is not None:
            self.woke(eid, found, reason, now)
        return found is not None

    def put(self, eid: bytes, channel: str, payload: bytes, sender: Sender) -> int:
        """Put a message on a channel, and give its number."""
        seq: int = self.execute(SQL["next_seq"], (eid, channel)).fetchone()[0]
        by, now, correlation = sender
        row = (eid, channel, seq, self.actor(by), now, correlation, payload)
        self.execute(SQL["send"], row)
        return seq

    def actor(self, actor: Actor) -> int:
        """Give the number of an actor."""
        known = self._actors.get(actor)
        if known is None:
            known = self._actors[actor] = self.intern("actor", encode(actor))
        return known

    def intern(self, table: str, body: bytes) -> int:
        """Give the number of a site or an actor."""
        self.execute(SQL[f"intern_{table}"], (body,))
        found: int = self.execute(SQL[f"{table}_id"], (body,)).fetchone()[0]
        return found
