"""Where does the synchronous code run? Inline, or in a thread that owns its connection."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

Job = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, asyncio.Future[Any]]


class Thread:
    """One thread that does jobs in their order; a job is done even if nobody waits any more."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call a function in the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((function, args, loop, future))
        return future

    def close(self) -> None:
        """End the thread when its jobs are done, and wait for that."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, args, loop, future = job
            result: Any = None
            failure: BaseException | None = None
            try:
                result = function(*args)
            except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, future, result, failure)


class Inline:
    """Calls at once, on the event loop: for memory."""

    def call(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call a function."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - it is raised where the call is awaited
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    def close(self) -> None:
        """There is nothing to close."""


def _settle(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
