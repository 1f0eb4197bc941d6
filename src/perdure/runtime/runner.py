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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure.errors import (
    Cancelled,
    DuplicateFrameError,
    InvalidArgument,
    NondeterminismError,
    PayloadUnreadable,
    PayloadUnwritable,
    PerdureError,
)
from perdure.model import codec
from perdure.model.entry import FrameAbandoned, FrameCompleted, FrameStarted
from perdure.model.ids import ROOT
from perdure.model.retry import NO_RETRY
from perdure.ports.commands import (
    Command,
    Done,
    Outcome,
    Refused,
    Release,
    RequestCancel,
    Suspend,
    Transition,
)
from perdure.runtime import barriers, recorded, requests
from perdure.runtime.attempt import failure
from perdure.runtime.cancelling import Cancelling
from perdure.runtime.code.replay import Driver
from perdure.runtime.frames import ChildCall, Continue, Frame
from perdure.runtime.journal import Barrier, Effect, OwnedJournal
from perdure.runtime.requests import ENGINE
from perdure.runtime.steps import Steps
from perdure.runtime.transactions import Transactions
from perdure.runtime.waiting import Waiting

if TYPE_CHECKING:
    from perdure.model.memo import MemoTable
    from perdure.model.provenance import Actor
    from perdure.ports.store import Claimed
    from perdure.runtime.registry import Registry
    from perdure.runtime.values import Values
    from perdure.runtime.worker import Worker


log = logging.getLogger("perdure.runner")


class Runner:
    """Runs one execution that a worker owns, until it is released, closed or lost.

    Attributes:
        record: what was asked for.
        epoch: the epoch under which it is owned.
        alive: whether this runner still owns it, as far as it knows.
        draining: whether it starts nothing more, and is about to be released.
    """

    def __init__(self, worker: Worker, claimed: Claimed) -> None:
        self._worker = worker
        self.record = claimed.record
        self.eid: UUID = claimed.record.eid
        self.registry: Registry = worker.registry
        self.actor: Actor = worker.actor
        self.values: Values = worker.values
        self.now_us: Callable[[], int] = worker.now_us
        self.journal: OwnedJournal = OwnedJournal(claimed)
        self.table: MemoTable = self.journal.table
        self.driver: Driver = Driver(self.abandon)
        self.steps = Steps(self, worker)
        self.transactions = Transactions(self, worker)
        self.cancelling: Cancelling = Cancelling(self)
        self.waiting = Waiting(self, worker)
        self._frames: dict[str, Frame[Any]] = {}
        self._opened: list[Frame[Any]] = []
        self._passed: set[str] = set()
        self._begun = False
        self._replaying = False
        self._acquired(claimed)

    def _acquired(self, claimed: Claimed) -> None:
        self.epoch = claimed.epoch
        self.alive = True
        self.draining = False
        self.waiting.acquired(claimed.mail)

    # -- begin -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Go on from where the journal ends: replay the function, if it was not kept."""
        if not self.alive:
            return
        if self._begun:
            self.waiting.serve()
        else:
            self._begun = True
            self._begin_function()
        self.advance()

    def _begin_function(self) -> None:
        recoveries = self.table.recoveries
        if recoveries > self._worker.config.max_recoveries:
            reason = (
                f"it was recovered {recoveries} times without an outcome; find out what kills "
                "its workers, then resume it"
            )
            self.driver.stop(PerdureError(reason))
            return
        try:
            coroutine = self._worker.call_function(self)
        except (InvalidArgument, PayloadUnreadable) as misfit:  # the signature may have changed
            self.driver.stop(misfit)
        else:
            self.driver.begin(coroutine)
            self._replay()

    def _replay(self) -> None:
        self._replaying = True
        self.driver.run()
        for fid in self.table.order:
            if self.driver.stopped is not None:
                break
            self._passed.add(fid)
            frame = self._frames.get(fid)
            if fid == ROOT:
                self.cancelling.deliver()
            elif frame is not None and not frame.done:
                self._deliver_recorded(frame)
            self.driver.run()
        self._replaying = False
        self.begin_opened()

    @property
    def replays(self) -> bool:
        """Whether the journal holds something that the function has not come to yet."""
        return self._replaying and recorded.lies_ahead(self.table, self._passed, self._frames)

    def resume(self, claimed: Claimed) -> None:
        """Go on with what was kept, as `claimed` says that nobody had it meanwhile."""
        self.journal.go_on(claimed.epoch, claimed.journal[-1].seq)
        self._acquired(claimed)
        if self.waiting.read_up_to():
            self.waiting.look()

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
        frame.index = len(self._frames)
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
        if self.cancelling.delivered and self.cancelling.refuse(frame):
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
    def moves(self) -> bool:
        """Whether something is under way that a cancel has to wait for."""
        waits = self.steps.running_unshielded or self.journal.undelivered
        waits = waits or self.transactions.running
        return bool(waits or self.draining or not self._begun)

    @property
    def size(self) -> int:
        """How many frames it has in memory."""
        return len(self._frames)

    def open_frames(self) -> list[Frame[Any]]:
        """Give the frames that are open, in the order of their calls."""
        return [frame for frame in self._frames.values() if not frame.done]

    def has_recorded(self, kind: str) -> bool:
        """Tell whether the journal holds a frame of a kind that the function has not called yet."""
        return any(
            started.kind == kind and fid not in self._frames
            for fid, started in self.table.started.items()
        )

    def block_from_outside(self, reason: Exception) -> None:
        """Drive the function no further: its context was used from elsewhere, maybe a thread."""
        self.driver.stop(reason)
        self._worker.call_soon(self.advance)

    def abandon(self, frame: Frame[Any], reason: str) -> None:
        """Let a frame consume and deliver nothing any more."""
        self.steps.drop(frame)
        self.waiting.waits.remove(frame)
        if frame.recorded and frame.fid not in self.table.abandoned:
            self.journal.append(FrameAbandoned(self.now_us(), frame.fid, reason))
            if frame.child is not None:
                if frame.message is None and frame.child.tied:
                    self.cancel_child(frame.child, ENGINE, f"its frame was abandoned: {reason}")
            else:
                self.steps.detached.withdraw(frame)
                self.waiting.take_back(frame)

    def cancel_child(self, child: ChildCall, by: Actor, reason: str | None) -> None:
        """Ask a child to cancel, with the entries that were appended last."""
        self.journal.also(RequestCancel(child.eid, by, reason, self.now_us()))

    # -- what reaches it ---------------------------------------------------------------------

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
        """Stop without another write: somebody else owns the execution now, or nobody."""
        self._rest()
        self.steps.drop_all()
        self.discard()
        self._worker.released(self)

    def discard(self) -> None:
        """Close the function; it goes on somewhere else by a replay, or has ended."""
        self.driver.close()

    def _rest(self) -> None:
        self.alive = False
        self.waiting.rest()

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
                self._gave_up(handed.barrier)
                return
            try:
                self.journal.settled(outcome.results)
            except PayloadUnreadable as unreadable:  # somebody else has claimed the key
                self.driver.stop(unreadable)
            for delivery in self.journal.deliverable():
                if delivery.frame is None:
                    self.cancelling.deliver()
                elif not delivery.frame.done:
                    delivery.frame.resolve(delivery.value, delivery.error)
                self.driver.run()
            self.begin_opened()
            self.advance()
        elif outcome.code == "wake":
            self.journal.take_back()
            self.waiting.look()
        elif (effect := self.journal.refused_effect(outcome)) is not None:
            self._fail_effect(effect, outcome)
        else:
            self._worker.lease_lost(self, outcome)
            self.lose()

    def _gave_up(self, barrier: Barrier) -> None:
        """The execution is not owned any more; if it is only suspended it may be kept."""
        if isinstance(barrier.guard, Suspend) and self.driver.stopped is None:
            if barrier.guard.timers:
                self._worker.sweeper.expect(barrier.guard.timers[0].due)
            self.waiting.waits.mark()
            self._rest()
            self._worker.released(self)
            self._worker.kept.add(self)
            return
        if isinstance(barrier.guard, Suspend):
            log.warning("execution %s is blocked: %s", self.eid, self.driver.stopped)
        self.lose()

    def _fail_effect(self, effect: Effect, refused: Refused) -> None:
        """The store refuses an effect: nothing was written, and its frame fails instead."""
        target = getattr(effect.command, "eid", self.eid)
        error = requests.refusal(target, refused)
        failed = failure(NO_RETRY, effect.frame.fid, 1, error, now=self.now_us())
        final = recorded.step_failed(failed)
        final.__cause__ = error
        self.journal.take_back()
        self.journal.fail_effect(effect, failed, final)
        self.advance()

    @property
    def giving_up(self) -> bool:
        """Whether the committer has what gives the execution up."""
        handed = self.journal.handed
        return handed is not None and handed.barrier is not None

    # -- frames ------------------------------------------------------------------------------

    def begin_opened(self) -> None:
        """Begin the frames that the last drives opened, and those that waited for durability."""
        ended = self.driver.ended
        if self.waiting.told and not ended:
            return
        opened, self._opened = self._opened, []
        if not self.alive or self.driver.stopped is not None:
            return
        cancel = self.cancelling
        for frame in opened:
            if frame.done or (cancel.request is not None and cancel.holds(frame)):
                continue
            if frame.effect is not None:
                self._begin_effect(frame, frame.effect)
            elif not ended or (frame.child is not None and not frame.child.tied):
                self._begin_frame(frame)
        if not ended:
            self.steps.request_held()

    def _begin_effect(self, frame: Frame[Any], effect: Callable[[int], Command]) -> None:
        """Append an effect; it counts even if the function has ended and nobody awaits it."""
        if self.driver.ended or not self.draining:
            frame.recorded = True
            now = self.now_us()
            self.journal.append_effect(frame, effect(now), now)

    def _begin_frame(self, frame: Frame[Any]) -> None:
        if frame.kind == "step":
            retry_at = self.table.retry_at.get(frame.fid)
            if retry_at is not None:
                self.waiting.back_off(frame, retry_at)
            else:
                self.steps.request(frame)
            return
        if not frame.recorded:
            frame.recorded = True
            now, fid = self.now_us(), frame.fid
            entry = FrameStarted(now, fid, 1, frame.kind, frame.name, frame.digest, frame.deadline)
            self.journal.append(entry)
            if frame.child is not None:
                self.journal.also(frame.child.create(now))
        self.waiting.add(frame)

    def _deliver_recorded(self, frame: Frame[Any]) -> None:
        """Deliver the outcome that the journal holds."""
        try:
            value, error = recorded.outcome(self.table, frame, self.values)
        except (NondeterminismError, PayloadUnreadable) as misfit:
            self.driver.stop(misfit)
        else:
            frame.resolve(value, error)

    # -- what comes next ---------------------------------------------------------------------

    def advance(self) -> None:
        """Hand over what waits; if nothing moves any more, give the execution up."""
        if not self.alive or self.journal.handed is not None:
            return
        if self.cancelling.request is not None:
            self.cancelling.append()
        if self.transactions.waiting and self.transactions.begin():
            return
        if self.journal.waiting or self.driver.ended or not self._busy():
            self._worker.committer.touch(self)
        if self.waiting.waits.frames or self.waiting.alarm is not None:
            self.waiting.set_alarm(busy=self._busy())

    def _busy(self) -> bool:
        """Tell whether something of this execution still moves by itself."""
        if (
            self.steps.running
            or self.journal.undelivered
            or self.waiting.looking
            or self.transactions.running
            or not self._begun
        ):
            return True
        if self.draining or self.driver.stopped is not None:
            return False
        return self.steps.waiting or bool(self.transactions.waiting)

    def _barrier(self) -> Barrier | None:
        """Decide whether the next transition gives the execution up, and how."""
        stopped = self.driver.stopped
        ended = stopped is None and self.driver.ended
        if not ended and self._busy():
            return None
        worker, request, waiting = self._worker, self.cancelling.request, self.waiting
        eid, epoch, site, now = self.eid, self.epoch, worker.site, self.now_us()
        if ended:
            return self._ending(site, now)
        if stopped is not None and request is not None:
            return barriers.cancel(eid, epoch, request, site=site, now=now)
        if self.draining:
            return Barrier(Release(eid, worker.session, epoch, "drain", now))
        if stopped is not None:
            return barriers.block(eid, epoch, waiting.wake, str(stopped), site=site, now=now)
        return barriers.suspension(
            eid, epoch, waiting.wake, waiting.waits, waiting.read_up_to(), site=site, now=now
        )

    def _ending(self, site: int, now: int) -> Barrier | None:
        """Decide how the execution ends, as its function has ended."""
        root, request = self.driver.root, self.cancelling.request
        assert root is not None  # noqa: S101 - what has ended was begun
        self.steps.drop_all()
        eid, epoch, error = self.eid, self.epoch, root.error
        swallowed = error is None or isinstance(error, Cancelled | Continue)
        if request is not None and self.cancelling.delivered and swallowed:
            return barriers.cancel(eid, epoch, request, site=site, now=now)
        if isinstance(error, Continue):
            record = requests.successor(self.record, error.encoded, by=self.actor, now=now)
            returned = self.waiting.mailbox.returned
            return barriers.succession(eid, epoch, record, returned, site=site, now=now)
        workflow = self.record.workflow
        given = (root.value, error)
        try:
            return barriers.end(eid, epoch, workflow, given, self.values, site=site, now=now)
        except PayloadUnwritable as reason:
            self.driver.stop(reason)
            return self._barrier()
