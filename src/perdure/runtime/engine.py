"""What can an operator or an application do? Start, wait, look, signal; and run workers.

The engine commands through the committer and reads through the store. It holds no state of an
execution: any number of engines may work on one store.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
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
from perdure.model.entry import Entry
from perdure.model.execution import (
    ExecutionRow,
    ExecutionStatus,
    FrameNode,
    LeaseInfo,
    Page,
    StartOptions,
    StartResult,
)
from perdure.model.ids import parse_eid
from perdure.model.instants import duration_us
from perdure.model.provenance import Actor, Site
from perdure.ports.clock import Clock, now_us
from perdure.ports.commands import CreateExecution, Refused
from perdure.ports.store import Committed, Store, StoreInfo
from perdure.runtime import requests, streams
from perdure.runtime.alarms import Alarms
from perdure.runtime.changes import Changes
from perdure.runtime.committer import Committer
from perdure.runtime.config import EngineConfig
from perdure.runtime.history import EntryReader, frame_tree
from perdure.runtime.operators import Operators
from perdure.runtime.registry import Registry
from perdure.runtime.requests import ENGINE
from perdure.runtime.worker import Worker

WorkflowRef = Callable[..., Any] | str


class Engine(Operators):
    """Starts, watches and steers executions. Made by ``perdure.open``."""

    def __init__(
        self, store: Store, registry: Registry, *, config: EngineConfig, site: Site, clock: Clock
    ) -> None:
        """Make an engine over an open store; ``perdure.open`` does that and closes it again."""
        self.store = store
        self.registry = registry
        self.config = config
        self.site = site
        self.clock = clock
        self.committer = Committer(store, clock, site, self._stirred)
        self.alarms = Alarms(clock)
        self._workers: list[Worker] = []
        self._changes = Changes(store, clock, self._look_around)
        self.committer.start()

    # -- life --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop the workers, write what waits, and close the store."""
        for worker in list(self._workers):
            await worker.drain()
        await self._changes.stop()
        await self.committer.stop()
        self.alarms.close()
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
            workflow, *args, key=key, queue=queue, options=options, version=version, by=by, **kwargs
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
        )
        return (await self._create([created]))[0]

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
            if isinstance(outcome, Refused):
                raise requests.key_taken(creation, outcome)
            results.append(StartResult(*cast("tuple[UUID, bool]", outcome.results[0])))
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
        """
        row = await self.wait(eid, timeout=timeout)
        if row.error is None:
            return row.result
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
            row = await self.execution(eid, follow=False)
            if row.status.terminal:
                return row
            raise WaitTimeout(eid, late.timeout_s, row.blocked) from None
        finally:
            self._changes.forget(eid, ended)
            if alarm is not None:
                alarm.cancel()
        if row is None:
            raise UnknownExecution(eid)
        return row

    # -- look --------------------------------------------------------------------------------

    async def status(self, eid: UUID | str) -> ExecutionStatus:
        """Tell where an execution is.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        return (await self.execution(eid)).status

    async def execution(self, eid: UUID | str, *, follow: bool = True) -> ExecutionRow:
        """Read an execution as it is now.

        Args:
            eid: the execution.
            follow: whether to read the one that it continues as, if there is one.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        eid = parse_eid(eid)
        if follow:
            return await self._latest(eid)
        row = await self.store.execution(eid)
        if row is None:
            raise UnknownExecution(eid)
        return row

    async def executions(
        self,
        *,
        status: ExecutionStatus | str | Iterable[ExecutionStatus | str] | None = None,
        workflow: str | None = None,
        tags: Mapping[str, str] | None = None,
        text: str | None = None,
        parent: UUID | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ExecutionRow]:
        """List executions, newest first.

        Args:
            status: one status or several.
            workflow: the name of the workflow.
            tags: tags that all must be there, with these values.
            text: a part of the workflow's name, the dispatch key, or a tag's value.
            parent: the execution whose children they are.
            since: created at or after this aware instant.
            until: created before this aware instant.
            limit: at most so many, between 1 and 500.
            cursor: where the page before ended.

        Raises:
            InvalidArgument: if a value is out of range.
        """
        query = requests.query(
            status=status,
            workflow=workflow,
            tags=tags,
            text=text,
            parent=parent,
            since=since,
            until=until,
            limit=limit,
            cursor=cursor,
        )
        return await self.store.executions(query)

    async def journal(self, eid: UUID | str, *, after: int = 0) -> list[Entry]:
        """Read the journal of an execution: its entries numbered above `after`.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        row = await self.execution(eid, follow=False)
        entries = await self._read_entries(EntryReader(row), row.eid, 0)
        return [entry for entry in entries if entry.seq > after]

    async def _read_entries(self, reader: EntryReader, eid: UUID, after: int) -> list[Entry]:
        rows = await self.store.journal(eid, after)
        return reader.read(rows, await self.store.sites(sorted({row.site for row in rows})))

    async def frames(self, eid: UUID | str) -> FrameNode:
        """Read the tree of the frames of an execution.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        row = await self.execution(eid, follow=False)
        return frame_tree(row, await self.store.journal(row.eid))

    async def lease(self, eid: UUID | str) -> LeaseInfo:
        """Tell who owns an execution.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        eid = parse_eid(eid)
        lease = await self.store.lease(eid)
        if lease is None:
            raise UnknownExecution(eid)
        return lease

    async def watch(self, eid: UUID | str, *, after: int = 0) -> AsyncIterator[Entry]:
        """Give the entries of an execution as they commit, until it has ended.

        Args:
            eid: the execution.
            after: begin behind the entry of this number.

        Raises:
            UnknownExecution: if there is none with this id.
        """
        self._changes.start()
        reader = EntryReader(await self.execution(eid, follow=False))
        last = 0
        while True:
            changed = self._changes.next()
            row = await self.execution(eid, follow=False)
            for entry in await self._read_entries(reader, row.eid, last):
                last = entry.seq
                if entry.seq > after:
                    yield entry
            if row.status.terminal:
                return
            await changed

    def stream(self, eid: UUID | str, name: str, *, after: int = 0) -> AsyncIterator[Any]:
        """Give the items of a stream in order, as they commit, until the execution has ended.

        Args:
            eid: the execution.
            name: the stream's name.
            after: leave out so many items at the beginning.

        Raises:
            InvalidName: at once, if `name` is out of the grammar of channels.
            InvalidArgument: at once, if `after` is negative.
            UnknownExecution: at the first item, if there is no execution with this id.
        """
        return streams.read(self, self._changes, parse_eid(eid), name, after)

    async def store_info(self) -> StoreInfo:
        """Tell what the store is and holds."""
        return await self.store.info()

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


def _fail(future: asyncio.Future[ExecutionRow | None], error: PerdureError) -> None:
    if not future.done():
        future.set_exception(error)
