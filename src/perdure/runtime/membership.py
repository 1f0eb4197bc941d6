"""How does a worker keep its session? It beats, and compares what it owns with what it runs."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure.errors import StoreUnavailable
from perdure.model.provenance import Site
from perdure.ports.commands import Release
from perdure.ports.store import Beat, Owned, SessionGone
from perdure.runtime.heart import Heart

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.ports.clock import Clock
    from perdure.ports.store import Store
    from perdure.runtime.committer import Committer
    from perdure.runtime.config import EngineConfig
    from perdure.runtime.runner import Runner

RETRY_S = 0.5

log = logging.getLogger("perdure.worker")


class Membership:
    """The part of a worker that keeps its session.

    Attributes:
        session: the session that owns what the worker runs; -1 while it has none.
        site: the interned id of where it runs.
    """

    worker_id: str
    background: bool
    config: EngineConfig
    clock: Clock
    committer: Committer
    now_us: Callable[[], int]
    _site: Site
    store: Store
    _runners: dict[UUID, Runner]
    _dequeuing: asyncio.Lock
    _stopping: bool

    def __init__(self) -> None:
        self.session = 0
        self.site = 0
        self._orphans: set[tuple[UUID, int]] = set()
        self._heart: Heart | None = None

    def poke(self) -> None:
        """Look for work."""
        raise NotImplementedError

    def _lose_all(self) -> None:
        raise NotImplementedError

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background that ends with the worker."""
        raise NotImplementedError

    async def _open_session(self) -> None:
        now = self.now_us()
        opened = await self.store.open_session(self._site, self.config.session_ttl, now)
        self.session, self.site = opened.session, opened.site
        if self.background:
            self._heart = Heart(
                self.store,
                self.clock,
                self.session,
                self.config.session_ttl,
                beaten=self.beaten,
                gone=functools.partial(self._session_gone, self.session),
            )
            self._heart.start()

    async def _stop_heart(self) -> None:
        heart, self._heart = self._heart, None
        if heart is not None:
            await heart.stop()

    async def beat_once(self) -> None:
        """Renew the session now."""
        try:
            self.beaten(await self.store.beat(self.session))
        except SessionGone:
            await self._renew_session()

    def beaten(self, beat: Beat) -> None:
        """Compare what the session owns with what runs here."""
        orphans: set[tuple[UUID, int]] = set()
        for owned in beat.owned:
            runner = self._runners.get(owned.eid)
            if runner is not None and runner.epoch == owned.epoch:
                runner.waiting.notice(owned.wake)
            elif (owned.eid, owned.epoch) in self._orphans:
                self.spawn(self._release_orphan(owned))
            else:
                orphans.add((owned.eid, owned.epoch))
        self._orphans = orphans
        held = {owned.eid for owned in beat.owned}
        missing = [runner for runner in self._runners.values() if runner.eid not in held]
        if missing:
            self.spawn(self._check_missing(missing))

    async def _check_missing(self, runners: list[Runner]) -> None:
        """Lose what a beat did not show, unless it was acquired since: others have fenced it."""
        for runner in runners:
            try:
                lease = await self.store.lease(runner.eid)
            except StoreUnavailable:
                return  # the next beat shows it again
            if runner.alive and (lease is None or lease.epoch != runner.epoch):
                log.warning("execution %s was taken from this worker", runner.eid)
                runner.lose()

    async def _release_orphan(self, owned: Owned) -> None:
        """Release what two beats showed: the answer of the dequeue that acquired it was lost."""
        async with self._dequeuing:  # unless that answer is only slow
            runner = self._runners.get(owned.eid)
            if runner is not None and runner.epoch == owned.epoch:
                return
            log.warning("releasing execution %s, which nobody runs", owned.eid)
            now = self.now_us()
            self.committer.apply(
                Release(owned.eid, self.session, owned.epoch, "reconcile", now)
            ).add_done_callback(_retrieve)

    def _session_gone(self, session: int) -> None:
        self.spawn(self._renew_session_alone(session))

    async def _renew_session_alone(self, session: int) -> None:
        async with self._dequeuing:
            if self.session == session:  # else a dequeue has learned it first
                await self._renew_session()
        self.poke()

    async def _renew_session(self) -> None:
        """The session has expired: drop everything without a write, and open a new one."""
        log.warning("worker %s: its session has expired; it opens a new one", self.worker_id)
        self.session = -1
        self._lose_all()
        await self._stop_heart()
        while not self._stopping:
            try:
                await self._open_session()
            except StoreUnavailable:
                await self.clock.sleep(RETRY_S)
            else:
                return


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Look at the outcome of a courtesy, so that its failure is not reported as unseen."""
    if not future.cancelled():
        future.exception()
