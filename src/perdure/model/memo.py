"""What ran already? The fold of one journal into the table that a replay looks things up in.

The fold is pure and total: entries of unknown type are skipped, and folding a journal in two parts
gives the same table as folding it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

from perdure.model.entry import (
    AnyEntry,
    ExecutionCancelled,
    ExecutionCancelling,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionResumed,
    ExecutionSuspended,
    ExecutionTerminated,
    FrameAbandoned,
    FrameCompleted,
    FrameFailed,
    FrameFulfilled,
    FrameStarted,
    FrameSuspended,
    PackedMessage,
)
from perdure.model.ids import ROOT
from perdure.model.message import channel_key

WAITING_KINDS = frozenset({"receive", "sleep", "child"})
RECOVERY = "recovery"


@dataclass(slots=True)
class MemoTable:
    """The fold of one journal.

    Attributes:
        started: the first ``frame.started`` of each frame: kind, name, digest and deadline.
        memos: the value of the first ``frame.completed`` of each frame.
        failures: the failed attempts of each frame, in order.
        suspended: what a frame waits on, while it waits.
        fulfilled: the entry that ended the wait of a receive, a sleep or a child.
        retry_at: when the next attempt of a frame that waits for one is due, in microseconds.
        abandoned: frames that deliver nothing any more.
        order: the frames with an outcome, in the order of their outcomes in the journal; ``root``
            stands where the cancel was delivered.
        consumed: the last sequence number consumed on each channel, by `channel_key`.
        returned: messages, by channel and number, whose frames were abandoned before the function
            was told of them: another frame consumes them.
        cancelling: the cancel that was delivered, or ``None``.
        recoveries: how often the execution was recovered since its last outcome.
        terminal: whether the execution has ended.
        tail: the number of the last entry.
    """

    started: dict[str, FrameStarted] = field(default_factory=dict)
    memos: dict[str, Raw] = field(default_factory=dict)
    failures: dict[str, list[FrameFailed]] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    fulfilled: dict[str, FrameFulfilled] = field(default_factory=dict)
    retry_at: dict[str, int] = field(default_factory=dict)
    abandoned: set[str] = field(default_factory=set)
    order: list[str] = field(default_factory=list)
    consumed: dict[str, int] = field(default_factory=dict)
    returned: dict[tuple[str, int], PackedMessage] = field(default_factory=dict)
    cancelling: ExecutionCancelling | None = None
    recoveries: int = 0
    terminal: bool = False
    tail: int = 0

    @property
    def digests(self) -> dict[str, str]:
        """The argument digest of each frame."""
        return {fid: entry.digest for fid, entry in self.started.items()}

    @property
    def deadlines(self) -> dict[str, int]:
        """The recorded due instant of each frame that has one, in microseconds."""
        return {f: e.deadline for f, e in self.started.items() if e.deadline is not None}

    def apply(self, entry: AnyEntry) -> None:
        """Fold one more entry into the table."""
        self.tail += 1
        handler = _HANDLERS.get(type(entry))
        if handler is not None:
            handler(self, entry)


def fold(entries: Iterable[AnyEntry], table: MemoTable | None = None) -> MemoTable:
    """Fold entries into `table`, or into an empty one, and return it."""
    table = MemoTable() if table is None else table
    for entry in entries:
        table.apply(entry)
    return table


def _started(table: MemoTable, entry: FrameStarted) -> None:
    table.started.setdefault(entry.fid, entry)


def _completed(table: MemoTable, entry: FrameCompleted) -> None:
    table.recoveries = 0
    table.retry_at.pop(entry.fid, None)
    if entry.fid not in table.memos:
        _add_to_order(table, entry.fid)
        table.memos[entry.fid] = entry.value


def _failed(table: MemoTable, entry: FrameFailed) -> None:
    table.recoveries = 0
    table.retry_at.pop(entry.fid, None)
    if not entry.retryable:
        _add_to_order(table, entry.fid)
    elif entry.retry_at is not None:
        table.retry_at[entry.fid] = entry.retry_at
    table.failures.setdefault(entry.fid, []).append(entry)


def _add_to_order(table: MemoTable, fid: str) -> None:
    """Give a frame its place at its first outcome, and no second one."""
    ended = fid in table.memos or fid in table.fulfilled
    if not ended and all(failure.retryable for failure in table.failures.get(fid, ())):
        table.order.append(fid)


def _suspended(table: MemoTable, entry: FrameSuspended) -> None:
    table.suspended[entry.fid] = entry.on


def _fulfilled(table: MemoTable, entry: FrameFulfilled) -> None:
    table.recoveries = 0
    table.suspended.pop(entry.fid, None)
    table.retry_at.pop(entry.fid, None)
    started = table.started.get(entry.fid)
    if started is None or started.kind not in WAITING_KINDS or entry.fid in table.fulfilled:
        return
    _add_to_order(table, entry.fid)
    table.fulfilled[entry.fid] = entry
    if entry.message is not None:
        channel, seq = channel_key(entry.on, entry.message.channel), entry.message.seq
        table.consumed[channel] = max(seq, table.consumed.get(channel, 0))
        table.returned.pop((channel, seq), None)


def _abandoned(table: MemoTable, entry: FrameAbandoned) -> None:
    table.abandoned.add(entry.fid)
    table.suspended.pop(entry.fid, None)
    table.retry_at.pop(entry.fid, None)
    fulfilled = table.fulfilled.get(entry.fid)
    if fulfilled is not None and fulfilled.message is not None:
        message = fulfilled.message
        table.returned[channel_key(fulfilled.on, message.channel), message.seq] = message


def _resumed(table: MemoTable, entry: ExecutionResumed) -> None:
    if entry.reason == RECOVERY:
        table.recoveries += 1


def _execution_suspended(table: MemoTable, entry: ExecutionSuspended) -> None:
    if entry.reason is not None:  # an operator decides now; the count begins again
        table.recoveries = 0


def _cancelling(table: MemoTable, entry: ExecutionCancelling) -> None:
    if table.cancelling is None:
        table.cancelling = entry
        table.order.append(ROOT)


def _ended(table: MemoTable, _entry: AnyEntry) -> None:
    table.terminal = True


_HANDLERS: dict[type, Callable[[MemoTable, Any], None]] = {
    FrameStarted: _started,
    FrameCompleted: _completed,
    FrameFailed: _failed,
    FrameSuspended: _suspended,
    FrameFulfilled: _fulfilled,
    FrameAbandoned: _abandoned,
    ExecutionResumed: _resumed,
    ExecutionSuspended: _execution_suspended,
    ExecutionCancelling: _cancelling,
    ExecutionCompleted: _ended,
    ExecutionFailed: _ended,
    ExecutionCancelled: _ended,
    ExecutionTerminated: _ended,
}
