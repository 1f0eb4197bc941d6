"""How does a worker stay alive in the eyes of others? Its session beats every third of its ttl.

On a store that allows it the beat runs in a thread with a connection of its own, so that a busy
event loop cannot lose it. A failed beat is repeated until the ttl is over; then the session counts
as gone.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable

from perdure.errors import StoreUnavailable
from perdure.ports.clock import Clock, SystemClock
from perdure.ports.store import Beat, SessionGone, Store

BEATS_PER_TTL = 3
TRIES_PER_TTL = 30


class Heart:
    """Beats for one session until it is stopped or the session is gone."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        session: int,
        ttl: float,
        *,
        beaten: Callable[[Beat], None],
        gone: Callable[[], None],
    ) -> None:
        """Prepare a heart.

        Args:
            store: where the session lives.
            clock: what the beat is measured by.
            session: the session.
            ttl: its time to live in seconds.
            beaten: is given the answer to each beat, on the event loop.
            gone: is called once, on the event loop, when the session is gone.
        """
        self._store = store
        self._clock = clock
        self._session = session
        self._ttl = ttl
        self._last = 0.0
        self._beaten = beaten
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to beat."""
        own_beat = self._store.own_beat() if isinstance(self._clock, SystemClock) else None
        if own_beat is None:
            self._task = self._loop.create_task(self._beat_in_loop(), name="perdure-heart")
            return
        self._thread = threading.Thread(
            target=self._beat_in_thread, args=(own_beat,), name="perdure-heart", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Stop beating. Stopping twice, or before starting, is fine."""
        self._stopped.set()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        thread, self._thread = self._thread, None
        if thread is not None:
            await self._loop.run_in_executor(None, thread.join)

    async def _beat_in_loop(self) -> None:
        pause: float | None = self._begin()
        while pause is not None:
            await self._clock.sleep(pause)
            began = self._clock.monotonic()
            try:
                answer: Beat | Exception = await self._store.beat(self._session)
            except (StoreUnavailable, SessionGone) as error:
                answer = error
            pause = self._next(began, answer)

    def _beat_in_thread(self, own_beat: Callable[[int], Beat]) -> None:
        pause: float | None = self._begin()
        while pause is not None and not self._stopped.wait(pause):
            began = self._clock.monotonic()
            try:
                answer: Beat | Exception = own_beat(self._session)
            except (StoreUnavailable, SessionGone) as error:
                answer = error
            pause = self._next(began, answer)

    def _begin(self) -> float:
        """Give the seconds until the first beat; the session was opened just now."""
        self._last = self._clock.monotonic()
        return self._ttl / BEATS_PER_TTL

    def _next(self, began: float, answer: Beat | Exception) -> float | None:
        """Tell how a beat that began at `began` went, and decide when the next one is due.

        Returns:
            The seconds until then; ``None`` if the session is gone.
        """
        if isinstance(answer, Beat):
            self._last = began
            self._tell(functools.partial(self._beaten, answer))
            return self._ttl / BEATS_PER_TTL
        if isinstance(answer, StoreUnavailable) and began - self._last < self._ttl:
            return self._ttl / TRIES_PER_TTL
        self._tell(self._gone)
        return None

    def _tell(self, callback: Callable[[], None]) -> None:
        if not self._stopped.is_set():
            try:
                self._loop.call_soon_threadsafe(callback)
            except RuntimeError:
                self._stopped.set()  # the loop is closed
