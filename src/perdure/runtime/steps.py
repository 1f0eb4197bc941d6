"""How do the steps of one execution run? Slots, attempts, timeouts and retries.

Part of a runner: it appends what happens to the runner's journal, and asks the runner to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw

from perdure.errors import (
    NotSerializable,
    PayloadTooLarge,
    PayloadUnreadable,
    PayloadUnwritable,
    StepTimeout,
)
from perdure.model import codec
from perdure.model.entry import FrameCompleted, FrameFailed, FrameStarted, PackedMessage
from perdure.model.instants import from_us
from perdure.ports.commands import Publish
from perdure.runtime import recorded
from perdure.runtime.attempt import Attempt, StepInfo, describe_error, failure, failure_entry
from perdure.runtime.detached import DetachedFrames, read_outcome
from perdure.runtime.frames import Detached, Frame, StepCall

if TYPE_CHECKING:
    from perdure.runtime.runner import Runner
    from perdure.runtime.worker import Worker


class Steps:
    """The steps of one execution that run, or wait for a slot or for durability.

    Attributes:
        gate_seq: no attempt starts before the entry of this number is durable.
        detached: those that other workers run.
    """

    def __init__(self, runner: Runner, worker: Worker) -> None:
        """Prepare for the steps of `runner`."""
        self._runner = runner
        self._worker = worker
        self._journal = runner.journal
        self._key = f"{runner.eid}:"
        self._checked_above = runner.values.checked_above
        self._running: dict[Attempt, Frame[Any]] = {}
        self._held: list[Frame[Any]] = []
        self._queued = 0
        self.gate_seq = 0
        self.detached = DetachedFrames(runner)

    @property
    def running(self) -> bool:
        """Whether an attempt runs."""
        return bool(self._running)

    @property
    def running_unshielded(self) -> bool:
        """Whether an attempt runs that a cancel has to wait for."""
        return any(not frame.shielded for frame in self._running.values())

    @property
    def waiting(self) -> bool:
        """Whether a step waits for a slot, or for something to become durable."""
        return bool(self._queued or self._held)

    def request(self, frame: Frame[Any]) -> None:
        """Ask for a slot, unless something that the function has seen is not durable yet."""
        runner = self._runner
        if runner.draining or self._is_off(frame):
            return
        call = _call_of(frame)
        if call.place is not None:
            if isinstance(call.place, Detached):
                self.detached.begin(frame, call, call.place)
            else:
                runner.transactions.request(frame)
            return
        if self._journal.durable_seq < self.gate_seq:
            self._held.append(frame)
            return
        self._queued += 1
        slots = self._worker.slots_for(call)
        slots.request(runner.record.options.priority, self._start, frame)

    def _is_off(self, frame: Frame[Any]) -> bool:
        """Whether a frame is not to run: it is done, or a cancel is on its way to it."""
        if frame.done:
            return True
        cancelling = self._runner.cancelling
        return cancelling.request is not None and cancelling.holds(frame)

    def request_held(self) -> None:
        """Ask again for those that waited for something to become durable."""
        if self._held:
            held, self._held = self._held, []
            for frame in held:
                self.request(frame)

    def drop(self, frame: Frame[Any]) -> None:
        """Let the attempt of a frame, if one runs, report nothing any more."""
        attempt, frame.attempt = frame.attempt, None
        if attempt is not None:
            self._running.pop(attempt, None)
            attempt.drop()

    def drop_all(self) -> None:
        """Let no attempt report anything any more."""
        for frame in list(self._running.values()):
            self.drop(frame)

    def _start(self, frame: Frame[Any]) -> bool:
        """Start an attempt in the slot that was granted; tell whether it took it."""
        self._queued -= 1
        runner, worker = self._runner, self._worker
        if runner.over or runner.draining or self._is_off(frame):
            return False
        call = _call_of(frame)
        fid, number, started_at = frame.fid, frame.attempts + 1, runner.now_us()
        frame.recorded = True
        self._journal.append(
            FrameStarted(started_at, fid, number, frame.kind, frame.name, frame.digest)
        )
        key = self._key + fid
        info = StepInfo(runner.eid, fid, number, key, from_us(started_at), self._publish)
        attempt = Attempt(call, info, self._finished, worker.slots_for(call).release)
        frame.attempt = attempt
        self._running[attempt] = frame
        if call.timeout_us is not None:
            seconds = call.timeout_us / 1e6
            worker.alarms.after(seconds, lambda: self._timed_out(attempt, seconds))
        worker.start_attempt(attempt)
        worker.committer.touch(runner)
        return True

    def _publish(self, info: StepInfo, stream: str, value: Raw) -> None:
        """Add an item to a stream for an attempt, with the runner's next transition."""
        runner = self._runner
        payload = bytes(runner.values.seal(f"an item of {info.fid}", value))

        def add() -> None:
            if runner.alive and any(attempt.info is info for attempt in self._running):
                now, epoch = runner.now_us(), runner.epoch
                self._journal.also(Publish(runner.eid, epoch, stream, payload, runner.actor, now))
                self._worker.committer.touch(runner)

        self._worker.on_loop(add)

    def _timed_out(self, attempt: Attempt, seconds: float) -> None:
        frame = self._running.get(attempt)
        if frame is not None:
            self.drop(frame)
            self._failed(frame, attempt.info.attempt, StepTimeout(frame.fid, seconds))
            self._runner.advance()

    def _finished(self, attempt: Attempt, value: Any, error: BaseException | None) -> None:
        """Take the outcome of an attempt."""
        frame = self._running.pop(attempt)
        frame.attempt = None
        number = attempt.info.attempt
        if error is None:
            try:
                memo, seen = codec.settle(frame.fid, value, frame.decoder)
                if len(memo) > self._checked_above:
                    memo = self._runner.values.seal(frame.fid, memo)
            except (NotSerializable, PayloadTooLarge) as refused:
                error = refused
            except PayloadUnwritable as unwritable:  # the step has not failed: it runs once more
                self._runner.driver.stop(unwritable)
            else:
                entry = FrameCompleted(self._runner.now_us(), frame.fid, number, memo)
                self._journal.append_outcome(frame, entry, seen, None)
        if error is not None:
            self._failed(frame, number, error)
        self._runner.advance()

    def answered(self, frame: Frame[Any], message: PackedMessage) -> None:
        """Take the outcome of an attempt that another worker has run."""
        runner, fid = self._runner, frame.fid
        try:
            plain = runner.values.open(fid, read_outcome(message.payload).value)
        except PayloadUnreadable as unreadable:
            runner.driver.stop(unreadable)
            return
        outcome, now = self.detached.answered(frame, message), runner.now_us()
        number = outcome.attempt
        described = (outcome.error_type or "", outcome.message, outcome.traceback)
        retry = _call_of(frame).retry
        again = not outcome.final and retry.retries_classes(outcome.classes)
        if outcome.error_type is None:
            try:
                seen = (frame.decoder or codec.decode)(plain)
            except Exception as error:  # noqa: BLE001 - the annotation of the caller's own code
                described, again = describe_error(error), False
            else:
                entry = FrameCompleted(now, fid, number, outcome.value)
                self._journal.append_outcome(frame, entry, seen, None)
                return
        failed = failure_entry(retry, fid, number, described, again=again, now=now)
        self._append_failure(frame, failed, None)

    def _failed(self, frame: Frame[Any], number: int, error: BaseException) -> None:
        retry = _call_of(frame).retry
        entry = failure(retry, frame.fid, number, error, now=self._runner.now_us())
        self._append_failure(frame, entry, error)

    def _append_failure(
        self, frame: Frame[Any], entry: FrameFailed, error: BaseException | None
    ) -> None:
        frame.attempts = entry.attempt
        if not entry.retryable:
            final = recorded.step_failed(entry)
            final.__cause__ = error
            self._journal.append_outcome(frame, entry, None, final)
            return
        self._journal.append(entry)
        if entry.retry_at is None:
            self.request(frame)
        else:
            self._runner.waiting.back_off(frame, entry.retry_at)


def _call_of(frame: Frame[Any]) -> StepCall:
    assert frame.call is not None, "a step frame has a call"  # noqa: S101 - an invariant
    return frame.call
