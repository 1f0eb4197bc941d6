"""What does a fork begin with? Entries copied from a journal. Pure functions.

A beginning of a journal is a journal: whatever ran up to there ran without what came later. So a
fork keeps the frames that had their outcome before the cut, and all others run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.errors import InvalidArgument, UnknownFrame
from perdure.model import codec
from perdure.model.entry import (
    AnyEntry,
    ExecutionCancelling,
    ExecutionForked,
    FrameCompleted,
    FrameEntry,
    FrameFailed,
    FrameFulfilled,
    FrameStarted,
    KnownEntry,
    UnknownEntry,
)
from perdure.model.ids import ROOT
from perdure.model.memo import MemoTable, fold
from perdure.runtime.recorded import ANY_ARGUMENTS, read_child


def forked(
    origin: UUID, entries: Sequence[AnyEntry], fid: str, overrides: Mapping[str, Raw], now: int
) -> list[KnownEntry]:
    """Give the journal of a fork: what `entries` hold before the frame `fid` began.

    Args:
        origin: the execution that is forked.
        entries: its journal.
        fid: the frame that runs again, with all that followed; ``root`` keeps nothing.
        overrides: encoded values by frame id: these steps have them as their memo.
        now: the instant, in microseconds.

    Raises:
        UnknownFrame: if the journal holds no such frame.
        InvalidArgument: if a frame in `overrides` is no step.
    """
    cut = 0 if fid == ROOT else _begin_of(origin, entries, fid)
    kept = _ended(entries[:cut])
    given: list[KnownEntry] = []
    for step, value in overrides.items():
        started = entries[_begin_of(origin, entries, step)]
        if not isinstance(started, FrameStarted) or started.kind != "step":
            message = f"frame {step} is no step; only the value of a step can be given"
            raise InvalidArgument(message)
        kept = [entry for entry in kept if not _belongs(entry, {step})]
        given.append(msgspec.structs.replace(started, at=now, attempt=1, digest=ANY_ARGUMENTS))
        given.append(FrameCompleted(now, step, 1, value))
    shown = {step: codec.decode(value) for step, value in overrides.items()}
    return [ExecutionForked(now, str(origin), fid, shown), *kept, *given]


def retried(origin: UUID, entries: Sequence[AnyEntry], now: int) -> list[KnownEntry]:
    """Give the journal of a fork that tries again what failed last; all before it is kept.

    If no step and no child has failed, all is kept, and the function runs on from there.
    """
    cut, failed = len(entries), ROOT
    for index, entry in enumerate(entries):
        if isinstance(entry, FrameEntry) and _is_failure(entry):
            cut, failed = index, entry.fid
    kept = [entry for entry in _ended(entries[:cut]) if not _belongs(entry, {failed})]
    return [ExecutionForked(now, str(origin), failed, {}), *kept]


def consumed(entries: Sequence[AnyEntry]) -> dict[str, int]:
    """Give how far a journal has consumed the channels that are the execution's own."""
    table: MemoTable = fold(entries)
    return {
        channel: seq
        for channel, seq in table.consumed.items()
        if "/" not in channel and ":" not in channel
    }


def _begin_of(origin: UUID, entries: Sequence[AnyEntry], fid: str) -> int:
    for index, entry in enumerate(entries):
        if isinstance(entry, FrameStarted) and entry.fid == fid:
            return index
    raise UnknownFrame(origin, fid)


def _ended(entries: Sequence[AnyEntry]) -> list[KnownEntry]:
    """Keep the frames that have an outcome in `entries`, as they were before a cancel."""
    known: list[KnownEntry] = []
    for entry in entries:
        if isinstance(entry, ExecutionCancelling):
            break
        if isinstance(entry, FrameEntry) and not isinstance(entry, UnknownEntry):
            known.append(entry)
    table = fold(known)
    lost = {fid for fid in table.started if fid not in table.order}
    return [entry for entry in known if not _belongs(entry, lost)]


def _belongs(entry: AnyEntry, fids: set[str]) -> bool:
    return isinstance(entry, FrameEntry) and entry.fid in fids


def _is_failure(entry: FrameEntry) -> bool:
    if isinstance(entry, FrameFailed):
        return not entry.retryable
    if isinstance(entry, FrameFulfilled) and entry.on.startswith("child:"):
        return entry.message is not None and read_child(entry.message).status != "completed"
    return False
