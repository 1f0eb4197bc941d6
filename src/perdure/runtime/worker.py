"""How does a worker work? It dequeues, owns, runs and releases executions, and beats meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.errors import InvalidArgument, StoreUnavailable
from perdure.model.ids import QUEUE, check_name, is_text
from perdure.model.provenance import Actor
from perdure.ports.clock import reader_us
from perdure.ports.commands import Refused
from perdure.ports.store import Claimed, Committed, SessionGone
from perdure.runtime.code.context import Context
from perdure.runtime.detached import DetachedSteps
from perdure.runtime.kept import Kept
from perdure.runtime.membership import RETRY_S, Membership
from perdure.runtime.runner import Runner
from perdure.runtime.slots import Slots
from perdure.runtime.threads import Threads
from perdure.runtime.trouble import Trouble
from perdure.runtime.upkeep.sweeper import Sweeper

if TYPE_CHECKING:
    from perdure.runtime.attempt import Attempt
    from perdure.runtime.engine import Engine
    from perdure.runtime.frames import StepCall

DEQUEUE_MAX = 200
THREADS_MAX = min(32, 4 * (os.cpu_count() or 1))
MISSING_INTERVAL_S = 1.0
LAST_WRITES_S = 5.0

log = logging.getLogger("perdure.worker")
_numbers = itertools.count(1)


class Worker(Membership):
    """Runs executions. Make one with ``engine.worker()`` and use it as an async context manager.

    Attributes:
        worker_id: its name, which provenance shows.
        kept: the executions that it has suspended and may go on with.
        detached: the steps that it runs for executions that others own.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        queues: Sequence[str],
        max_executions: int,
        max_steps: int,
        upkeep: bool,
        worker_id: str | None,
        background: bool = True,
    ) -> None:
        """Prepare a worker; see ``Engine.worker``. Without `background` it runs when it is told."""
        if isinstance(queues, str) or not queues:
            message = f"queues is {queues!r}; give a list of queue names, for example ['default']"
            raise InvalidArgument(message)
        for name, value in (("max_executions", max_executions), ("max_steps", max_steps)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                message = f"{name} is {value!r}; it is a whole number of at least 1"
                raise InvalidArgument(message)
        if worker_id is not None and (not is_text(worker_id) or not worker_id):
            message = f"worker_id is {worker_id!r}; it is a text that is not empty"
            raise InvalidArgument(message)
        super().__init__()
        self._engine = engine
        self._queues = tuple(check_name("queue", queue, QUEUE) for queue in queues)
        self._max_executions = max_executions
        self.background = background
        host_site = engine.site
        self.worker_id = worker_id or f"{host_site.host}-{host_site.pid}-{next(_numbers)}"
        self._site = msgspec.structs.replace(host_site, worker_id=self.worker_id)
        self.config = engine.config
        self.values = engine.values
        self.clock = engine.clock
        self.now_us = reader_us(engine.clock)
        self.committer = engine.committer
        self.alarms = engine.alarms
        self.registry = engine.registry
        self.actor = Actor.worker(self.worker_id)
        self.store = engine.store
        self._async_slots = Slots(max_steps)
        self._thread_slots = Slots(min(max_steps, THREADS_MAX))
        self._threads = Threads()
        self._runners: dict[UUID, Runner] = {}
        self.kept = Kept(engine.config.warm_executions)
        self._begun = 0
        self._dequeuing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._stopping = False
        self._closed = asyncio.Event()
        self._named: set[tuple[str, str]] = set()
        self._asked_missing = float("-inf")
        self._asks_again = False
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.sweeper = Sweeper(self.store, self.committer, self.clock)
        self.detached = DetachedSteps(self, self._queues)
        self._upkeep = upkeep

    # -- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open a session and begin to work."""
        await self._open_session()
        self._engine.attach(self)
        if self.background:
            self._loop_task = self.spawn(self._work())
            if self._upkeep:
                self.sweeper.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drain, and close the session."""
        await self.drain()

    async def drain(self) -> None:
        """Take no new work, let running attempts finish, hand the executions back, and stop.

        Attempts have ``config.drain`` seconds; those that still run then are abandoned. Draining
        twice is fine. If this call is cancelled the worker stops at once, as a crash would.
        """
        if not self._stopping:
            self._stopping = True
            try:
                await self._hand_back()
            finally:
                await self._close()
        await self._closed.wait()

    async def _hand_back(self) -> None:
        await self.sweeper.stop()
        self._wake.set()
        if self._loop_task is not None:
            await asyncio.wait([self._loop_task])
        async with self._dequeuing:
            for runner in list(self._runners.values()):
                runner.drain(at_once=self.config.drain == 0)
            self.detached.drain(at_once=self.config.drain == 0)
        if not await self._emptied(self.config.drain):
            for runner in list(self._runners.values()):
                runner.drain(at_once=True)
            self.detached.drain(at_once=True)
            if not await self._emptied(LAST_WRITES_S):
                self._lose_all()
        await self._stop_heart()
        try:
            await self.store.close_session(self.session)
        except StoreUnavailable as unavailable:
            log.warning("the session is left to expire: %s", unavailable)

    async def kill(self) -> None:
        """Stop without another write, as a crash would: the session is left to expire."""
        self._stopping = True
        await self.sweeper.stop()
        await self._close()

    async def _close(self) -> None:
        """End everything that still runs, without a write."""
        for task in self._tasks:
            task.cancel()
        self._lose_all()
        self._threads.close()
        self._engine.detach(self)
        self._closed.set()
        await self._stop_heart()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _emptied(self, seconds: float) -> bool:
        """Wait until nothing is owned any more, at most for a while; tell whether that is so."""
        alarm = self.alarms.after(seconds, self._empty.set)
        await self._empty.wait()
        alarm.cancel()
        if self.owns:
            self._empty.clear()
        return not self.owns

    @property
    def owns(self) -> bool:
        """Whether it owns an execution, or runs a step for one."""
        return bool(self._runners or self.detached.running)

    # -- work --------------------------------------------------------------------------------

    async def _work(self) -> None:
        trouble = Trouble(log, "cannot dequeue: ")
        while not self._stopping:
            self._wake.clear()
            try:
                found = await self.run_once()
            except StoreUnavailable as error:
                trouble.tell(error)
                await self.clock.sleep(RETRY_S)
                continue
            except Exception:
                log.exception("a dequeue failed; the next one follows")
                await self.clock.sleep(RETRY_S)
                continue
            if not found:
                await self._wake.wait()

    async def run_once(self) -> int:
        """Dequeue once, and begin to run what was found.

        Returns:
            How many executions were acquired, and steps of others begun.

        Raises:
            StoreUnavailable: if the store cannot be reached.
        """
        async with self._dequeuing:
            if self._stopping or self.session < 0:
                return 0
            steps = await self.detached.take() if self.registry.steps else 0
            capacity = min(self._max_executions - len(self._runners), DEQUEUE_MAX)
            if capacity <= 0:
                return steps
            try:
                claimed = await self.store.dequeue(
                    self.session,
                    self._queues,
                    self.registry.known,
                    capacity,
                    self.now_us(),
                    kept=self.kept.epochs,
                )
            except SessionGone:
                await self._renew_session()
                return 1
            for one in claimed:
                self._begin(one)
        if claimed:
            self._engine.acquired()
        elif not steps:
            await self._name_missing()
        return steps + len(claimed)

    async def run_until_idle(self) -> None:
        """Run until no task that this worker knows is ready and nothing that it owns moves."""
        while True:
            await self._empty.wait()
            await self.committer.idle()
            begun = self._begun
            if not await self.run_once() and self._begun == begun and not self.owns:
                return

    def _begin(self, claimed: Claimed) -> None:
        stale = self._runners.get(claimed.record.eid)
        if stale is not None:
            stale.lose()
        runner = self.kept.take(claimed.record.eid)
        if runner is not None and claimed.kept:
            runner.resume(claimed)
        else:
            if runner is not None:
                runner.discard()
            runner = Runner(self, claimed)
        self._runners[runner.eid] = runner
        self._begun += 1
        self._empty.clear()
        self._loop.call_soon(self._begin_runner, runner)  # never inside a task: it drives

    @staticmethod
    def _begin_runner(runner: Runner) -> None:
        try:
            runner.begin()
        except Exception as error:  # noqa: BLE001 - a defect must not leave a runner that is stuck
            runner.fail(error)

    async def _name_missing(self) -> None:
        """Say once for each workflow version that tasks wait for it and this worker lacks it."""
        now = self.clock.monotonic()
        early = self._asked_missing + MISSING_INTERVAL_S - now
        if early > 0:
            if not self._asks_again:
                self._asks_again = True
                self.alarms.after(early, self.poke)
            return
        self._asked_missing, self._asks_again = now, False
        known = self.registry.known | {(step, "") for step in self.registry.steps}
        for missing in await self.store.missing(self._queues, known):
            pair = (missing.workflow, missing.version)
            if pair not in self._named:
                self._named.add(pair)
                what = (
                    f"workflow {pair[0]!r} version {pair[1]!r}" if pair[1] else f"step {pair[0]!r}"
                )
                log.warning(
                    "tasks wait for %s, which this worker does not know; they stay on their queue "
                    "until a worker that has it registered comes",
                    what,
                )

    # -- what the engine tells ---------------------------------------------------------------

    def poke(self) -> None:
        """Look for work: a task may have become ready."""
        self._wake.set()

    def stirred(self, committed: Committed) -> None:
        """Take notice of what a commit of this process did to executions."""
        if committed.enqueued:
            self.poke()
        for eid in committed.woken:
            if (runner := self._runners.get(eid)) is not None:
                runner.waiting.notice()
        for eid in committed.closed:
            if (runner := self._runners.get(eid)) is not None:
                log.info("execution %s was closed by an operator", eid)
                runner.lose()
            self.kept.discard(eid)
            self.detached.lose_execution(eid)
        if committed.heard:
            for runner in list(self._runners.values()):
                runner.waiting.hear(committed.heard)

    async def look_around(self) -> None:
        """Another process may have written: look for work, and for mail of what waits here."""
        self.poke()
        waiting = [runner.eid for runner in self._runners.values() if runner.waiting.waits.frames]
        if not waiting:
            return
        for eid, wake in (await self.store.wakes(waiting)).items():
            runner = self._runners.get(eid)
            if runner is not None:
                runner.waiting.notice(wake)

    # -- what a runner asks ------------------------------------------------------------------

    def call_function(self, runner: Runner) -> Coroutine[Any, Any, Any]:
        """Call the workflow function of an execution; the coroutine is not started yet."""
        record = runner.record
        workflow = self.registry.get(record.workflow, record.version)
        if workflow is None:
            message = f"workflow {record.workflow!r} version {record.version!r} is not registered"
            raise InvalidArgument(message)
        args = Raw(self.values.open(workflow.its_arguments, record.args))
        return workflow.call(Context(runner), args)

    def slots_for(self, call: StepCall) -> Slots:
        """Give the slots of the kind of step that this call is."""
        return self._async_slots if call.is_async else self._thread_slots

    def slots(self, *, is_async: bool) -> Slots:
        """Give the slots of async steps, or those of sync steps."""
        return self._async_slots if is_async else self._thread_slots

    def start_attempt(self, attempt: Attempt) -> None:
        """Run an attempt in a context of its own."""
        attempt.start(self._loop, self._threads, self._context.copy())

    def changed(self) -> None:
        """Tell who watches that a transaction was written beside the committer."""
        self._engine.acquired()

    def read_mail(self, runner: Runner) -> None:
        """Read what has reached an execution, and tell its runner."""
        self.spawn(self._read_mail(runner))

    async def _read_mail(self, runner: Runner) -> None:
        while runner.alive:
            try:
                mail = await self.store.mail(runner.eid, runner.waiting.channels())
            except StoreUnavailable:  # what it waits for cannot be decided without its mail
                await self.clock.sleep(RETRY_S)
            else:
                runner.waiting.looked(mail)
                return

    def on_loop(self, callback: Callable[[], None]) -> None:
        """Call something at once if this is the thread of the event loop, else soon in it."""
        if threading.get_ident() == self._thread:
            callback()
        else:
            self._loop.call_soon_threadsafe(callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call something on the event loop; any thread may ask."""
        self._loop.call_soon_threadsafe(callback)

    def lease_lost(self, runner: Runner, refused: Refused) -> None:
        """Report that an execution was lost: another worker owns it now, or it was closed."""
        message = "lost execution %s at epoch %d (%s): another worker has it, or it was closed"
        log.warning(message, runner.eid, runner.epoch, refused.code)

    def released(self, runner: Runner) -> None:
        """Forget a runner that owns nothing any more."""
        if self._runners.get(runner.eid) is runner:
            full = len(self._runners) >= self._max_executions
            del self._runners[runner.eid]
            if full:
                self.poke()
            self.check_empty()

    def check_empty(self) -> None:
        """Tell who waits for it if nothing is owned and no step of others runs any more."""
        if not self.owns:
            self._empty.set()

    def keep_busy(self) -> None:
        """Take notice that a step of another execution has begun."""
        self._begun += 1
        self._empty.clear()

    def _lose_all(self) -> None:
        for runner in list(self._runners.values()):
            runner.lose()
        self.detached.lose()
        self.kept.clear()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background that ends with the worker."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
