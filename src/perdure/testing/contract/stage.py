"""What does every check need? A store with a worker's session and an engine's, and short words."""
# ruff: noqa: S101 - an assertion is how a check fails

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Raw

from perdure.model.entry import AnyEntry, unpack
from perdure.model.execution import Execution, ExecutionRow, StartOptions
from perdure.model.provenance import Actor, Site
from perdure.ports.commands import (
    Append,
    Command,
    Consume,
    CreateExecution,
    EndExecution,
    Outcome,
    Release,
    Send,
    Suspend,
    Timer,
    Transition,
)
from perdure.ports.store import NOTHING_KEPT, Claimed, Committed, JournalRow, Mail, Session, Store

E = TypeVar("E", bound=Exception)

NOW = 1_900_000_000_000_000
SECOND = 1_000_000
TTL_S = 30.0

ADA = Actor.human("ada@example.com")
WORKER_SITE = Site("contract", 1, "worker-1")
ENGINE_SITE = Site("contract", 1)
KNOWN = frozenset({("work", "1")})

# The store packs nothing but fences: to it, the body of an append is any bytes.
BODY = b'[["frame.started",1,"root/f#0",1,"step","f","d"]]'

_numbers = itertools.count(1)


def new_eid() -> UUID:
    """Give an id that sorts after all before it."""
    return UUID(int=(0x0190_0000_0000_7000_8000 << 48) + next(_numbers))


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """One check: its name, the rule in words, and what is run on an empty store.

    Awaiting it closes the store; it raises AssertionError if the rule is broken.
    """

    name: str
    rule: str
    body: Callable[[Stage], Awaitable[None]]

    def __str__(self) -> str:
        """Give the name."""
        return self.name

    async def __call__(self, store: Store) -> None:
        """Run the check on an empty store, and close it."""
        try:
            await self.body(await Stage.set_up(store))
        finally:
            await store.close()


class Checks(list[StoreCheck]):
    """The checks of one module, in the order in which they are written."""

    def add(self, body: Callable[[Stage], Awaitable[None]]) -> StoreCheck:
        """Make a check of a function; use it as a decorator."""
        name = getattr(body, "__name__", "")
        check = StoreCheck(name, " ".join((body.__doc__ or "").split()), body)
        self.append(check)
        return check


class Stage:
    """A store, and what a worker and an engine do with it.

    Attributes:
        store: the store.
        worker: the session of a worker.
        engine: the session under which batches are committed.
    """

    def __init__(self, store: Store, worker: Session, engine: Session) -> None:
        """Take open sessions; `set_up` opens them."""
        self.store = store
        self.worker = worker
        self.engine = engine
        self._batch_no = 0

    @classmethod
    async def set_up(cls, store: Store) -> Stage:
        """Open the sessions of a worker and an engine."""
        worker = await store.open_session(WORKER_SITE, TTL_S, NOW)
        return cls(store, worker, await store.open_session(ENGINE_SITE, None, NOW))

    # -- writing -----------------------------------------------------------------------------

    async def batch(self, *transitions: tuple[Command, ...]) -> Committed:
        """Commit a batch under the next number."""
        self._batch_no += 1
        batch = [Transition(commands) for commands in transitions]
        return await self.store.commit(self.engine.session, self._batch_no, batch)

    def repeat(self) -> None:
        """Commit the next batch under the number of the last one."""
        self._batch_no -= 1

    async def apply(self, *commands: Command) -> Outcome:
        """Commit one transition, and give its outcome."""
        return (await self.batch(commands)).outcomes[0]

    async def create(self, **how: Any) -> UUID:
        """Create an execution; see `record`."""
        made = record(**how)
        await self.apply(CreateExecution(made, NOW))
        return made.eid

    async def dequeue(
        self,
        queues: Sequence[str] = ("default",),
        *,
        known: frozenset[tuple[str, str]] = KNOWN,
        limit: int = 10,
        now: int = NOW,
        session: Session | None = None,
        kept: Mapping[UUID, int] = NOTHING_KEPT,
    ) -> list[Claimed]:
        """Dequeue for the worker, or for another session."""
        taker = (session or self.worker).session
        return await self.store.dequeue(taker, queues, known, limit, now, kept=kept)

    async def own(self, **how: Any) -> Claimed:
        """Create an execution that the worker owns."""
        eid = await self.create(**how)
        (claimed,) = await self.dequeue()
        assert claimed.record.eid == eid
        return claimed

    async def suspended(self, *timers: Timer) -> UUID:
        """Give an execution that is suspended."""
        claimed = await self.own()
        await self.apply(suspend(claimed, *timers))
        return claimed.record.eid

    # -- reading -----------------------------------------------------------------------------

    async def row(self, eid: UUID) -> ExecutionRow:
        """Read an execution that exists."""
        found = await self.store.execution(eid)
        assert found is not None, f"execution {eid} is not there"
        return found

    async def mail(self, eid: UUID) -> Mail:
        """Read the mail of an execution that exists."""
        found = await self.store.mail(eid)
        assert found is not None, f"execution {eid} is not there"
        return found

    async def ready(self) -> int:
        """Count the tasks that are ready."""
        return (await self.store.info()).ready_tasks

    async def told(self) -> list[str]:
        """List the types of the control log."""
        return [entry.type for entry in await self.store.control()]


def record(
    *,
    eid: UUID | None = None,
    workflow: str = "work",
    version: str = "1",
    queue: str = "default",
    key: str | None = None,
    args: bytes = b"[[1],{}]",
    at: int = NOW,
    **options: Any,
) -> Execution:
    """Make the record of an execution; `options` are those of a start."""
    return Execution(
        eid=eid or new_eid(),
        workflow=workflow,
        version=version,
        args=Raw(args),
        seed=bytes(range(16)),
        queue=queue,
        created_by=ADA,
        created_at=at,
        options=StartOptions(**options),
        dispatch_key=key,
    )


def append(claimed: Claimed, seq: int, *, count: int = 1, body: bytes = BODY) -> Append:
    """Append entries under the epoch of an owner."""
    return Append(claimed.record.eid, claimed.epoch, claimed.journal[-1].site, seq, count, body)


def suspend(
    claimed: Claimed,
    *timers: Timer,
    wake: int | None = None,
    epoch: int | None = None,
    blocked: str | None = None,
) -> Suspend:
    """Suspend what is owned; `wake` and `epoch` are what the owner knows."""
    return Suspend(
        claimed.record.eid,
        claimed.epoch if epoch is None else epoch,
        claimed.mail.wake if wake is None else wake,
        tuple(f"timer:{timer.timer_id}" for timer in timers) or ("channel:x",),
        timers,
        blocked,
        claimed.journal[-1].site,
        NOW,
    )


def complete(claimed: Claimed, *, result: bytes = b"42", epoch: int | None = None) -> EndExecution:
    """Complete what is owned."""
    epoch = claimed.epoch if epoch is None else epoch
    site = claimed.journal[-1].site
    eid = claimed.record.eid
    return EndExecution(eid, epoch, "completed", result, None, None, site, NOW + SECOND)


def fail(claimed: Claimed, error_type: str, message: str) -> EndExecution:
    """End what is owned as failed."""
    site = claimed.journal[-1].site
    eid, epoch = claimed.record.eid, claimed.epoch
    return EndExecution(eid, epoch, "failed", None, error_type, message, site, NOW + SECOND)


def release(claimed: Claimed, session: Session, reason: str = "drain") -> Release:
    """Give up what is owned."""
    return Release(claimed.record.eid, session.session, claimed.epoch, reason, NOW)


def send(
    eid: UUID, payload: bytes = b"1", *, channel: str = "x", at: int = NOW, by: Actor = ADA
) -> Send:
    """Send a message."""
    return Send(eid, channel, payload, by, "letter-7", at)


def consume(eid: UUID, seq: int, *, channel: str = "x") -> Consume:
    """Consume a channel up to a number."""
    return Consume(eid, channel, seq)


async def raised(kind: type[E], call: Awaitable[object]) -> E:
    """Give the error of this kind that a call raises; that it raises none is a failure."""
    try:
        await call
    except kind as error:
        return error
    message = f"{kind.__name__} was not raised"
    raise AssertionError(message)


def entries(rows: Sequence[JournalRow]) -> list[AnyEntry]:
    """Unpack the rows of a journal."""
    return [entry for row in rows for entry in unpack(row.body)]
