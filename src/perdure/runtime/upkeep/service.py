"""What is a background service? Something with a start, a stop and one pass that can be run alone.

Stopping twice, or before starting, is fine. A pass that fails is logged and repeated later.
"""

from __future__ import annotations

import asyncio
import logging

from perdure.errors import StoreUnavailable
from perdure.ports.clock import Clock
from perdure.runtime.trouble import Trouble

log = logging.getLogger("perdure.upkeep")


class Service:
    """The contract of every upkeep service; a subclass implements `run_once` and `pause`."""

    def __init__(self, clock: Clock) -> None:
        """Prepare a service that waits on `clock` between its passes."""
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    async def run_once(self) -> int:
        """Make one pass, and tell how much it did."""
        raise NotImplementedError

    async def pause(self) -> float:
        """Tell how many seconds to wait until the next pass."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to make passes. Starting twice is fine."""
        if self._task is None:
            name = f"perdure-{type(self).__name__.lower()}"
            self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    async def stop(self) -> None:
        """Make no further pass."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def hurry(self) -> None:
        """Ask again how long to wait: there is less time than it seemed."""
        self._hurry.set()

    async def _wait(self, seconds: float) -> bool:
        """Wait until the next pass, or until there is less time; tell whether it is time."""
        waits = [
            asyncio.ensure_future(self._clock.sleep(seconds)),
            asyncio.ensure_future(self._hurry.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return waits[0].done()
        finally:
            for wait in waits:
                wait.cancel()

    async def _run(self) -> None:
        trouble = Trouble(log, f"{type(self).__name__}: ")
        while True:
            self._hurry.clear()
            try:
                await self.run_once()
                while not await self._wait(await self.pause()):
                    self._hurry.clear()
                continue
            except StoreUnavailable as error:
                trouble.tell(error)
                seconds = 1.0
            except Exception:
                log.exception("%s: a pass failed; the next one follows", type(self).__name__)
                seconds = 1.0
            await self._clock.sleep(seconds)
