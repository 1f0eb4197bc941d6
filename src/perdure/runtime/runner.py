"""How does one owned execution run? Frames, attempts, waits, suspension, and the end.

A runner is a state machine on the event loop, not a task. What happened to it (an outcome that is
durable, mail, an alarm) calls one of its methods; the method changes its state and ends in
`advance`, which decides what is handed to the committer next. The runner alone numbers entries.

Rules it must keep: an outcome is delivered to the function only when it is durable, in the order of
the journal; no attempt starts before everything the function has seen is durable; a transition that
releases or ends the execution is a barrier, behind which nothing is handed over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure.errors import (
    DuplicateFrameError,
    InvalidArgument,
    NondeterminismError,
    PerdureError,
)
from perdure.model import codec
from perdure.model.entry import (
    FrameAbandoned,
    FrameCompleted,
    FrameFulfilled,
    FrameStarted,
)
from perdure.ports.commands import Consume, Done, Outcome, Release, Transition
from perdure.runtime import barriers, recorded
from perdure.runtime.code.replay import Driver
from perdure.runtime.frames import Frame
from perdure.runtime.journal import Barrier, OwnedJournal
from perdure.runtime.mailbox import Mailbox
from perdure.runtime.steps import Steps

if TYPE_CHECKING:
    from perdure.ports.store import Claimed, Mail
    from perdure.runtime.alarms import Alarm
    from perdure.runtime.worker import Worker


log = logging.getLogger("perdure.runner")


class Runner:
    """Runs one execution that a worker owns, until it is released, closed or lost.

    Attributes:
        record: what was asked for.
        epoch: the epoch under which it is owned.
        wake: the wake counter that was read with, or before, the channels.
        alive: whether this runner still owns it, as far as it knows.
        draining: whether it starts nothing more, and is about to be released.
    """

    def __init__(self, worker: Worker, claimed: Claimed) -> None:
        self._worker = worker
        self.record = claimed.record
        self.eid: UUID = claimed.record.eid
        self.epoch = claimed.epoch
        self.wake = claimed.mail.wake
        self.alive = True
        self.now_us = worker.now_us
        self.journal: OwnedJournal = OwnedJournal(claimed)
        self.table = self.journal.table
        self.driver: Driver = Driver(self.abandon)
        self._frames: dict[str, Frame[Any]] = {}
        self._opened: list[Frame[Any]] = []
        self._waits: dict[str, Frame[Any]] = {}
        self.steps = Steps(self, worker)
        self._passed: set[str] = set()
        self._mailbox = Mailbox(self.table, claimed.mail.messages)
        self._alarm: Alarm | None = None
        self._begun = False
        self._looking = False
        self._look_again = False
        self.draining = False

    # -- begin -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the function, replay it to where the journal ends, and go on from there."""
        self._begun = True
        if not self.alive:
            return
        recoveries = self.table.recoveries
        if recoveries > self._worker.config.max_recoveries:
            reason = (
                f"it was recovered {recoveries} times without an outcome; find out what kills "
                "its workers, then send it a message"
            )
            self.driver.stop(PerdureError(reason))
        else:
            try:
                coroutine = self._worker.call_function(self)
            except InvalidArgument as misfit:  # the signature changed under a live execution
                self.driver.stop(misfit)
            else:
                self.driver.begin(coroutine)
                self._replay()
        self.advance()

    def _replay(self) -> None:
        self.driver.run()
        for fid in self.table.order:
            if self.driver.stopped is not None:
                break
            self._passed.add(fid)
            frame = self._frames.get(fid)
            if frame is not None and not frame.done:
                self._deliver_recorded(frame)
                self.driver.run()
        self._begin_opened()

    # -- what the context asks ---------------------------------------------------------------

    def open(self, frame: Frame[Any]) -> bool:
        """Take a frame that the function has just called.

        Returns:
            Whether the frame is live; else it was or will be delivered from the journal, or the
            function is not driven any more.

        Raises:
            DuplicateFrameError: if its id is taken.
        """
        fid = frame.fid
        if fid in self._frames:
            raise DuplicateFrameError(fid)
        self._frames[fid] = frame
        table = self.table
        started = table.started.get(fid)
        if started is not None:
            difference = recorded.difference(started, frame)
            if difference is not None:
                self.driver.stop(NondeterminismError(fid, difference))
                return False
            frame.recorded = True
            frame.deadline = started.deadline
            frame.attempts = len(table.failures.get(fid, ()))
            frame.suspended = table.suspended.get(fid)
            frame.message = recorded.message_of(table, fid)
            if fid in table.abandoned:
                return False
            if self.journal.has_outcome(fid):
                if fid in self._passed:
                    self._deliver_recorded(frame)
                return False
        return self.driver.stopped is None

    def start(self, frame: Frame[Any]) -> None:
        """Begin a live frame as soon as the drive is over."""
        self._opened.append(frame)

    def record_inline(self, frame: Frame[Any], value: Any, *, gate: bool) -> None:
        """Append both entries of a frame whose value is returned at the call.

        With `gate` no attempt starts before they are durable: the value cannot be derived again.
        """
        now = self.now_us()
        self.journal.append(FrameStarted(now, frame.fid, 1, frame.kind, frame.name, frame.digest))
        memo = codec.encode(frame.fid, value)
        seq = self.journal.append(FrameCompleted(now, frame.fid, 1, memo))
        if gate:
            self.steps.gate_seq = seq

    @property
    def over(self) -> bool:
        """Whether nothing is to start any more: the function has ended, or is not driven."""
        return not self.alive or self.driver.ended or self.driver.stopped is not None

    @property
    def waits(self) -> bool:
        """Whether a frame waits for something while others run."""
        return bool(self._waits)

    def block_from_outside(self, reason: Exception) -> None:
        """Drive the function no further: its context was used from elsewhere, maybe a thread."""
        self.driver.stop(reason)
        self._worker.call_soon(self.advance)

    def abandon(self, frame: Frame[Any], reason: str) -> None:
        """Let a frame consume and deliver nothing any more."""
        self.steps.drop(frame)
        self._waits.pop(frame.fid, None)
        if frame.recorded and frame.fid not in self.table.abandoned:
            self.journal.append(FrameAbandoned(self.now_us(), frame.fid, reason))
            if frame.message is not None:  # consumed, but the function was not told of it
                self._mailbox.put_back(frame.message)
                self.look()

    # -- what reaches it ---------------------------------------------------------------------

    def notice(self, wake: int | None = None) -> None:
        """Take notice that something reached it: its wake counter is `wake`, if that is known."""
        if self.alive and wake != self.wake:
            self.look()

    def look(self) -> None:
        """Read the wake counter and the channels again, then go on with what is found."""
        self._look_again = self._looking  # what is being read now may be older than the reason
        if not self._looking:
            self._looking = True
            self._worker.read_mail(self)

    def looked(self, mail: Mail | None) -> None:
        """Take what a look found; ``None`` if the store does not know the execution."""
        self._looking = False
        if self._look_again:
            self.look()
        if not self.alive:
            return
        if mail is not None:
            self.wake = mail.wake
            self._mailbox.accept(mail.messages)
        if not self._giving_up and self.driver.stopped is None:
            now = self.now_us()
            for frame in list(self._waits.values()):
                self._serve(frame, now)
        self.advance()

    def drain(self, *, at_once: bool = False) -> None:
        """Start nothing more, and release the execution when what runs has ended, or at once."""
        self.draining = True
        if at_once:
            self.steps.drop_all()
        self.advance()

    def fail(self, error: Exception) -> None:
        """Give up without another write: this is a defect of perdure, not of the function.

        The session still owns the execution; two beats later it is released.
        """
        log.error("execution %s could not go on here", self.eid, exc_info=error)
        self.lose()

    def lose(self) -> None:
        """Stop without another write: somebody else owns the execution now."""
        self.alive = False
        if self._alarm is not None:
            self._alarm.cancel()
        self.steps.drop_all()
        self.driver.close()
        self._worker.released(self)

    # -- the committer -----------------------------------------------------------------------

    def take(self) -> Transition | None:
        """Give the committer what is to be written now, as one transition."""
        if not self.alive or self.journal.handed is not None:
            return None
        return self.journal.hand_over(self._barrier(), self._worker.site)

    def settle(self, outcome: Outcome) -> None:
        """Take the committer's answer to what `take` gave."""
        handed = self.journal.handed
        if not self.alive or handed is None:
            return
        if isinstance(outcome, Done):
            if handed.barrier is not None:
                if self.driver.stopped is not None and not self.draining:
                    log.warning("execution %s is blocked: %s", self.eid, self.driver.stopped)
                self.lose()
                return
            self.journal.settled()
            for frame, value, error in self.journal.deliverable():
                if not frame.abandoned:
                    frame.resolve(value, error)
                    self.driver.run()
            self._begin_opened()
            self.advance()
        elif outcome.code == "wake":
            self.journal.take_back()
            self.look()
        else:
            self._worker.lease_lost(self, outcome)
            self.lose()

    @property
    def _giving_up(self) -> bool:
        handed = self.journal.handed
        return handed is not None and handed.barrier is not None

    # -- frames ------------------------------------------------------------------------------

    def _begin_opened(self) -> None:
        """Begin the frames that the last drives opened, and those that waited for durability."""
        opened, self._opened = self._opened, []
        if self.over:
            return
        for frame in opened:
            if not frame.abandoned:
                self._begin_frame(frame)
        self.steps.request_held()

    def _begin_frame(self, frame: Frame[Any]) -> None:
        if frame.kind == "step":
            retry_at = self.table.retry_at.get(frame.fid)
            if retry_at is not None:
                self.back_off(frame, retry_at)
            else:
                self.steps.request(frame)
            return
        if not frame.recorded:
            frame.recorded = True
            now, fid = self.now_us(), frame.fid
            entry = FrameStarted(now, fid, 1, frame.kind, frame.name, frame.digest, frame.deadline)
            self.journal.append(entry)
        receives = frame.kind == "receive"
        self._wait(frame, f"channel:{self.eid}.{frame.channel}" if receives else _timer(frame))

    def _deliver_recorded(self, frame: Frame[Any]) -> None:
        """Deliver the outcome that the journal holds."""
        try:
            value, error = recorded.outcome(self.table, frame)
        except NondeterminismError as misfit:
            self.driver.stop(misfit)
        else:
            frame.resolve(value, error)

    def back_off(self, frame: Frame[Any], retry_at: int) -> None:
        """Let a failed step wait until its next attempt is due."""
        frame.deadline = retry_at
        self._wait(frame, _timer(frame))

    # -- waits -------------------------------------------------------------------------------

    def _wait(self, frame: Frame[Any], on: str) -> None:
        """Let a frame wait, unless what it waits for is there."""
        frame.on = on
        self._waits[frame.fid] = frame
        self._serve(frame, self.now_us())

    def _serve(self, frame: Frame[Any], now: int) -> None:
        """Fulfil a wait if its condition is met; a message goes before a timeout."""
        due = frame.deadline is not None and frame.deadline <= now
        if frame.kind == "step":
            if due and not self.draining:
                del self._waits[frame.fid]
                if frame.suspended is not None:
                    self.journal.append(
                        FrameFulfilled(now, frame.fid, frame.attempts, frame.suspended)
                    )
                    frame.suspended = None
                self.steps.request(frame)
            return
        frame.message = message = self._mailbox.take(frame.channel)  # a sleep has no channel
        if message is not None:
            self.journal.also(Consume(self.eid, frame.channel, message.seq))
        elif not due:
            return
        del self._waits[frame.fid]
        entry = FrameFulfilled(now, frame.fid, 1, frame.on, message)
        self.journal.append_outcome(frame, entry, recorded.value_of_wait(frame, message), None)

    def _set_alarm(self) -> None:
        """While the execution is owned its timers are ours: look again when the next is due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        dues = [f.deadline for f in self._waits.values() if f.deadline is not None]
        served = not self.draining and self.driver.stopped is None
        if dues and served and self._busy():
            seconds = (min(dues) - self.now_us()) / 1e6
            self._alarm = self._worker.alarms.after(seconds, self.look)

    # -- what comes next ---------------------------------------------------------------------

    def advance(self) -> None:
        """Hand over what waits; if nothing moves any more, give the execution up."""
        if not self.alive or self.journal.handed is not None:
            return
        if self.journal.waiting or self.driver.ended or not self._busy():
            self._worker.committer.touch(self)
        if self._waits or self._alarm is not None:
            self._set_alarm()

    def _busy(self) -> bool:
        """Tell whether something of this execution still moves by itself."""
        if self.steps.running or self.journal.undelivered or self._looking or not self._begun:
            return True
        if self.draining or self.driver.stopped is not None:
            return False
        return self.steps.waiting

    def _barrier(self) -> Barrier | None:
        """Decide whether the next transition gives the execution up, and how."""
        root, stopped = self.driver.root, self.driver.stopped
        ended = stopped is None and self.driver.ended
        if not ended and self._busy():
            return None
        worker = self._worker
        site, now = worker.site, self.now_us()
        if ended and root is not None:
            self.steps.drop_all()
            name = self.record.workflow
            return barriers.end(
                self.eid, self.epoch, name, root.value, root.error, site=site, now=now
            )
        if self.draining:
            return Barrier(Release(self.eid, worker.session, self.epoch, "drain", now))
        if stopped is not None:
            return barriers.block(self.eid, self.epoch, self.wake, str(stopped), site=site, now=now)
        waits = self._waits.values()
        return barriers.suspension(self.eid, self.epoch, self.wake, waits, site=site, now=now)


def _timer(frame: Frame[Any]) -> str:
    return f"timer:{frame.fid}"
