"""How is the answer to a batch kept, for one who asks again? Small: one is kept with each batch."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from perdure.ports.commands import Done, Outcome, Refused
from perdure.ports.store import Committed

DONE = Done((None,))

_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode


class _Done(msgspec.Struct, tag="Done"):
    """`Done`, with what the commands of this store give; a pair begins with the bytes of an eid."""

    results: tuple[Any, ...]


class _Answer(msgspec.Struct, array_like=True):
    """`Committed`; the outcome of almost every transition is `DONE`, and left out."""

    outcomes: list[_Done | Refused | None]
    enqueued: bool
    woken: tuple[UUID, ...]
    closed: tuple[UUID, ...]
    heard: tuple[str, ...] = ()


_decode = msgspec.msgpack.Decoder(_Answer).decode


def pack_answer(committed: Committed) -> bytes:
    """Encode an answer."""
    outcomes = [None if outcome is DONE else outcome for outcome in committed.outcomes]
    stirred = (committed.enqueued, committed.woken, committed.closed, committed.heard)
    return _encode((outcomes, *stirred))


def unpack_answer(body: bytes) -> Committed:
    """Decode an answer."""
    answer = _decode(body)
    outcomes = tuple(_outcome(outcome) for outcome in answer.outcomes)
    return Committed(outcomes, answer.enqueued, answer.woken, answer.closed, answer.heard)


def _outcome(stored: _Done | Refused | None) -> Outcome:
    if stored is None:
        return DONE
    if isinstance(stored, Refused):
        return stored
    return Done(tuple(_pair(one) if isinstance(one, list) else one for one in stored.results))


def _pair(found: list[Any]) -> tuple[UUID, bool]:
    """Give back what a creation found: an execution, and whether it was there before."""
    eid, deduplicated = found
    return UUID(bytes=eid), deduplicated
