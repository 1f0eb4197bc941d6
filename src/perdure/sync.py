"""How is perdure used without ``await``? The same API, over the async core in a thread of its own.

Every method here is the async one, lifted: it has the same parameters, types and docstring, and no
body of its own. Any thread may call it; the calls run in the event loop of the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.errors import InvalidArgument, PerdureError
from perdure.model.provenance import Site
from perdure.ports import projection as ports
from perdure.ports.clock import Clock
from perdure.runtime import consumer as consumers
from perdure.runtime import engine as core
from perdure.runtime import queues as line
from perdure.runtime import reviews as inbox
from perdure.runtime.config import EngineConfig
from perdure.runtime.registry import Registry
from perdure.runtime.worker import Worker as AsyncWorker
from perdure.wiring import open as open_async

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

_END = object()


class LoopThread:
    """A thread with an event loop, in which the calls of other threads run."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="perdure-engine", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for what comes of it.

        If the wait is interrupted, the coroutine is cancelled.

        Raises:
            InvalidArgument: if the caller is a process or a thread in which it cannot run.
            PerdureError: if the engine is closed.
        """
        try:
            self._check()
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _check(self) -> None:
        if os.getpid() != self._pid:
            message = (
                "this engine was opened in another process, before a fork; open one in this process"
            )
            raise InvalidArgument(message)
        if threading.current_thread() is self._thread:
            message = (
                "the engine's own thread would wait for itself; call it from a sync step, or use "
                "the async engine"
            )
            raise InvalidArgument(message)
        if self._closed:
            message = "the engine is closed; open it again"
            raise PerdureError(message)

    def close(self) -> None:
        """End the loop and the thread."""
        self._closed = True
        if os.getpid() == self._pid:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Facade:
    """What is called without ``await``: an object of the async core, and the thread it lives in."""

    def __init__(self, inner: Any, thread: LoopThread) -> None:
        """Wrap `inner`."""
        self._inner = inner
        self._thread = thread


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade, P], T]:
    """Lift a method that is awaited to one that is called."""
    name = method.__name__

    def call(self: Facade, /, *args: P.args, **kwargs: P.kwargs) -> T:
        lifted: Coroutine[Any, Any, T] = getattr(self._inner, name)(*args, **kwargs)
        return self._thread.run(lifted)

    functools.update_wrapper(call, method)
    return call


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Facade, P], Iterator[T]]:
    """Lift a method that gives an asynchronous iterator to one that gives a plain one."""
    name = method.__name__

    def call(self: Facade, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        iterator: Any = getattr(self._inner, name)(*args, **kwargs)

        async def following() -> Any:
            return await anext(iterator, _END)

        try:
            while (item := self._thread.run(following())) is not _END:
                yield item
        finally:
            self._thread.run(iterator.aclose())

    functools.update_wrapper(call, method)
    return call


class Worker(Facade):
    """A worker in the engine's thread; see ``perdure.Worker``."""

    run_once = blocking(AsyncWorker.run_once)
    run_until_idle = blocking(AsyncWorker.run_until_idle)
    drain = blocking(AsyncWorker.drain)

    @property
    def worker_id(self) -> str:
        """Its name, which provenance shows."""
        name: str = self._inner.worker_id
        return name


class Reviews(Facade):
    """The reviews that workflows have asked for; see ``perdure.Engine.reviews``."""

    pending = blocking(inbox.Reviews.pending)
    decide = blocking(inbox.Reviews.decide)
    decide_result = blocking(inbox.Reviews.decide_result)


class Queues(Facade):
    """What stands on the queues; see ``perdure.Engine.queues``."""

    pending = blocking(line.Queues.pending)
    depth = blocking(line.Queues.depth)


class Projection(Facade):
    """The view of the control log; see ``perdure.Engine.projection``."""

    refresh = blocking(ports.Projection.refresh)
    wait_for = blocking(ports.Projection.wait_for)
    executions = blocking(ports.Projection.executions)
    counts = blocking(ports.Projection.counts)
    reviews = blocking(ports.Projection.reviews)
    review = blocking(ports.Projection.review)
    announcements = blocking(ports.Projection.announcements)
    tasks = blocking(ports.Projection.tasks)
    children = blocking(ports.Projection.children)
    rebuild = blocking(ports.Projection.rebuild)


class Held(Facade):
    """A task under a lease; see ``perdure.Held``."""

    renew = blocking(consumers.Held.renew)
    deliver = blocking(consumers.Held.deliver)
    ack = blocking(consumers.Held.ack)
    complete = blocking(consumers.Held.complete)
    nack = blocking(consumers.Held.nack)

    @property
    def task(self) -> consumers.DelegateTask:
        """What is asked for."""
        task: consumers.DelegateTask = self._inner.task
        return task

    @property
    def epoch(self) -> int:
        """How often the task was dequeued, from 1."""
        epoch: int = self._inner.epoch
        return epoch

    @property
    def state(self) -> Any:
        """What its holders have kept in it."""
        return self._inner.state

    @property
    def cancel_requested(self) -> bool:
        """Whether the execution asks to stop, as of the last renewal."""
        asked: bool = self._inner.cancel_requested
        return asked


class Consumer(Facade):
    """A consumer of delegated tasks; see ``perdure.Consumer``."""

    def dequeue(self) -> Held | None:
        """Lease the next task of the first queue that has one, or ``None``."""
        held = self._thread.run(self._inner.dequeue())
        return None if held is None else Held(held, self._thread)

    def attach(self) -> list[Held]:
        """Give the tasks that are held under this holder id."""
        return [Held(held, self._thread) for held in self._thread.run(self._inner.attach())]

    def run(
        self,
        handler: Callable[[consumers.DelegateTask, Held], Any],
        *,
        limit: int = 1,
        until_empty: bool = False,
    ) -> None:
        """Answer tasks as they come; the handler runs in a thread, and is never interrupted."""

        async def handle(task: consumers.DelegateTask, held: consumers.Held) -> Any:
            return await asyncio.to_thread(handler, task, Held(held, self._thread))

        self._thread.run(self._inner.run(handle, limit=limit, until_empty=until_empty))

    def stop(self) -> None:
        """Take no further task; `run` returns when the handlers have ended."""

        async def stop() -> None:
            self._inner.stop()

        self._thread.run(stop())


class Engine(Facade):
    """Starts, watches and steers executions, without ``await``. Made by ``perdure.sync.open``."""

    start = blocking(core.Engine.start)
    start_result = blocking(core.Engine.start_result)
    start_many = blocking(core.Engine.start_many)
    result = blocking(core.Engine.result)
    wait = blocking(core.Engine.wait)
    status = blocking(core.Engine.status)
    execution = blocking(core.Engine.execution)
    executions = blocking(core.Engine.executions)
    journal = blocking(core.Engine.journal)
    frames = blocking(core.Engine.frames)
    lease = blocking(core.Engine.lease)
    store_info = blocking(core.Engine.store_info)
    watch = iterating(core.Engine.watch)
    events = iterating(core.Engine.events)
    stream = iterating(core.Engine.stream)
    signal = blocking(core.Engine.signal)
    deliver = blocking(core.Engine.deliver)
    broadcast = blocking(core.Engine.broadcast)
    cancel = blocking(core.Engine.cancel)
    cancel_many = blocking(core.Engine.cancel_many)
    terminate = blocking(core.Engine.terminate)
    terminate_many = blocking(core.Engine.terminate_many)
    resume = blocking(core.Engine.resume)
    resume_many = blocking(core.Engine.resume_many)
    migrate = blocking(core.Engine.migrate)
    migrate_many = blocking(core.Engine.migrate_many)
    retry_failed = blocking(core.Engine.retry_failed)
    retry_failed_many = blocking(core.Engine.retry_failed_many)
    fork = blocking(core.Engine.fork)

    def __init__(self, inner: core.Engine, thread: LoopThread) -> None:
        """Wrap an engine; ``perdure.sync.open`` does that."""
        super().__init__(inner, thread)
        self.reviews = Reviews(inner.reviews, thread)
        self.queues = Queues(inner.queues, thread)
        self.projection = Projection(inner.projection, thread)

    @contextlib.contextmanager
    def _worker(self, make: Callable[[], AsyncWorker]) -> Iterator[Worker]:
        async def enter() -> AsyncWorker:
            return await make().__aenter__()

        worker = self._thread.run(enter())
        try:
            yield Worker(worker, self._thread)
        finally:
            self._thread.run(worker.drain())

    def worker(
        self,
        *,
        queues: Sequence[str] = ("default",),
        max_executions: int = 1_000,
        max_steps: int = 256,
        upkeep: bool = True,
        worker_id: str | None = None,
    ) -> AbstractContextManager[Worker]:
        """Work inside a ``with`` block, in the engine's thread; see ``perdure.Engine.worker``."""
        return self._worker(
            lambda: self._inner.worker(
                queues=queues,
                max_executions=max_executions,
                max_steps=max_steps,
                upkeep=upkeep,
                worker_id=worker_id,
            )
        )

    def consumer(
        self, queues: Sequence[str], *, holder: str, ttl: timedelta | float = 300
    ) -> Consumer:
        """Make a consumer of delegated tasks; see ``perdure.Engine.consumer``."""

        async def make() -> consumers.Consumer:
            made: consumers.Consumer = self._inner.consumer(queues, holder=holder, ttl=ttl)
            return made

        return Consumer(self._thread.run(make()), self._thread)


@contextlib.contextmanager
def open(  # noqa: A001 - `perdure.sync.open` is the name that users know
    url: str,
    registry: Registry,
    *,
    config: EngineConfig | None = None,
    site: Site | None = None,
    clock: Clock | None = None,
) -> Iterator[Engine]:
    """Open an engine that is used without ``await``; see ``perdure.open``.

    Any thread may use it. A process that forks opens one after the fork.

    Args:
        url: ``memory:``, or ``sqlite:///perdure.db``.
        registry: the workflows that this process knows.
        config: settings; the defaults fit one machine.
        site: where this process runs; found out by default.
        clock: the source of time; the machine's by default.

    Raises:
        InvalidArgument: if the URL is of no known form.
        StoreUnavailable: if the store cannot be opened.

    Example:
        ``with perdure.sync.open("sqlite:///perdure.db", registry) as engine: …``
    """
    thread = LoopThread()
    try:
        opened = open_async(url, registry, config=config, site=site, clock=clock)

        async def enter() -> core.Engine:
            return await opened.__aenter__()

        async def leave() -> None:
            await opened.__aexit__(None, None, None)

        engine = thread.run(enter())
        try:
            yield Engine(engine, thread)
        finally:
            thread.run(leave())
    finally:
        thread.close()
