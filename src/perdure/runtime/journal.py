"""What does the owner know of its journal? The fold, the next number, and what is not durable yet.

The owner assigns numbers from memory, so an append is a compare-and-swap by its key. At most one
transition is handed over at a time; what is appended meanwhile waits for the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from perdure.model.entry import KnownEntry, pack, unpack
from perdure.model.memo import MemoTable, fold
from perdure.ports.commands import Append, Command, EndExecution, Release, Suspend, Transition
from perdure.runtime.frames import Frame

if TYPE_CHECKING:
    from perdure.ports.store import Claimed

Guard = Suspend | EndExecution | Release


class Barrier(msgspec.Struct, frozen=True):
    """What gives an execution up: the entries to append and the command that guards them."""

    guard: Guard
    entries: tuple[KnownEntry, ...] = ()


class Handed(msgspec.Struct, frozen=True):
    """What was handed to the committer and is not answered yet."""

    first_seq: int
    entries: list[KnownEntry]
    commands: list[Command]
    barrier: Barrier | None


class OwnedJournal:
    """The journal of one owned execution, as its owner sees and extends it.

    Attributes:
        table: the fold of what the journal held when it was acquired.
        durable_seq: every entry up to here is durable.
        handed: what the committer has, or ``None``.
        undelivered: whether an outcome has not reached the function yet.
    """

    def __init__(self, claimed: Claimed) -> None:
        self._eid: UUID = claimed.record.eid
        self._epoch = claimed.epoch
        self.table = MemoTable()
        for row in claimed.journal:
            fold(unpack(row.body), self.table)
        self._next_seq = self.table.tail + 1
        self.durable_seq = self.table.tail
        self.handed: Handed | None = None
        self._entries: list[KnownEntry] = []
        self._commands: list[Command] = []
        self._outcomes: deque[tuple[int, Frame[Any], Any, BaseException | None]] = deque()

    @property
    def undelivered(self) -> bool:
        """Whether an outcome has not reached the function yet."""
        return bool(self._outcomes)

    @property
    def waiting(self) -> bool:
        """Whether something waits to be handed over."""
        return bool(self._entries)

    def append(self, entry: KnownEntry) -> int:
        """Append an entry and return its number; it is durable with the next transition."""
        seq = self._next_seq
        self._next_seq = seq + 1
        self._entries.append(entry)
        return seq

    def append_outcome(
        self, frame: Frame[Any], entry: KnownEntry, value: Any, error: BaseException | None
    ) -> None:
        """Append an outcome, and deliver it to `frame` when it is durable."""
        self._outcomes.append((self.append(entry), frame, value, error))

    def also(self, command: Command) -> None:
        """Apply a command in the transition that carries the entries appended so far."""
        self._commands.append(command)

    def hand_over(self, barrier: Barrier | None, site: int) -> Transition | None:
        """Make one transition of all that waits; ``None`` if nothing does."""
        entries = self._entries
        if not entries and barrier is None:
            return None
        commands: list[Command] = [] if barrier is None else [barrier.guard]
        first = self._next_seq - len(entries)
        every = entries
        if barrier is not None:
            self._next_seq += len(barrier.entries)
            every = [*entries, *barrier.entries]
        if every:
            commands.append(Append(self._eid, self._epoch, site, first, len(every), pack(every)))
        commands += self._commands
        self.handed = Handed(first, entries, self._commands, barrier)
        self._entries, self._commands = [], []
        return Transition(tuple(commands))

    def settled(self) -> None:
        """What was handed over is durable."""
        if self.handed is not None:
            self.durable_seq = self.handed.first_seq + len(self.handed.entries) - 1
            self.handed = None

    def take_back(self) -> None:
        """A barrier was refused: take its numbers back, and hand the entries over again."""
        handed, self.handed = self.handed, None
        if handed is not None and handed.barrier is not None:
            self._next_seq -= len(handed.barrier.entries)
            self._entries = handed.entries + self._entries
            self._commands = handed.commands + self._commands

    def deliverable(self) -> Iterator[tuple[Frame[Any], Any, BaseException | None]]:
        """Give the outcomes that have become durable, in journal order."""
        outcomes = self._outcomes
        while outcomes and outcomes[0][0] <= self.durable_seq:
            _, frame, value, error = outcomes.popleft()
            yield frame, value, error

    def has_outcome(self, fid: str) -> bool:
        """Whether the journal held an outcome of this frame when it was acquired."""
        table = self.table
        if fid in table.memos or fid in table.fulfilled:
            return True
        failures = table.failures.get(fid)
        return failures is not None and not failures[-1].retryable
