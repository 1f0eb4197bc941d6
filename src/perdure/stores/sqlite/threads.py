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
        self._unanswered = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether it has answered every call; asked on the event loop."""
        return self._unanswered == 0

    def call(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call a function in the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._unanswered += 1
        self._jobs.put((function, args, loop, future))
        return future

    def end(self, last: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function as the last one, and end."""
        future = self.call(last)
        self._jobs.put(None)
        return future

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(*job)
            del job  # or what it gave would be kept until the next one comes

    def _do(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(self._settle, future, result, failure)

    def _settle(
        self, future: asyncio.Future[Any], result: Any, failure: BaseException | None
    ) -> None:
        self._unanswered -= 1
        if future.done():
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)


class Inline:
    """Calls at once, on the event loop: for memory."""

    idle = True

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

    def end(self, last: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function as the last one."""
        return self.call(last)
