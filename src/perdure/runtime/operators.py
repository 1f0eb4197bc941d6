"""What can an operator do to executions? Cancel, terminate, resume, migrate, retry, fork.

Each of these also has a form for many executions, which takes a filter and reports how many it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack, cast
from uuid import UUID

from msgspec.structs import replace

from perdure.errors import AlreadyClosed, Conflict, InvalidArgument, UnknownExecution
from perdure.model.entry import AnyEntry, KnownEntry, pack, unpack
from perdure.model.execution import OPEN, ExecutionRow, ExecutionStatus
from perdure.model.ids import VERSION, check_name, new_eid, parse_eid
from perdure.model.provenance import Actor
from perdure.ports.clock import Clock, now_us
from perdure.ports.commands import (
    Broadcast,
    Command,
    Consume,
    CreateExecution,
    Done,
    Migrate,
    Refused,
    RequestCancel,
    Resume,
    Send,
    Terminate,
)
from perdure.runtime import forking, requests
from perdure.runtime.committer import Committer
from perdure.runtime.looking import Looking
from perdure.runtime.registry import Registry
from perdure.runtime.requests import ENGINE

PAGE = 200


class Filter(TypedDict, total=False):
    """Which executions an operation on many is about; each part as in ``engine.executions``."""

    status: ExecutionStatus | str | list[ExecutionStatus | str]
    workflow: str
    tags: Mapping[str, str]
    text: str
    parent: UUID | str
    since: datetime
    until: datetime


class Operators(Looking):
    """The part of an engine that steers executions."""

    registry: Registry
    clock: Clock
    committer: Committer

    # -- one ---------------------------------------------------------------------------------

    async def cancel(
        self, eid: UUID | str, *, reason: str | None = None, by: Actor = ENGINE
    ) -> None:
        """Ask an execution to cancel. Its function sees `Cancelled` at its next frame.

        One that is pending is closed without being run. A second request changes nothing. Children
        are cancelled, too, unless they were started to live on.

        Args:
            eid: the execution.
            reason: why, for whoever reads the journal.
            by: who asks.

        Raises:
            UnknownExecution: if there is none with this id.
            AlreadyClosed: if it has ended.
        """
        eid = parse_eid(eid)
        reason, by = requests.check_reason(reason), requests.check_actor(by)
        await self._ask(eid, RequestCancel(eid, by, reason, self._now()))

    async def terminate(
        self, eid: UUID | str, *, reason: str | None = None, by: Actor = ENGINE
    ) -> None:
        """Close an execution and its open children at once; no code of theirs runs again.

        Args:
            eid: the execution.
            reason: why, for whoever reads the journal.
            by: who does it.

        Raises:
            UnknownExecution: if there is none with this id.
            AlreadyClosed: if it has ended.
        """
        eid = parse_eid(eid)
        reason, by = requests.check_reason(reason), requests.check_actor(by)
        await self._ask(eid, Terminate(eid, by, reason, self._now()))

    async def resume(self, eid: UUID | str, *, by: Actor = ENGINE) -> None:
        """Let a worker look at an execution again, for example a blocked one after a deploy.

        Args:
            eid: the execution.
            by: who asks.

        Raises:
            UnknownExecution: if there is none with this id.
            AlreadyClosed: if it has ended.
        """
        eid = parse_eid(eid)
        await self._ask(eid, Resume(eid, requests.check_actor(by), self._now()))

    async def migrate(self, eid: UUID | str, version: str, *, by: Actor = ENGINE) -> str:
        """Give an execution to another version of its workflow.

        One that runs keeps its version until a worker acquires it the next time.

        Args:
            eid: the execution.
            version: a version that is registered here.
            by: who asks.

        Returns:
            The version before.

        Raises:
            UnknownExecution: if there is none with this id.
            AlreadyClosed: if it has ended.
            UnknownWorkflow: if the version is not registered here.
            Conflict: if the execution has this version already.
        """
        eid = parse_eid(eid)
        check_name("workflow version", version, VERSION)
        row = await self._latest(eid)
        if row.status.terminal:
            raise AlreadyClosed(eid, row.status)
        self.registry.find(row.workflow, version)
        return await self._migrate(row, version, requests.check_actor(by))

    async def retry_failed(self, eid: UUID | str, *, by: Actor = ENGINE) -> UUID:
        """Start a copy of a failed execution that tries again what failed last.

        Everything before that is kept. If no step and no child failed, but the function itself,
        the copy goes on from the end of the journal: deploy a fix first.

        Returns:
            The id of the copy.

        Raises:
            UnknownExecution: if there is none with this id.
            Conflict: if it has not failed.
        """
        row = await self._latest(parse_eid(eid))
        if row.status is not ExecutionStatus.FAILED:
            message = f"execution {row.eid} is {row.status}; only a failed one can be retried"
            raise Conflict(message)
        entries = await self._entries(row.eid)
        return await self._copy(row, forking.retried(row.eid, entries, self._now()), by)

    async def fork(
        self,
        eid: UUID | str,
        fid: str,
        *,
        overrides: Mapping[str, Any] | None = None,
        by: Actor = ENGINE,
    ) -> UUID:
        """Start a copy of an execution that runs again from one of its frames.

        What had its outcome before the frame began is kept; the frame and all after it run again.
        The copy has no parent, no dispatch key and no unread messages.

        Args:
            eid: the execution, in whatever state.
            fid: the frame, for example ``root/charge#0``; ``root`` runs everything again.
            overrides: values by frame id: these steps give them instead of running.
            by: who forks.

        Returns:
            The id of the copy.

        Raises:
            UnknownExecution: if there is none with this id.
            UnknownFrame: if its journal holds no such frame.
            InvalidArgument: if a frame in `overrides` is no step.
            NotSerializable: if a value is not JSON.

        Example:
            ``await engine.fork(eid, "root/charge#0", overrides={"root/quote#0": 12})``
        """
        eid = parse_eid(eid)
        row = await self.store.execution(eid)
        if row is None:
            raise UnknownExecution(eid)
        given = {} if overrides is None else overrides
        if not isinstance(given, Mapping):
            message = f"overrides is {overrides!r}; it maps frame ids to values"
            raise InvalidArgument(message)
        entries = await self._entries(eid)
        sealed = {step: self.values.encode(step, value) for step, value in given.items()}
        return await self._copy(row, forking.forked(eid, entries, fid, sealed, self._now()), by)

    async def signal(
        self,
        eid: UUID | str,
        channel: str,
        payload: Any,
        *,
        correlation: str | None = None,
        by: Actor = ENGINE,
    ) -> int:
        """Send one message on a channel of an execution, and return its sequence number.

        Args:
            eid: the execution.
            channel: the channel's name.
            payload: any JSON value.
            correlation: a text that ties the message to something of the sender's.
            by: who sends it.

        Raises:
            UnknownExecution: if there is none with this id.
            AlreadyClosed: if it has ended; nothing was stored.
            InvalidName: if the channel's name is out of its grammar.
            NotSerializable: if the payload is not JSON.
        """
        eid = parse_eid(eid)
        send = requests.message(
            eid,
            channel,
            payload,
            correlation=correlation,
            by=by,
            now=self._now(),
            values=self.values,
        )
        return await self._send(send)

    async def deliver(
        self, eid: UUID | str, channel: str, payload: Any, *, by: Actor = ENGINE
    ) -> int:
        """Send the answer to a task that an execution has enqueued, and return its number.

        The first answer counts; whoever waits for it takes no other one.

        Args:
            eid: the execution.
            channel: the reply channel of the task, see ``DelegateTask.reply_channel``.
            payload: any JSON value.
            by: who answers.

        Raises:
            UnknownExecution: if there is none with this id.
            AlreadyClosed: if it has ended; nothing was stored.
            InvalidArgument: if the channel is no reply channel.
            NotSerializable: if the payload is not JSON.
        """
        eid = parse_eid(eid)
        return await self._send(
            requests.answer(eid, channel, payload, by=by, now=self._now(), values=self.values)
        )

    async def _send(self, send: Send) -> int:
        outcome = await self.committer.apply(send)
        if isinstance(outcome, Refused):
            raise requests.refusal(send.eid, outcome)
        sequence = outcome.results[0]
        assert isinstance(sequence, int)  # noqa: S101 - the port's promise
        return sequence

    async def broadcast(self, channel: str, payload: Any, *, by: Actor = ENGINE) -> int:
        """Send one message on a global channel, and wake every execution that waits on it.

        Args:
            channel: the channel's name.
            payload: any JSON value.
            by: who sends it.

        Returns:
            Its sequence number.

        Raises:
            InvalidName: if the channel's name is out of its grammar.
            NotSerializable: if the payload is not JSON.
        """
        encoded = requests.payload_for(channel, payload, self.values)
        sender = requests.check_actor(by)
        outcome = await self.committer.apply(Broadcast(channel, encoded, sender, self._now()))
        return cast("int", _done(outcome).results[0])

    # -- many --------------------------------------------------------------------------------

    async def cancel_many(
        self, *, reason: str | None = None, by: Actor = ENGINE, **which: Unpack[Filter]
    ) -> int:
        """Ask all open executions that a filter names to cancel, and count them.

        Raises:
            InvalidArgument: if the filter is empty.
        """
        reason, by = requests.check_reason(reason), requests.check_actor(by)
        return await self._ask_many(
            which, lambda row: RequestCancel(row.eid, by, reason, self._now())
        )

    async def terminate_many(
        self, *, reason: str | None = None, by: Actor = ENGINE, **which: Unpack[Filter]
    ) -> int:
        """Terminate all open executions that a filter names, and count them.

        Raises:
            InvalidArgument: if the filter is empty.
        """
        reason, by = requests.check_reason(reason), requests.check_actor(by)
        return await self._ask_many(which, lambda row: Terminate(row.eid, by, reason, self._now()))

    async def resume_many(self, *, by: Actor = ENGINE, **which: Unpack[Filter]) -> int:
        """Resume all blocked executions that a filter names, and count them.

        Raises:
            InvalidArgument: if the filter is empty.
        """
        by = requests.check_actor(by)

        def command(row: ExecutionRow) -> Command | None:
            return None if row.blocked is None else Resume(row.eid, by, self._now())

        return await self._ask_many(which, command)

    async def migrate_many(
        self, version: str, *, by: Actor = ENGINE, **which: Unpack[Filter]
    ) -> int:
        """Give all open executions that a filter names to another version, and count them.

        Those that have the version already are left out.

        Raises:
            InvalidArgument: if the filter is empty.
            UnknownWorkflow: if an execution is of a workflow whose version is not registered here;
                then none was migrated.
        """
        check_name("workflow version", version, VERSION)
        by = requests.check_actor(by)

        async for rows in self._pages(which, OPEN):
            for workflow in {row.workflow for row in rows}:
                self.registry.find(workflow, version)

        async def one(row: ExecutionRow) -> bool:
            try:
                await self._migrate(row, version, by)
            except Conflict:  # it has ended meanwhile, or has this version
                return False
            return True

        return await self._each(which, OPEN, one)

    async def retry_failed_many(self, *, by: Actor = ENGINE, **which: Unpack[Filter]) -> int:
        """Start a copy of each failed execution that a filter names, and count them.

        Raises:
            InvalidArgument: if the filter is empty.
        """

        async def one(row: ExecutionRow) -> bool:
            await self.retry_failed(row.eid, by=by)
            return True

        return await self._each(which, frozenset({ExecutionStatus.FAILED}), one)

    # -- parts -------------------------------------------------------------------------------

    def _now(self) -> int:
        return now_us(self.clock)

    async def _ask(self, eid: UUID, command: Command) -> None:
        """Apply a command whose result is the status before."""
        status = _done(await self.committer.apply(command)).results[0]
        if status is None:
            raise UnknownExecution(eid)
        if ExecutionStatus(cast("str", status)).terminal:
            raise AlreadyClosed(eid, cast("str", status))

    async def _migrate(self, row: ExecutionRow, version: str, by: Actor) -> str:
        outcome = await self.committer.apply(Migrate(row.eid, version, by, self._now()))
        if isinstance(outcome, Refused):
            raise requests.refusal(row.eid, outcome)
        return cast("str", outcome.results[0])

    async def _entries(self, eid: UUID) -> list[AnyEntry]:
        return [entry for row in await self.store.journal(eid) for entry in unpack(row.body)]

    async def _copy(self, row: ExecutionRow, entries: list[KnownEntry], by: Actor) -> UUID:
        """Create an execution like `row`, with a journal to begin from."""
        record = await self.store.record(row.eid)
        if record is None:
            raise UnknownExecution(row.eid)
        now, by = self._now(), requests.check_actor(by)
        options = replace(record.options, not_before=None)
        copy = replace(
            requests.successor(record, record.args, by=by, now=now),
            eid=new_eid(),
            options=options,
            dispatch_key=None,
            parent=None,
        )
        create = CreateExecution(copy, now, pack(entries), len(entries))
        numbers = forking.consumed(entries)
        channels = [Consume(copy.eid, channel, seq) for channel, seq in numbers.items()]
        _done(await self.committer.apply(create, *channels))
        return copy.eid

    async def _ask_many(self, which: Filter, make: Callable[[ExecutionRow], Command | None]) -> int:
        async def one(row: ExecutionRow) -> bool:
            command = make(row)
            if command is None:
                return False
            try:
                await self._ask(row.eid, command)
            except (AlreadyClosed, UnknownExecution):  # it has ended meanwhile
                return False
            return True

        return await self._each(which, OPEN, one)

    async def _each(
        self,
        which: Filter,
        statuses: frozenset[ExecutionStatus],
        operate: Callable[[ExecutionRow], Awaitable[bool]],
    ) -> int:
        """Operate on the executions that a filter names, and count where it did something."""
        done = 0
        async for rows in self._pages(which, statuses):
            done += sum(await asyncio.gather(*(operate(row) for row in rows)))
        return done

    async def _pages(
        self, which: Filter, statuses: frozenset[ExecutionStatus]
    ) -> AsyncIterator[tuple[ExecutionRow, ...]]:
        # What is empty excludes nothing; an empty list of statuses excludes all.
        if not any(value not in (None, "", {}) for value in which.values()):
            message = "the filter is empty; say which executions are meant, by workflow for example"
            raise InvalidArgument(message)
        asked: dict[str, Any] = {
            "workflow": None,
            "tags": None,
            "text": None,
            "parent": None,
            "since": None,
            "until": None,
            **which,
        }
        status = asked.pop("status", None)
        query = requests.query(status=status, limit=PAGE, cursor=None, **asked)
        wanted = statuses if query.status is None else query.status & statuses
        page_query = requests.narrowed(query, wanted)
        while wanted:
            page = await self.store.executions(page_query)
            yield page.items
            if page.cursor is None:
                return
            page_query = requests.narrowed(query, wanted, page.cursor)


def _done(outcome: Done | Refused) -> Done:
    assert isinstance(outcome, Done), outcome  # noqa: S101 - nothing here can be refused
    return outcome
