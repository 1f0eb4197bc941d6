"""How does a step run in another worker? As a task on a queue; its outcome comes back as a message.

`DetachedFrames` is the side of the owner, a part of `Steps`: it enqueues the task of an attempt
together with its ``frame.started`` and waits. `DetachedSteps` is the side of the worker that runs
it, a part of `Worker`. Only the owner appends to the journal.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.errors import (
    InvalidArgument,
    NotSerializable,
    PayloadTooLarge,
    PayloadUnreadable,
    PayloadUnwritable,
    PerdureError,
    StepTimeout,
    StoreUnavailable,
)
from perdure.model import codec
from perdure.model.entry import FrameFulfilled, FrameStarted, FrameSuspended
from perdure.model.ids import session_holder
from perdure.model.instants import from_us
from perdure.model.queue_task import RUN_STEP, LeasedTask
from perdure.model.retry import NO_RETRY
from perdure.ports.commands import (
    AckTask,
    Command,
    Consume,
    DequeueSteps,
    Done,
    Enqueue,
    HoldTask,
    NackTask,
    Publish,
    Tell,
    Withdraw,
)
from perdure.runtime.attempt import (
    Attempt,
    StepInfo,
    describe_classes,
    describe_error,
    is_final,
)
from perdure.runtime.code.functions import step_function
from perdure.runtime.frames import Detached, Frame, StepCall

if TYPE_CHECKING:
    from perdure.model.entry import PackedMessage
    from perdure.runtime.registry import Step
    from perdure.runtime.runner import Runner
    from perdure.runtime.worker import Worker

ON_STEP = "step:"
RETRY_S = 0.5
GIVEN_BACK_S = 10.0

log = logging.getLogger("perdure.worker")


class AttemptOrder(msgspec.Struct, frozen=True):
    """The payload of the task: which attempt it is, the arguments, and how long it may take."""

    attempt: int
    args: Raw
    timeout_us: int | None = None


class AttemptOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What comes back: a value, or how the attempt failed. Its message says who ran it.

    Attributes:
        attempt: the attempt.
        value: the value as JSON.
        error_type: the class name of the error; ``None`` if there is a value.
        message: its text.
        traceback: its traceback.
        classes: the names of its class and the classes above, for ``RetryPolicy.retry_on``.
        final: whether an error of this kind is never retried.
    """

    attempt: int
    value: Raw = codec.NULL
    error_type: str | None = None
    message: str = ""
    traceback: str | None = None
    classes: tuple[str, ...] = ()
    final: bool = False


_encode = msgspec.json.Encoder().encode
_read_order = msgspec.json.Decoder(AttemptOrder).decode
read_outcome = msgspec.json.Decoder(AttemptOutcome).decode
_read_tasks = msgspec.json.Decoder(list[LeasedTask]).decode


class DetachedFrames:
    """The steps of one execution that other workers run."""

    def __init__(self, runner: Runner) -> None:
        """Prepare for the steps of `runner`."""
        self._runner = runner

    def begin(self, frame: Frame[Any], call: StepCall, detached: Detached) -> None:
        """Enqueue the task of the next attempt, unless it is on its way, and wait."""
        runner, fid, on = self._runner, frame.fid, ON_STEP + frame.fid
        frame.channel = fid
        if frame.suspended != on:
            number, now, journal = frame.attempts + 1, runner.now_us(), runner.journal
            frame.recorded = True
            frame.suspended = on
            journal.append(FrameStarted(now, fid, number, frame.kind, frame.name, frame.digest))
            journal.append(FrameSuspended(now, fid, number, on))
            order = _encode(AttemptOrder(number, detached.args, call.timeout_us))
            key, queue, epoch = f"{fid}:{number}", detached.queue, runner.epoch
            journal.also(
                Enqueue(runner.eid, epoch, fid, RUN_STEP, key, queue, order, now, detached.step)
            )
        runner.waiting.add(frame)

    def withdraw(self, frame: Frame[Any]) -> None:
        """Remove the task of the attempt: nobody waits for its outcome any more."""
        call = frame.call
        if frame.channel and call is not None and isinstance(call.place, Detached):
            task = f"{RUN_STEP}:{self._runner.eid}:{frame.fid}:{frame.attempts + 1}"
            self._runner.journal.also(Withdraw(call.place.queue, task))

    def answered(self, frame: Frame[Any], message: PackedMessage) -> AttemptOutcome:
        """Take the outcome of an attempt: its wait is over."""
        runner, outcome = self._runner, read_outcome(message.payload)
        runner.waiting.waits.remove(frame)
        frame.channel, frame.suspended = "", None
        journal = runner.journal
        journal.also(Consume(runner.eid, frame.fid, message.seq))
        taken = msgspec.structs.replace(message, payload=codec.NULL)
        number, now = outcome.attempt, runner.now_us()
        journal.append(FrameFulfilled(now, frame.fid, number, frame.on, taken))
        return outcome


class Run:
    """One attempt of a step for an execution that others own: it waits for a slot, then runs."""

    __slots__ = ("attempt", "call", "number", "outbox", "task")

    def __init__(self, task: LeasedTask, number: int, call: StepCall) -> None:
        self.task = task
        self.number = number
        self.call = call
        self.attempt: Attempt | None = None
        self.outbox: deque[tuple[Command, ...]] = deque()

    def drop(self) -> None:
        """Let the attempt, if it runs, report nothing any more."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.drop()


class DetachedSteps:
    """The steps that a worker runs for executions that others own, under leases of its session."""

    def __init__(self, worker: Worker, queues: tuple[str, ...]) -> None:
        """Prepare for steps of these queues."""
        self._worker = worker
        self._queues = queues
        self.running: dict[Run, None] = {}

    async def take(self) -> int:
        """Lease ready tasks that run registered steps, as many as there are slots, and run them.

        Raises:
            StoreUnavailable: if the store cannot be reached.
        """
        worker = self._worker
        steps = worker.registry.steps
        if not await worker.store.has_steps(self._queues, tuple(steps)):
            return 0
        taken = 0
        for is_async in (True, False):
            names = tuple(n for n, s in steps.items() if _is_async(s) is is_async)
            limit = worker.slots(is_async=is_async).free
            if names and limit:
                now, session = worker.now_us(), worker.session
                taking = DequeueSteps(self._queues, names, session, limit, now)
                outcome = await worker.committer.apply(taking)
                found = outcome.results[0] if isinstance(outcome, Done) else None
                tasks = _read_tasks(found) if isinstance(found, bytes) else []
                for task in tasks:
                    self._begin(task)
                taken += len(tasks)
        return taken

    def _begin(self, task: LeasedTask) -> None:
        worker, order = self._worker, _read_order(task.payload)
        step = worker.registry.steps[task.step]
        is_async = _is_async(step)
        call = StepCall(
            step.function, (), {}, is_async=is_async, retry=NO_RETRY, timeout_us=order.timeout_us
        )
        run = Run(task, order.attempt, call)
        self.running[run] = None
        worker.keep_busy()
        try:
            args = worker.values.open(step.its_arguments, order.args)
            bound = step.read_arguments(Raw(args))
        except InvalidArgument as misfit:
            self._ended(run, None, misfit)
        except PayloadUnreadable as unreadable:
            self._give_back(run, unreadable)
        else:
            call.args, call.kwargs = bound.args, bound.kwargs
            worker.slots_for(call).request(0, self._start, run)

    def _start(self, run: Run) -> bool:
        """Start the attempt in the slot that was granted; tell whether it took it."""
        if run not in self.running:
            return False
        worker, task, call = self._worker, run.task, run.call
        started_at = from_us(worker.now_us())
        key = f"{task.eid}:{task.fid}"

        def publish(info: StepInfo, stream: str, value: Raw) -> None:
            payload = bytes(worker.values.seal(f"an item of {info.fid}", value))
            worker.on_loop(functools.partial(self._publish, run, stream, payload))

        info = StepInfo(task.eid, task.fid, run.number, key, started_at, publish)

        def finished(_attempt: Attempt, value: Any, error: BaseException | None) -> None:
            self._ended(run, value, error)

        run.attempt = Attempt(call, info, finished, worker.slots_for(call).release)
        if call.timeout_us is not None:
            seconds = call.timeout_us / 1e6
            worker.alarms.after(seconds, functools.partial(self._timed_out, run, seconds))
        worker.start_attempt(run.attempt)
        return True

    def _timed_out(self, run: Run, seconds: float) -> None:
        if run in self.running and run.attempt is not None and not run.attempt.dropped:
            run.drop()
            self._ended(run, None, StepTimeout(run.task.fid, seconds))

    def _ended(self, run: Run, value: Any, error: BaseException | None) -> None:
        """Send the outcome of an attempt to the owner, in one transaction with the ack."""
        task, worker = run.task, self._worker
        run.attempt = None
        if error is None:
            try:
                memo = worker.values.seal(task.fid, codec.settle(task.fid, value, None)[0])
            except (NotSerializable, PayloadTooLarge) as refused:
                error = refused
            except PayloadUnwritable as unwritable:
                self._give_back(run, unwritable)
                return
            else:
                outcome = AttemptOutcome(run.number, memo)
        if error is not None:
            described, classes = describe_error(error), describe_classes(error)
            final = is_final(error)
            outcome = AttemptOutcome(run.number, codec.NULL, *described, classes, final)
        told = Tell(task.eid, task.fid, _encode(outcome), worker.actor, worker.now_us())
        self._write(run, AckTask(*self._lease(run)), told)

    def _give_back(self, run: Run, reason: PerdureError) -> None:
        """Return a task for a while: the codec of this worker fails it, not the step."""
        words = "step %s:%s goes back to its queue for %g s: %s"
        log.error(words, run.task.eid, run.task.fid, GIVEN_BACK_S, reason)
        now = self._worker.now_us()
        self._write(run, NackTask(*self._lease(run), now + int(GIVEN_BACK_S * 1e6), now))

    def _publish(self, run: Run, stream: str, payload: bytes) -> None:
        """Add an item to a stream for an attempt that runs."""
        if run in self.running and run.attempt is not None:
            worker, eid = self._worker, run.task.eid
            item = Publish(eid, None, stream, payload, worker.actor, worker.now_us())
            self._write(run, HoldTask(*self._lease(run)), item)

    def _write(self, run: Run, *commands: Command) -> None:
        """Write something under the lease, behind what was to be written before."""
        run.outbox.append(commands)
        if len(run.outbox) == 1:
            self._worker.spawn(self._write_all(run))

    async def _write_all(self, run: Run) -> None:
        while run.outbox and run in self.running:
            try:
                outcome = await self._worker.committer.apply(*run.outbox[0])
            except StoreUnavailable:
                await self._worker.clock.sleep(RETRY_S)
                continue
            written = run.outbox.popleft()
            if not isinstance(outcome, Done):
                log.info("nobody waits for step %s:%s any more", run.task.eid, run.task.fid)
                run.drop()
                self._forget(run)
            elif not isinstance(written[0], HoldTask):  # the lease is over
                self._forget(run)

    def _lease(self, run: Run) -> tuple[int, str, int]:
        return run.task.task, session_holder(self._worker.session), run.task.epoch

    def _forget(self, run: Run) -> None:
        self.running.pop(run, None)
        self._worker.check_empty()
        self._worker.poke()  # there is a slot for another one

    def drain(self, *, at_once: bool) -> None:
        """Return the tasks to their queues that have not begun; `at_once` those that run, too."""
        for run in list(self.running):
            if at_once or run.attempt is None:
                run.drop()
                self._write(run, NackTask(*self._lease(run), None, self._worker.now_us()))

    def lose(self) -> None:
        """Stop without another write: the leases end with the session."""
        running, self.running = self.running, {}
        for run in running:
            run.drop()
        self._worker.check_empty()

    def lose_execution(self, eid: UUID) -> None:
        """An execution has ended: drop what runs for it."""
        for run in [run for run in self.running if run.task.eid == eid]:
            run.drop()
            self._forget(run)


def _is_async(step: Step) -> bool:
    return step_function(step.function).is_async
