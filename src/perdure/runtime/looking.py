"""What can one look at? Executions, their journals and frames, and the control log.

`Looking` is the part of an engine that reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from perdure.errors import InvalidArgument, UnknownExecution
from perdure.model.entry import Entry
from perdure.model.execution import ExecutionRow, ExecutionStatus, FrameNode, LeaseInfo, Page
from perdure.model.ids import CHANNEL, ROOT, check_name, parse_eid
from perdure.model.instants import from_us
from perdure.model.provenance import Actor, Provenance, Site
from perdure.ports.projection import Projection
from perdure.ports.store import ControlEntry, JournalRow, Store, StoreInfo
from perdure.runtime import requests
from perdure.runtime.changes import Changes
from perdure.runtime.history import EntryReader, frame_tree
from perdure.runtime.requests import ENGINE
from perdure.runtime.values import Values

CONTROL_PAGE = 500
POSITION_END = 2**63


class Looking:
    """The part of an engine that reads.

    Attributes:
        store: where everything durable is.
        projection: the view of the control log that lists, counts and the inbox are read from.
    """

    store: Store
    projection: Projection
    values: Values
    _changes: Changes

    async def status(self, eid: UUID | str) -> ExecutionStatus:
        """Tell where an execution is.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        return (await self.execution(eid)).status

    async def execution(self, eid: UUID | str, *, follow: bool = True) -> ExecutionRow:
        """Read an execution as it is now.

        Args:
            eid: the execution.
            follow: whether to read the one that it continues as, if there is one.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        eid = parse_eid(eid)
        if follow:
            return await self._latest(eid)
        row = await self.store.execution(eid)
        if row is None:
            raise UnknownExecution(eid)
        return self.values.row(row)

    async def executions(
        self,
        *,
        status: ExecutionStatus | str | Iterable[ExecutionStatus | str] | None = None,
        workflow: str | None = None,
        tags: Mapping[str, str] | None = None,
        text: str | None = None,
        parent: UUID | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ExecutionRow]:
        """List executions, newest first.

        Args:
            status: one status or several.
            workflow: the name of the workflow.
            tags: tags that all must be there, with these values.
            text: a part of the workflow's name, the dispatch key, or a tag's value.
            parent: the execution whose children they are.
            since: created at or after this aware instant.
            until: created before this aware instant.
            limit: at most so many, between 1 and 500.
            cursor: where the page before ended.

        Raises:
            InvalidArgument: if a value is out of range.
        """
        query = requests.query(
            status=status,
            workflow=workflow,
            tags=tags,
            text=text,
            parent=parent,
            since=since,
            until=until,
            limit=limit,
            cursor=cursor,
        )
        page = await self.store.executions(query)
        return Page(tuple(map(self.values.row, page.items)), page.cursor)

    async def journal(self, eid: UUID | str, *, after: int = 0) -> list[Entry]:
        """Read the journal of an execution: its entries numbered above `after`.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        row = await self.execution(eid, follow=False)
        entries = await self._read_entries(EntryReader(row, self.values), row.eid, 0)
        return [entry for entry in entries if entry.seq > after]

    async def _read_entries(self, reader: EntryReader, eid: UUID, after: int) -> list[Entry]:
        rows = await self.store.journal(eid, after)
        return reader.read(rows, await self._sites(rows))

    async def _sites(self, rows: Sequence[JournalRow]) -> dict[int, Site]:
        return await self.store.sites(sorted({row.site for row in rows}))

    async def frames(self, eid: UUID | str) -> FrameNode:
        """Read the tree of the frames of an execution.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        row = await self.execution(eid, follow=False)
        rows = await self.store.journal(row.eid)
        return frame_tree(row, rows, await self._sites(rows), self.values)

    async def lease(self, eid: UUID | str) -> LeaseInfo:
        """Tell who owns an execution.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        eid = parse_eid(eid)
        lease = await self.store.lease(eid)
        if lease is None:
            raise UnknownExecution(eid)
        return lease

    async def watch(self, eid: UUID | str, *, after: int = 0) -> AsyncIterator[Entry]:
        """Give the entries of an execution as they commit, until it has ended.

        Args:
            eid: the execution.
            after: begin behind the entry of this number.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        self._changes.start()
        reader = EntryReader(await self.execution(eid, follow=False), self.values)
        last = 0
        while True:
            changed = self._changes.next()
            row = await self.execution(eid, follow=False)
            for entry in await self._read_entries(reader, row.eid, last):
                last = entry.seq
                if entry.seq > after:
                    yield entry
            if row.status.terminal:
                return
            await changed

    async def events(self, *, after: int | Literal["now"] | None = None) -> AsyncIterator[Entry]:
        """Give the entries of the control log, those to come as they commit. It never ends itself.

        The control log tells the life of all executions: ``execution.created``, ``.started``,
        ``.suspended`` and so on to their ends, and what functions announce. An entry's number is
        its position.

        Args:
            after: begin behind this position, or with ``"now"`` behind the last entry that there
                is when the iteration begins; from the first entry by default.

        Raises:
            InvalidArgument: if `after` is no position.

        Example:
            ``async for entry in engine.events(after="now"): print(entry.eid, entry.type)``
        """
        self._changes.start()
        position = await self.store.control_end() if after == "now" else _position(after)
        while True:
            changed = self._changes.next()
            while page := await self.store.control(position, CONTROL_PAGE):
                for told in page:
                    position = told.position
                    yield _public(told)
            await changed

    def stream(self, eid: UUID | str, name: str, *, after: int = 0) -> AsyncIterator[Any]:
        """Give the values of a stream of an execution, until it has ended.

        What functions and steps publish comes as it is committed.

        Args:
            eid: the execution.
            name: the stream's name.
            after: leave out so many items from the beginning.

        Raises:
            InvalidName: at once, if the name is out of its grammar.
            InvalidArgument: at once, if `after` is no number from 0, or the id is none.
            UnknownExecution: when iterated, if there is no execution with this id.

        Example:
            ``async for token in engine.stream(eid, "tokens"): print(token, end="")``
        """
        check_name("stream", name, CHANNEL)
        if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < POSITION_END:
            message = f"after is {after!r}; it is a number of items from 0"
            raise InvalidArgument(message)
        return self._follow(parse_eid(eid), name, after)

    async def _follow(self, eid: UUID, name: str, last: int) -> AsyncIterator[Any]:
        self._changes.start()
        while True:
            changed = self._changes.next()
            row = await self.execution(eid, follow=False)
            while items := await self.store.items(row.eid, name, last, CONTROL_PAGE):
                for seq, value in items:
                    last = seq
                    yield self.values.decode(f"item {seq} of stream {name!r}", value)
            if row.status.terminal:
                return
            await changed

    async def store_info(self) -> StoreInfo:
        """Tell what the store is and holds."""
        return await self.store.info()

    async def _latest(self, eid: UUID) -> ExecutionRow:
        """Read the execution that an id means now."""
        while True:
            row = await self.store.execution(eid)
            if row is None:
                raise UnknownExecution(eid)
            if row.continued_as is None:
                return self.values.row(row)
            eid = row.continued_as


def _position(after: object) -> int:
    if after is None:
        return 0
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < POSITION_END:
        message = f"after is {after!r}; give a position of the control log, or 'now'"
        raise InvalidArgument(message)
    return after


def _public(told: ControlEntry) -> Entry:
    facts = msgspec.json.decode(told.body, type=dict[str, Any])
    by = msgspec.convert(facts["by"], Actor) if "by" in facts else ENGINE
    at = from_us(told.at)
    return Entry(
        told.position,
        told.type,
        facts.get("fid", ROOT),
        at,
        0,
        told.epoch,
        facts,
        Provenance(by, None, None, 0, at),
        told.eid,
    )
