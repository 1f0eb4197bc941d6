"""What can an operator or an application do? Start, wait, look, signal; and run workers.

The engine commands through the committer and reads through the store. It holds no state of an
execution: any number of engines may work on one store.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from perdure.errors import (
    ExecutionCancelled,
    ExecutionFailed,
    ExecutionTerminated,
    InvalidArgument,
    PerdureError,
    UnknownExecution,
    WaitTimeout,
)
from perdure.model.execution import (
    ExecutionRow,
    ExecutionStatus,
    StartOptions,
    StartResult,
)
from perdure.model.ids import parse_eid
from perdure.model.instants import duration_us
from perdure.model.provenance import Actor, Site
from perdure.ports.clock import Clock, now_us
from perdure.ports.commands import CreateExecution, Outcome, Refused
from perdure.ports.projection import Projection
from perdure.ports.store import Committed, Store
from perdure.runtime import requests
from perdure.runtime.alarms import Alarms
from perdure.runtime.changes import Changes
from perdure.runtime.committer import Committer
from perdure.runtime.config import EngineConfig
from perdure.runtime.consumer import Consumer
from perdure.runtime.operators import Operators
from perdure.runtime.queues import Queues
from perdure.runtime.registry import Registry
from perdure.runtime.requests import ENGINE
from perdure.runtime.reviews import Reviews
from perdure.runtime.worker import Worker

WorkflowRef = Callable[..., Any] | str


class Engine(Operators):
    """Starts, watches and steers executions. Made by ``perdure.open``."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        projection: Projection,
        config: EngineConfig,
        site: Site,
        clock: Clock,
    ) -> None:
        """Make an engine over an open store; ``perdure.open`` does that and closes it again."""
        self.store = store
        self.projection = projection
        self.registry = registry
        self.config = config
        self.values = config.values()
        self.site = site
        self.clock = clock
        self.committer = Committer(store, clock, site, self._stirred)
        self.alarms = Alarms(clock)
        self.reviews = Reviews(self)
        self.queues = Queues(self)
        self._workers: list[Worker] = []
        self._changes = Changes(store, clock, self._look_around)
        self.committer.start()

    # -- life --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop the workers, write what waits, and close the projection and the store."""
        for worker in list(self._workers):
            await worker.drain()
        await self._changes.stop()
        await self.committer.stop()
        self.alarms.close()
        await self.projection.close()
        await self.store.close()

    def worker(
        self,
        *,
        queues: Sequence[str] = ("default",),
        max_executions: int = 1_000,
        max_steps: int = 256,
        upkeep: bool = True,
        worker_id: str | None = None,
    ) -> Worker:
        """Make a worker of this process; it works inside ``async with``, and drains at its end.

        Args:
            queues: the queues it takes work from, in this order.
            max_executions: how many executions it owns at most at one time.
            max_steps: how many attempts run at most at one time; sync steps have at most four
                threads per core, and 32.
            upkeep: whether it also fires timers and recovers executions of dead workers.
            worker_id: its name in provenance; made of host, process id and a number by default.

        Raises:
            InvalidArgument: if a value is out of range.
        """
        return Worker(
            self,
            queues=queues,
            max_executions=max_executions,
            max_steps=max_steps,
            upkeep=upkeep,
            worker_id=worker_id,
        )

    def consumer(
        self, queues: Sequence[str], *, holder: str, ttl: timedelta | float = 300
    ) -> Consumer:
        """Make a consumer of delegated tasks.

        Args:
            queues: the queues it takes tasks from, in this order.
            holder: under which id it holds tasks; one that stays the same over restarts lets it
                attach to what it held.
            ttl: how long a lease lasts without a renewal, a timedelta or seconds.

        Raises:
            InvalidArgument: if a value is out of range.

        Example:
            ``await engine.consumer(["agents"], holder="agent-1").run(answer)``
        """
        self._changes.start()
        seconds = duration_us("ttl", ttl, allow_zero=False) / 1e6
        return Consumer(self, queues, holder=holder, ttl=seconds)

    def next_change(self) -> asyncio.Future[None]:
        """Give a future that is done when something is written after this call."""
        return self._changes.next()

    def attach(self, worker: Worker) -> None:
        """Count a worker among those that are told of changes."""
        self._workers.append(worker)
        if worker.background:
            self._changes.start()

    def detach(self, worker: Worker) -> None:
        """Tell a worker no more."""
        if worker in self._workers:
            self._workers.remove(worker)

    # -- start -------------------------------------------------------------------------------

    async def start(
        self,
        workflow: WorkflowRef,
        /,
        *args: Any,
        key: str | None = None,
        queue: str | None = None,
        options: StartOptions | None = None,
        version: str | None = None,
        connection: object = None,
        by: Actor = ENGINE,
        **kwargs: Any,
    ) -> UUID:
        """Start an execution and return its id; it is durable then.

        Args:
            workflow: the registered function, or the name of a workflow.
            *args: the function's arguments, without the context.
            key: a dispatch key: a second start with the same key starts nothing and gives the id
                of the first.
            queue: the queue it stands on, if not the workflow's own.
            options: priority, tags, baggage, and when it may start.
            version: the version to run; the one registered last by default.
            connection: a connection of your own to the store's database: the execution is created
                in its transaction, and exists if and only if you commit.
            by: who starts it.
            **kwargs: the function's keyword arguments.

        Raises:
            UnknownWorkflow: if nothing registered fits.
            InvalidArgument: if an argument does not fit the function; it names the parameter.
            Conflict: if the key belongs to an execution of another workflow.
            StoreUnavailable: if the store cannot write. Nothing was stored, unless it vanished
                right after it did: start again with the same `key`, and it is one execution.

        Example:
            ``eid = await engine.start(invoice_approval, "INV-7", key="invoice:7")``
        """
        result = await self.start_result(
            workflow,
            *args,
            key=key,
            queue=queue,
            options=options,
            version=version,
            connection=connection,
            by=by,
            **kwargs,
        )
        return result.eid

    async def start_result(
        self,
        workflow: WorkflowRef,
        /,
        *args: Any,
        key: str | None = None,
        queue: str | None = None,
        options: StartOptions | None = None,
        version: str | None = None,
        connection: object = None,
        by: Actor = ENGINE,
        **kwargs: Any,
    ) -> StartResult:
        """Start an execution like `start`, and tell whether the key found an older one."""
        found = self.registry.find(workflow, version)
        created = requests.creation(
            found,
            args,
            kwargs,
            key=key,
            queue=queue,
            options=options,
            by=by,
            now=now_us(self.clock),
            values=self.values,
        )
        if connection is None:
            return (await self._create([created]))[0]
        return _started(created, await self.store.create_in(connection, created))

    async def start_many(
        self,
        workflow: WorkflowRef,
        argslist: Iterable[Sequence[Any]],
        /,
        *,
        keys: Sequence[str] | None = None,
        queue: str | None = None,
        options: StartOptions | None = None,
        version: str | None = None,
        by: Actor = ENGINE,
    ) -> list[UUID]:
        """Start one execution for each list of arguments, and return their ids in that order.

        All arguments are checked before anything is stored.

        Args:
            workflow: the registered function, or the name of a workflow.
            argslist: one sequence of positional arguments for each execution.
            keys: one dispatch key for each, or none at all.
            queue: as in `start`.
            options: as in `start`.
            version: as in `start`.
            by: as in `start`.
        """
        found = self.registry.find(workflow, version)
        every: list[tuple[Any, ...]] = []
        for arguments in argslist:
            if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
                message = f"argslist holds {arguments!r}; give one sequence of arguments for each"
                raise InvalidArgument(message)
            every.append(tuple(arguments))
        if keys is not None and len(keys) != len(every):
            message = f"{len(every)} lists of arguments have {len(keys)} keys; give one for each"
            raise InvalidArgument(message)
        creations = [
            requests.creation(
                found,
                args,
                {},
                key=key,
                queue=queue,
                options=options,
                by=by,
                now=now_us(self.clock),
                values=self.values,
            )
            for args, key in zip(every, keys or itertools.repeat(None, len(every)), strict=True)
        ]
        return [result.eid for result in await self._create(creations)]

    async def _create(self, creations: list[CreateExecution]) -> list[StartResult]:
        futures = [self.committer.apply(creation) for creation in creations]
        results: list[StartResult] = []
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for creation, outcome in zip(creations, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            results.append(_started(creation, outcome))
        return results

    # -- wait --------------------------------------------------------------------------------

    async def result(self, eid: UUID | str, *, timeout: timedelta | float | None = None) -> Any:
        """Wait for an execution to end, and return what its function returned.

        Args:
            eid: the execution.
            timeout: how long to wait, a timedelta or seconds; for ever by default.

        Of an execution that continues as another one, it is the result of the last of them.

        Raises:
            ExecutionFailed: if the execution failed.
            ExecutionCancelled: if it was cancelled.
            ExecutionTerminated: if it was terminated.
            WaitTimeout: if it has not ended in time; it goes on.
            UnknownExecution: if there is none with this id.
            PayloadUnreadable: if only another PayloadCodec can decode the result.
        """
        row = await self._wait(eid, timeout)
        if row.error is None:
            return self.values.plain(f"the result of execution {row.eid}", row.result)
        if row.status is ExecutionStatus.CANCELLED:
            raise ExecutionCancelled(row.eid, row.error.message)
        if row.status is ExecutionStatus.TERMINATED:
            raise ExecutionTerminated(row.eid, row.error.message)
        raise ExecutionFailed(row.eid, row.error.type, row.error.message)

    async def wait(
        self, eid: UUID | str, *, timeout: timedelta | float | None = None
    ) -> ExecutionRow:
        """Wait for an execution to end, and return what it is then, whatever its end.

        Raises:
            WaitTimeout: if it has not ended in time; it goes on.
            UnknownExecution: if there is none with this id.
        """
        return self.values.row(await self._wait(eid, timeout))

    async def _wait(self, eid: UUID | str, timeout: timedelta | float | None) -> ExecutionRow:
        eid = parse_eid(eid)
        seconds = None if timeout is None else duration_us("timeout", timeout) / 1e6
        begun = self.clock.monotonic()
        while True:
            left = None if seconds is None else seconds - (self.clock.monotonic() - begun)
            row = await self._wait_for_end(eid, left, WaitTimeout(eid, seconds or 0))
            if row.continued_as is None:
                return row
            eid = row.continued_as

    async def _wait_for_end(
        self, eid: UUID, seconds: float | None, late: WaitTimeout
    ) -> ExecutionRow:
        self._changes.start()
        ended = self._changes.end(eid)
        alarm = None
        if seconds is not None:
            alarm = self.alarms.after(max(seconds, 0), lambda: _fail(ended, late))
        try:
            row = await ended
        except WaitTimeout:  # with a short timeout it may have ended before anybody looked
            row = await self.store.execution(eid)
            if row is not None and not row.status.terminal:
                raise WaitTimeout(eid, late.timeout_s, row.blocked) from None
        finally:
            self._changes.forget(eid, ended)
            if alarm is not None:
                alarm.cancel()
        if row is None:
            raise UnknownExecution(eid)
        return row

    # -- what workers, the committer and the store tell --------------------------------------

    def acquired(self) -> None:
        """Tell who watches that a worker has acquired executions: their journals have grown."""
        self._changes.fire()

    def _stirred(self, committed: Committed) -> None:
        for worker in self._workers:
            worker.stirred(committed)
        self._changes.fire(committed.closed)

    async def _look_around(self) -> None:
        for worker in list(self._workers):
            await worker.look_around()


def _started(creation: CreateExecution, outcome: Outcome) -> StartResult:
    if isinstance(outcome, Refused):
        raise requests.key_taken(creation, outcome)
    return StartResult(*cast("tuple[UUID, bool]", outcome.results[0]))


def _fail(future: asyncio.Future[ExecutionRow | None], error: PerdureError) -> None:
    if not future.done():
        future.set_exception(error)
