"""How does a process outside the engine answer a task? A consumer dequeues, renews, delivers, acks.

A task that a frame has enqueued is held under a lease with a time to live. The lease is renewed
every third of it; a renewal also tells whether the execution is cancelled. If a consumer dies, its
lease expires, and the task is visible again, with the state that was kept in it. One that comes
back under the same holder id attaches to what it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from perdure.errors import AlreadyClosed, InvalidArgument, LeaseLost, StoreUnavailable
from perdure.model.ids import QUEUE, SESSION, check_name, is_text, reply_channel
from perdure.model.instants import duration_us
from perdure.model.provenance import Actor
from perdure.model.queue_task import LeasedTask
from perdure.ports.clock import now_us
from perdure.ports.commands import (
    AckTask,
    Command,
    DequeueDelegated,
    Done,
    HoldTask,
    NackTask,
    Refused,
    RenewTask,
)
from perdure.runtime import requests

if TYPE_CHECKING:
    from datetime import timedelta

    from perdure.runtime.engine import Engine

RENEWALS_PER_TTL = 3
RETRY_S = 0.5
NACK_FIRST_S = 1.0
NACK_MAX_S = 300.0
HOLDER_MAX = 200

log = logging.getLogger("perdure.consumer")

_read_task = msgspec.json.Decoder(LeasedTask).decode


class DelegateTask(msgspec.Struct, frozen=True):
    """What a consumer is asked to do.

    Attributes:
        eid: the execution that asks.
        fid: the frame that enqueued the task.
        reply_channel: the channel for the answer.
        payload: what was asked for, a JSON value.
        task_id: the id of the task.
        queue: the queue it stands on.
    """

    eid: UUID
    fid: str
    reply_channel: str
    payload: Any
    task_id: str
    queue: str


class Held:
    """A task under a lease.

    Attributes:
        task: what is asked for.
        epoch: how often the task was dequeued, from 1.
        state: what this holder or one before it has kept in the task, a JSON value.
        cancel_requested: whether the execution asks to stop, as of the last renewal.
    """

    def __init__(self, consumer: Consumer, leased: LeasedTask) -> None:
        """Take a task that was leased; a `Consumer` does that."""
        self._consumer = consumer
        self._lease = (leased.task, consumer.holder, leased.epoch)
        self.epoch = leased.epoch
        values = consumer.engine.values
        self.state: Any = values.decode(f"the state of task {leased.task_id}", leased.state)
        self.cancel_requested = leased.stop
        payload = values.decode(f"the payload of task {leased.task_id}", leased.payload)
        reply = reply_channel(leased.task_id, leased.fid)
        self.task = DelegateTask(
            leased.eid, leased.fid, reply, payload, leased.task_id, leased.queue
        )

    async def renew(self, state: Any = None) -> bool:
        """Renew the lease, and keep a state in the task.

        Args:
            state: any JSON value, for whoever holds the task next; ``None`` leaves it as it is.

        Returns:
            Whether the execution asks to stop.

        Raises:
            LeaseLost: if somebody else holds the task, or it was withdrawn.
            NotSerializable: if the state is not JSON.
        """
        encoded = None
        if state is not None:
            values = self._consumer.engine.values
            encoded = bytes(values.encode(f"the state of task {self.task.task_id}", state))
        results = await self._apply(RenewTask(*self._lease, encoded, self._consumer.now_us()))
        self.cancel_requested = bool(results[0])
        if state is not None:
            self.state = state
        return self.cancel_requested

    async def deliver(self, payload: Any) -> int:
        """Send the answer to the execution; then `ack` the task.

        Returns:
            The number of the answer. The first one counts.

        Raises:
            LeaseLost: if somebody else holds the task, or it was withdrawn; nothing was sent.
            AlreadyClosed: if the execution has ended; nothing was sent.
            NotSerializable: if the payload is not JSON.
        """
        results = await self._apply(HoldTask(*self._lease), self._answer(payload))
        sequence = results[1]
        assert isinstance(sequence, int)  # noqa: S101 - the port's promise
        return sequence

    async def ack(self) -> None:
        """Remove the task: it is done.

        Raises:
            LeaseLost: if somebody else holds the task, or it was withdrawn.
        """
        await self._apply(AckTask(*self._lease))

    async def complete(self, payload: Any) -> None:
        """Send the answer and ack the task, both or neither.

        Raises:
            LeaseLost: if somebody else holds the task, or it was withdrawn; nothing was sent.
            AlreadyClosed: if the execution has ended; the task is still held.
            NotSerializable: if the payload is not JSON.
        """
        await self._apply(AckTask(*self._lease), self._answer(payload))

    async def nack(self, delay: timedelta | float = 0) -> None:
        """Return the task to its queue, with the state that is kept in it.

        Args:
            delay: how long nobody sees it, a timedelta or seconds.

        Raises:
            LeaseLost: if somebody else holds the task, or it was withdrawn.
        """
        now = self._consumer.now_us()
        due = now + duration_us("delay", delay)
        await self._apply(NackTask(*self._lease, due if due > now else None, now))

    def _answer(self, payload: Any) -> Command:
        task, consumer = self.task, self._consumer
        now = consumer.now_us()
        eid, channel, values = task.eid, task.reply_channel, consumer.engine.values
        return requests.answer(eid, channel, payload, by=consumer.actor, now=now, values=values)

    async def _apply(self, *commands: Command) -> Sequence[object]:
        outcome = await self._consumer.engine.committer.apply(*commands)
        if isinstance(outcome, Done):
            return outcome.results
        if outcome.code == "not_holder":
            raise LeaseLost(self.task.task_id, self._consumer.holder)
        raise requests.refusal(self.task.eid, outcome)


Handler = Callable[[DelegateTask, Held], Awaitable[Any]]


class Consumer:
    """Takes delegated tasks from queues and answers them. Made by ``engine.consumer``.

    Attributes:
        engine: the engine through which it works.
        holder: under which id it holds tasks.
        actor: who answers.
    """

    def __init__(self, engine: Engine, queues: Sequence[str], *, holder: str, ttl: float) -> None:
        """Prepare a consumer; see ``Engine.consumer``."""
        if isinstance(queues, str) or not queues:
            message = f"queues is {queues!r}; give a list of queue names, for example ['agents']"
            raise InvalidArgument(message)
        named = is_text(holder) and 0 < len(holder) <= HOLDER_MAX
        if not named or holder.startswith(SESSION):
            message = (
                f"holder is {holder!r}; give a name of at most {HOLDER_MAX} characters that is "
                f"this consumer's own and does not begin with {SESSION!r}"
            )
            raise InvalidArgument(message)
        self._ttl = duration_us("ttl", ttl, allow_zero=False) / 1e6
        self._queues = tuple(check_name("queue", queue, QUEUE) for queue in queues)
        self.engine = engine
        self.holder = holder
        self.actor = Actor.system(holder)
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def now_us(self) -> int:
        """Give the instant, in microseconds."""
        return now_us(self.engine.clock)

    async def dequeue(self) -> Held | None:
        """Lease the next task of the first queue that has one, or ``None``."""
        if not await self.engine.store.has_delegated(self._queues):
            return None
        taking = DequeueDelegated(self._queues, self.holder, self._ttl, self.now_us())
        answer = asyncio.ensure_future(self.engine.committer.apply(taking))
        try:
            return self._taken(await asyncio.shield(answer))
        except asyncio.CancelledError:
            # What was taken meanwhile would be nobody's until its lease expires.
            with contextlib.suppress(StoreUnavailable):
                if (held := self._taken(await answer)) is not None:
                    await held.nack()
            raise

    def _taken(self, outcome: Done | Refused) -> Held | None:
        found = None if isinstance(outcome, Refused) else outcome.results[0]
        return Held(self, _read_task(found)) if isinstance(found, bytes) else None

    async def attach(self) -> list[Held]:
        """Give the tasks that are held under this holder id: after a restart it goes on with them.

        Nothing is written: the leases have the epoch and the state that they had.
        """
        return [Held(self, leased) for leased in await self.engine.store.held(self.holder)]

    async def run(self, handler: Handler, *, limit: int = 1, until_empty: bool = False) -> None:
        """Attach to what is held, then answer tasks as they come, until `stop` is called.

        What the handler returns is the answer; it is sent in one transaction with the ack. The
        lease is renewed meanwhile. If the execution is cancelled, or the lease is lost, the handler
        is cancelled. If it raises, the task is returned to its queue, for a while that doubles.

        Args:
            handler: ``async def handler(task: DelegateTask, held: Held) -> Any``.
            limit: how many tasks are held at one time.
            until_empty: whether to return as soon as no task is ready.

        Raises:
            InvalidArgument: if the limit is below 1.
        """
        if not isinstance(limit, int) or limit < 1:
            message = f"limit is {limit!r}; it is a whole number of at least 1"
            raise InvalidArgument(message)
        try:
            await self._work(handler, limit, until_empty=until_empty)
        finally:
            for one in self._running:
                one.cancel()
            if self._running:
                await asyncio.wait(list(self._running))

    async def _work(self, handler: Handler, limit: int, *, until_empty: bool) -> None:
        for held in await self._patiently(self.attach):
            self._begin(handler, held)
        while not self._stopping.is_set():
            changed = self.engine.next_change()
            found = await self._patiently(self.dequeue) if len(self._running) < limit else None
            if found is not None:
                self._begin(handler, found)
            elif until_empty and not self._running:
                return
            else:
                await self._wait(changed)
        if self._running:
            await asyncio.wait(list(self._running))

    async def _patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask the store again until it answers."""
        while True:
            try:
                return await ask()
            except StoreUnavailable as error:
                log.warning("%s; the consumer waits until it works again", error)
                await self.engine.clock.sleep(RETRY_S)

    async def _wait(self, changed: asyncio.Future[None]) -> None:
        """Wait until something was written, a handler has ended, or the consumer is to stop."""
        stop = asyncio.ensure_future(self._stopping.wait())
        waits: set[asyncio.Future[Any]] = {changed, stop, *self._running}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    def stop(self) -> None:
        """Take no further task; `run` returns when the handlers have ended."""
        self._stopping.set()

    def _begin(self, handler: Handler, held: Held) -> None:
        task = asyncio.get_running_loop().create_task(self._do(handler, held))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _do(self, handler: Handler, held: Held) -> None:
        """Run the handler for one task, and end its lease."""
        work = asyncio.ensure_future(handler(held.task, held))
        try:
            lost = await self._keep(held, work)
        except asyncio.CancelledError:  # the consumer stops: somebody else is to do it
            work.cancel()
            await asyncio.wait([work])
            with contextlib.suppress(StoreUnavailable, LeaseLost):  # else the lease expires
                await held.nack()
            raise
        failure = None if work.cancelled() else work.exception()
        if lost or isinstance(failure, LeaseLost):
            log.warning("task %s was taken from this consumer", held.task.task_id)
        elif work.cancelled() and held.cancel_requested:
            await self._end(held, held.ack)
        elif work.cancelled() or failure is not None:
            delay = min(NACK_FIRST_S * 2 ** min(held.epoch - 1, 60), NACK_MAX_S)
            words = "task %s failed; it is returned to its queue for %g s: %s"
            log.error(words, held.task.task_id, delay, failure or "it was cancelled")
            await self._end(held, lambda: held.nack(delay))
        else:
            await self._end(held, lambda: held.complete(work.result()))

    async def _keep(self, held: Held, work: asyncio.Future[Any]) -> bool:
        """Renew the lease while the handler runs; tell whether it was lost."""
        renewed, asked = self.engine.clock.monotonic(), False
        pause = 0.0 if held.cancel_requested else self._ttl / RENEWALS_PER_TTL
        while True:
            timer = asyncio.ensure_future(self.engine.clock.sleep(pause))
            try:
                await asyncio.wait([work, timer], return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
            if work.done():
                return False
            began = self.engine.clock.monotonic()
            try:
                await held.renew()
            except LeaseLost:
                break
            except StoreUnavailable:
                if began - renewed >= self._ttl:
                    break
                pause = min(RETRY_S, self._ttl / RENEWALS_PER_TTL)
                continue
            renewed, pause = began, self._ttl / RENEWALS_PER_TTL
            if held.cancel_requested and not asked:
                asked = True
                work.cancel()
        work.cancel()
        await asyncio.wait([work])
        return True

    async def _end(self, held: Held, end: Callable[[], Awaitable[None]]) -> None:
        """End a lease; a store that cannot be reached is asked again."""
        task_id = held.task.task_id
        while True:
            try:
                await end()
            except StoreUnavailable:
                await self.engine.clock.sleep(RETRY_S)
            except LeaseLost:
                log.warning("task %s was taken from this consumer; nothing was sent", task_id)
                return
            except AlreadyClosed as closed:
                log.info("nobody waits for the answer to task %s: %s", task_id, closed)
                end = held.ack
            except InvalidArgument as refused:
                log.error("the answer to task %s cannot be sent: %s", task_id, refused)  # noqa: TRY400
                end = functools.partial(held.nack, NACK_MAX_S)
            else:
                return
