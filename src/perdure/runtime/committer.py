"""How do many transitions become one transaction? Group commit, one loop per engine.

The committer takes everything that waits, writes it at once, answers everyone, and repeats; it
adds no delay of its own. A runner has at most one transition with it, so when one is refused
nothing of that runner can stand behind the hole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from perdure.errors import StoreUnavailable
from perdure.model.provenance import Site
from perdure.ports.clock import Clock, now_us
from perdure.ports.commands import Command, Outcome, Refused, Transition
from perdure.ports.store import Committed, SessionGone, Store

BATCH_MAX = 2_000
RETRY_FIRST_S = 0.01
RETRY_MAX_S = 1.0

log = logging.getLogger("perdure.committer")


class Source(Protocol):
    """Something that has a transition to write when it is asked."""

    def take(self) -> Transition | None:
        """Give what is to be written now, or ``None``."""

    def settle(self, outcome: Outcome) -> None:
        """Take the answer."""

    def fail(self, error: Exception) -> None:
        """Take the news that `settle` raised."""


class _Request:
    """A transition of an operator, who waits for its outcome."""

    def __init__(self, transition: Transition, future: asyncio.Future[Outcome]) -> None:
        self._transition = transition
        self._future = future

    def take(self) -> Transition | None:
        return None if self._future.done() else self._transition

    def settle(self, outcome: Outcome) -> None:
        if not self._future.done():
            self._future.set_result(outcome)

    def fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class Committer:
    """Writes the transitions of one engine."""

    def __init__(
        self, store: Store, clock: Clock, site: Site, stirred: Callable[[Committed], None]
    ) -> None:
        """Prepare a committer.

        Args:
            store: where to write.
            clock: for waits between tries.
            site: where this engine runs.
            stirred: is told after each batch what it did to others.
        """
        self._store = store
        self._clock = clock
        self._site = site
        self._stirred = stirred
        self._sources: dict[Source, None] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._session: int | None = None
        self._batch_no = 0
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="perdure-committer")

    async def stop(self) -> None:
        """Write what waits, then end; if the store is unavailable, what waits is given up."""
        self._stopping = True
        await self.idle()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._session is not None:
            session, self._session = self._session, None
            try:
                await self._store.close_session(session)
            except StoreUnavailable as error:
                log.warning("%s; the session of this engine is left behind", error)

    def touch(self, source: Source) -> None:
        """Ask `source` for a transition with the next batch."""
        if source not in self._sources:
            self._sources[source] = None
            self._idle.clear()
            self._wake.set()

    def apply(self, *commands: Command) -> asyncio.Future[Outcome]:
        """Apply commands in one transition; the future gives its outcome when it is durable.

        Raises:
            StoreUnavailable: from the future. Nothing was applied, unless the store vanished right
                after it did: then nobody can know yet.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if self._stopping:
            future.set_exception(StoreUnavailable("the engine is closed; open it again"))
            return future
        self.touch(_Request(Transition(commands), future))
        return future

    async def idle(self) -> None:
        """Return when nothing waits to be written."""
        await self._idle.wait()

    async def _run(self) -> None:
        while True:
            if not self._sources:
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
            await asyncio.sleep(0)  # what this turn of the loop still brings rides along
            await self._write()

    async def _write(self) -> None:
        sources: list[Source] = []
        transitions: list[Transition] = []
        while self._sources and len(sources) < BATCH_MAX:
            source = next(iter(self._sources))
            del self._sources[source]
            transition = source.take()
            if transition is not None:
                sources.append(source)
                transitions.append(transition)
        if sources:
            try:
                await self._commit(sources, transitions)
            except Exception as error:
                log.exception("a batch cannot be applied; those that follow can")
                _refuse_requests(sources, error)
                lost = Refused("lease_lost", str(error))
                await self._give(sources, Committed((lost,) * len(sources)))

    async def _commit(self, sources: list[Source], transitions: list[Transition]) -> None:
        delay = RETRY_FIRST_S
        while sources:
            try:
                committed: Committed | None = await self._try(transitions)
            except SessionGone:
                self._session = None
                continue
            except StoreUnavailable as error:
                if delay == RETRY_FIRST_S:
                    log.warning("%s; executions wait and go on when it works again", error)
                committed = await self._look_up(sources, error)
                if committed is None:
                    _refuse_requests(sources, error)
                    sources, transitions = _without_requests(sources, transitions)
            if committed is not None:
                await self._give(sources, committed)
                return
            if self._stopping:
                return
            if sources:
                await self._clock.sleep(delay)
            delay = min(delay * 2, RETRY_MAX_S)

    async def _look_up(self, sources: list[Source], error: StoreUnavailable) -> Committed | None:
        """Find out how a commit ended that failed: maybe it was applied, and its answer was lost.

        An empty batch under the same number gets that answer, or uses the number up. Operators
        learn of `error` as soon as the store cannot be asked; runners wait until it can.

        Returns:
            The answer, or ``None`` if nothing was applied.
        """
        delay = RETRY_FIRST_S
        while not self._stopping:
            try:
                committed = await self._try([])
            except SessionGone:
                self._session = None
                return None
            except StoreUnavailable:
                _refuse_requests([*sources, *self._sources], error)
                await self._clock.sleep(delay)
                delay = min(delay * 2, RETRY_MAX_S)
            else:
                return committed if committed.outcomes else None
        return None

    async def _give(self, sources: list[Source], committed: Committed) -> None:
        """Give the answers. Functions are driven by them, and never inside a task."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._answer, sources, committed, answered)
        await answered

    def _answer(
        self, sources: list[Source], committed: Committed, answered: asyncio.Future[None]
    ) -> None:
        try:
            for source, outcome in zip(sources, committed.outcomes, strict=True):
                try:
                    source.settle(outcome)
                except Exception as error:  # noqa: BLE001 - it is told, and the others go on
                    source.fail(error)
            self._stirred(committed)
        finally:
            if not answered.done():
                answered.set_result(None)

    async def _try(self, transitions: list[Transition]) -> Committed:
        if self._session is None:
            opened = await self._store.open_session(self._site, None, now_us(self._clock))
            self._session = opened.session
            self._batch_no = 0
        committed = await self._store.commit(self._session, self._batch_no + 1, transitions)
        self._batch_no += 1
        return committed


def _refuse_requests(sources: list[Source], error: Exception) -> None:
    """Tell operators that nothing was stored; runners wait."""
    for source in sources:
        if isinstance(source, _Request):
            source.fail(error)


def _without_requests(
    sources: list[Source], transitions: list[Transition]
) -> tuple[list[Source], list[Transition]]:
    """Leave those out who were told already."""
    kept = [
        (source, transition)
        for source, transition in zip(sources, transitions, strict=True)
        if not isinstance(source, _Request)
    ]
    return [source for source, _ in kept], [transition for _, transition in kept]
