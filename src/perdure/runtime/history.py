"""How does a journal read? As public entries, and as the tree of its frames. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from perdure.model.entry import (
    AnyEntry,
    Entry,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionMigrated,
    FrameAbandoned,
    FrameCompleted,
    FrameEntry,
    FrameFailed,
    FrameFulfilled,
    FrameStarted,
    FrameSuspended,
    entry_fid,
    entry_type,
    payload,
    unpack,
)
from perdure.model.execution import ErrorInfo, ExecutionRow, ExecutionStatus, FrameNode
from perdure.model.ids import ROOT
from perdure.model.instants import from_us
from perdure.model.memo import WAITING_KINDS
from perdure.model.provenance import Actor, Code, Provenance, Site
from perdure.ports.store import JournalRow
from perdure.runtime.recorded import read_child
from perdure.runtime.values import Values


class EntryReader:
    """Makes public entries of the rows of one journal, which it is given in order."""

    def __init__(self, row: ExecutionRow, values: Values) -> None:
        """Begin at the start of the journal of `row`."""
        self._values = values
        self._eid = row.eid
        self._workflow = row.workflow
        self._version = row.version
        self._begun = False
        self._started: dict[str, FrameStarted] = {}

    def read(self, rows: Sequence[JournalRow], sites: Mapping[int, Site]) -> list[Entry]:
        """Give the entries of further rows, each with its full provenance."""
        unpacked = [unpack(row.body) for row in rows]
        if not self._begun:
            migrated = (e for u in unpacked for e in u if isinstance(e, ExecutionMigrated))
            first = next(migrated, None)
            self._version = self._version if first is None else first.from_version
            self._begun = True
        entries: list[Entry] = []
        for journal_row, group in zip(rows, unpacked, strict=True):
            site = sites.get(journal_row.site)
            for index, packed in enumerate(group):
                if isinstance(packed, FrameStarted):
                    self._started.setdefault(packed.fid, packed)
                elif isinstance(packed, ExecutionMigrated):
                    self._version = packed.version
                entries.append(
                    self._public(packed, journal_row.seq + index, journal_row.epoch, site)
                )
        return entries

    def _public(self, packed: AnyEntry, seq: int, epoch: int, site: Site | None) -> Entry:
        kind, fid, at = entry_type(packed), entry_fid(packed), from_us(packed.at)
        attempt = getattr(packed, "attempt", 0)
        worker_id = "unknown" if site is None or site.worker_id is None else site.worker_id
        started = self._started.get(fid)
        frame = ("root", ROOT) if started is None else (started.kind, started.name)
        provenance = Provenance(
            Actor.worker(worker_id),
            None if site is None else msgspec.structs.replace(site, epoch=epoch),
            Code(self._workflow, self._version, *frame),
            attempt,
            at,
        )
        facts: dict[str, Any] = self._values.show(payload(packed))
        if kind == "execution.resumed":
            facts["epoch"] = epoch
        return Entry(seq, kind, fid, at, attempt, epoch, facts, provenance, self._eid)


_STOPPED = (ExecutionStatus.CANCELLED, ExecutionStatus.TERMINATED)


class _Node:
    """A frame while its entries are read."""

    def __init__(self, fid: str, kind: str, name: str) -> None:
        self.fid = fid
        self.kind = kind
        self.name = name
        self.status = "running"
        self.attempts = 0
        self.started_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.waits_on: str | None = None
        self.value: Any = None
        self.error: ErrorInfo | None = None
        self.worker_id: str | None = None
        self.children: list[_Node] = []

    def close(self, status: str, at: int) -> None:
        self.status, self.ended_at, self.waits_on = status, from_us(at), None

    def leave(self, status: str, at: datetime | None) -> None:
        """The execution has ended: nothing comes of a frame that is still open."""
        if self.ended_at is None:
            self.status, self.ended_at, self.waits_on = status, at, None

    def freeze(self) -> FrameNode:
        return FrameNode(
            fid=self.fid,
            kind=self.kind,
            name=self.name,
            status=self.status,
            attempts=self.attempts,
            started_at=self.started_at,
            ended_at=self.ended_at,
            waits_on=self.waits_on,
            value=self.value,
            error=self.error,
            worker_id=self.worker_id,
            children=tuple(child.freeze() for child in self.children),
        )


def frame_tree(
    row: ExecutionRow,
    rows: Sequence[JournalRow],
    sites: Mapping[int, Site],
    values: Values,
) -> FrameNode:
    """Give the tree of the frames of an execution, its root frame first."""
    root = _Node(ROOT, "root", row.workflow)
    root.status = row.status.value
    root.attempts = 1 if row.started_at is not None else 0
    root.started_at, root.ended_at = row.started_at, row.ended_at
    root.waits_on = ", ".join(row.suspended_on) or None
    root.value, root.error = row.result, row.error
    nodes = {ROOT: root}
    for journal_row in rows:
        for packed in unpack(journal_row.body):
            if isinstance(packed, FrameEntry):
                node = _read(nodes, packed)
                site = sites.get(journal_row.site)
                if isinstance(packed, FrameStarted) and node.kind == "step" and site is not None:
                    node.worker_id = site.worker_id
            elif isinstance(packed, ExecutionCompleted | ExecutionFailed):
                root.ended_at = from_us(packed.at)
    if row.status.terminal:
        left = row.status if row.status in _STOPPED else "abandoned"
        for node in nodes.values():
            # A child may have been started to live on; the journal does not say.
            node.leave("abandoned" if node.kind == "child" else str(left), row.ended_at)
    for node in nodes.values():
        if node is not root:  # whose value is the row's, which was opened with it
            node.value = values.show(node.value)
    return root.freeze()


def _read(nodes: dict[str, _Node], packed: FrameEntry) -> _Node:
    fid, at = packed.fid, from_us(packed.at)
    node = nodes.get(fid)
    if node is None:
        node = nodes[fid] = _Node(fid, "step", fid)
        if isinstance(packed, FrameStarted):
            node.kind, node.name = packed.kind, packed.name
        node.started_at = at
        nodes.get(fid.rpartition("/")[0], nodes[ROOT]).children.append(node)
    _READERS[type(packed)](node, packed)
    return node


def _started(node: _Node, packed: FrameStarted) -> None:
    node.attempts = packed.attempt
    node.status = "waiting" if packed.kind in WAITING_KINDS else "running"
    node.waits_on = None


def _completed(node: _Node, packed: FrameCompleted) -> None:
    if node.status != "completed":
        node.close("completed", packed.at)
        node.value = msgspec.json.decode(packed.value)


def _failed(node: _Node, packed: FrameFailed) -> None:
    node.error = ErrorInfo(packed.error_type, packed.message)
    if packed.retryable:
        node.status = "waiting"
    else:
        node.close("failed", packed.at)


def _suspended(node: _Node, packed: FrameSuspended) -> None:
    node.status, node.waits_on = "waiting", packed.on
    if packed.on.startswith("step:"):
        node.worker_id = None  # another worker is to run it


def _fulfilled(node: _Node, packed: FrameFulfilled) -> None:
    if node.kind not in WAITING_KINDS:  # the delay of a retry is over
        node.status, node.waits_on = "running", None
        if packed.message is not None:
            node.worker_id = packed.message.sent_by.id
        return
    if node.kind == "child" and packed.message is not None:
        ended = read_child(packed.message)
        node.close(ended.status, packed.at)
        node.value = msgspec.json.decode(ended.value)
        if ended.error_type is not None:
            node.error = ErrorInfo(ended.error_type, ended.message or "")
        return
    node.close("completed", packed.at)
    if packed.message is not None:
        node.value = msgspec.json.decode(packed.message.payload)


def _abandoned(node: _Node, packed: FrameAbandoned) -> None:
    node.close("abandoned", packed.at)


_READERS: dict[type[FrameEntry], Callable[[_Node, Any], None]] = {
    FrameStarted: _started,
    FrameCompleted: _completed,
    FrameFailed: _failed,
    FrameSuspended: _suspended,
    FrameFulfilled: _fulfilled,
    FrameAbandoned: _abandoned,
}
