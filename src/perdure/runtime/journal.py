"""What does the owner know of its journal? The fold, the next number, and what is not durable yet.

The owner assigns numbers from memory, so an append is a compare-and-swap by its key. At most one
transition is handed over at a time; what is appended meanwhile waits for the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.model import codec
from perdure.model.entry import FrameCompleted, FrameFailed, FrameStarted, KnownEntry, pack, unpack
from perdure.model.memo import MemoTable, fold
from perdure.ports.commands import (
    Append,
    Command,
    EndExecution,
    Refused,
    Release,
    Suspend,
    Transition,
)
from perdure.runtime.frames import Frame

if TYPE_CHECKING:
    from perdure.ports.store import Claimed

Guard = Suspend | EndExecution | Release

EFFECT_REFUSALS = frozenset({"unknown_execution", "already_closed"})


class Barrier(msgspec.Struct, frozen=True):
    """What gives an execution up: the entries to append and the command that guards them."""

    guard: Guard
    entries: tuple[KnownEntry, ...] = ()


@dataclass(slots=True, eq=False)
class Delivery:
    """An outcome that the function is told of when the entry `seq` is durable.

    Attributes:
        seq: the number of the entry.
        frame: the frame it belongs to; ``None`` means the cancel of the execution.
        value: what the frame gives.
        error: what it raises instead.
    """

    seq: int
    frame: Frame[Any] | None
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """An effect of the engine: a command whose result is the memo of a frame."""

    command: Command
    frame: Frame[Any]
    delivery: Delivery


@dataclass(frozen=True, slots=True, eq=False)
class Handed:
    """What was handed to the committer and is not answered yet."""

    first_seq: int
    entries: list[KnownEntry]
    effects: list[Effect]
    commands: list[Command]
    barrier: Barrier | None


class OwnedJournal:
    """The journal of one owned execution, as its owner sees and extends it.

    Attributes:
        table: the fold of what the journal held when it was acquired.
        durable_seq: every entry up to here is durable.
        handed: what the committer has, or ``None``.
    """

    def __init__(self, claimed: Claimed) -> None:
        self._eid: UUID = claimed.record.eid
        self.table = MemoTable()
        for row in claimed.journal:
            fold(unpack(row.body), self.table)
        self._entries: list[KnownEntry] = []
        self._effects: list[Effect] = []
        self._commands: list[Command] = []
        self._deliveries: deque[Delivery] = deque()
        self.go_on(claimed.epoch, self.table.tail)

    def go_on(self, epoch: int, tail: int) -> None:
        """Go on under a new epoch, behind its fence, the entry `tail`."""
        self._epoch = epoch
        self.durable_seq = tail
        self._next_seq = tail + 1
        self.handed: Handed | None = None

    @property
    def undelivered(self) -> bool:
        """Whether an outcome has not reached the function yet."""
        return bool(self._deliveries)

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
        self,
        frame: Frame[Any] | None,
        entry: KnownEntry,
        value: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """Append an outcome, and deliver it to `frame` when it is durable."""
        self._deliveries.append(Delivery(self.append(entry), frame, value, error))

    def append_effect(self, frame: Frame[Any], command: Command, now: int) -> None:
        """Append both entries of an effect; its command gives the memo, in the same transition."""
        fid = frame.fid
        self.append(FrameStarted(now, fid, 1, frame.kind, frame.name, frame.digest))
        delivery = Delivery(self.append(FrameCompleted(now, fid, 1, codec.NULL)), frame)
        self._deliveries.append(delivery)
        self._effects.append(Effect(command, frame, delivery))

    def also(self, command: Command) -> None:
        """Apply a command in the transition that carries the entries appended so far."""
        self._commands.append(command)

    def hand_over(self, barrier: Barrier | None, site: int) -> Transition | None:
        """Make one transition of all that waits; ``None`` if nothing does."""
        entries, effects = self._entries, self._effects
        if not entries and not self._commands and barrier is None:
            return None
        commands: list[Command] = [] if barrier is None else [barrier.guard]
        first = self._next_seq - len(entries)
        memos: tuple[tuple[int, int], ...] = ()
        if effects:
            memos = tuple(
                (effect.delivery.seq - first, index)
                for index, effect in enumerate(effects, start=len(commands))
            )
            commands += [effect.command for effect in effects]
        every = entries
        if barrier is not None:
            self._next_seq += len(barrier.entries)
            every = [*entries, *barrier.entries]
        if every:
            body = pack(every)
            commands.append(Append(self._eid, self._epoch, site, first, len(every), body, memos))
        commands += self._commands
        self.handed = Handed(first, entries, effects, self._commands, barrier)
        self._entries, self._effects, self._commands = [], [], []
        return Transition(tuple(commands))

    def settled(self, results: Sequence[object]) -> None:
        """What was handed over is durable; `results` has one value per command."""
        handed, self.handed = self.handed, None
        if handed is None:
            return
        self.durable_seq = handed.first_seq + len(handed.entries) - 1
        for effect, result in zip(handed.effects, results, strict=False):
            memo = Raw(result) if isinstance(result, bytes) else codec.encode("an effect", result)
            effect.delivery.value = (effect.frame.decoder or codec.decode)(memo)

    @property
    def settled_all(self) -> bool:
        """Whether everything that was appended is durable."""
        return self.handed is None and not self._entries and not self._commands

    def reserve(self) -> int:
        """Keep the next two numbers for a transaction, which counts as handed over."""
        first = self._next_seq
        self._next_seq = first + 2
        self.handed = Handed(first, [], [], [], None)
        return first

    def settled_reserved(self) -> None:
        """The entries with the reserved numbers are durable."""
        handed, self.handed = self.handed, None
        if handed is not None:
            self.durable_seq = handed.first_seq + 1

    def fill_reserved(
        self, entries: list[KnownEntry], frame: Frame[Any], error: BaseException | None
    ) -> None:
        """Nothing was written: append these two entries under the reserved numbers.

        An `error` is delivered to the frame when they are durable.
        """
        handed, self.handed = self.handed, None
        if handed is not None:
            self._entries = entries + self._entries
            if error is not None:
                self._deliveries.appendleft(Delivery(handed.first_seq + 1, frame, None, error))

    def take_back(self) -> None:
        """What was handed over was refused: hand its entries over again, without a barrier."""
        handed, self.handed = self.handed, None
        if handed is None:
            return
        if handed.barrier is not None:
            self._next_seq -= len(handed.barrier.entries)
        self._entries = handed.entries + self._entries
        self._effects = handed.effects + self._effects
        self._commands = handed.commands + self._commands

    def refused_effect(self, refused: Refused) -> Effect | None:
        """Tell which effect the refusal of what was handed over is about, if it is about one."""
        handed = self.handed
        if handed is None or refused.code not in EFFECT_REFUSALS:
            return None
        index = refused.at - (handed.barrier is not None)
        return handed.effects[index] if 0 <= index < len(handed.effects) else None

    def fail_effect(self, effect: Effect, failed: FrameFailed, error: Exception) -> None:
        """Let the frame of an effect that was refused, and taken back, fail instead."""
        first = self._next_seq - len(self._entries)
        self._entries[effect.delivery.seq - first] = failed
        self._effects.remove(effect)
        effect.delivery.error = error

    def deliverable(self) -> Iterator[Delivery]:
        """Give the outcomes that have become durable, in journal order."""
        deliveries = self._deliveries
        while deliveries and deliveries[0].seq <= self.durable_seq:
            yield deliveries.popleft()

    def has_outcome(self, fid: str) -> bool:
        """Whether the journal held an outcome of this frame when it was acquired."""
        table = self.table
        if fid in table.memos or fid in table.fulfilled:
            return True
        failures = table.failures.get(fid)
        return failures is not None and not failures[-1].retryable
