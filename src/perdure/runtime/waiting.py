"""How do the frames of one execution wait? Mail, messages, due instants, and the wait set.

Part of a runner: it appends what is fulfilled to the runner's journal, and asks the runner to go
on. The owner is told when something is sent to the execution; what is sent on a global channel it
learns by a look, which every frame that waits on one begins with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.errors import NondeterminismError, PayloadUnreadable
from perdure.model.entry import FrameFulfilled
from perdure.ports.commands import Consume
from perdure.runtime import recorded
from perdure.runtime.mailbox import Mailbox
from perdure.runtime.waits import Waits

if TYPE_CHECKING:
    from perdure.ports.store import Mail
    from perdure.runtime.alarms import Alarm
    from perdure.runtime.frames import Frame
    from perdure.runtime.runner import Runner
    from perdure.runtime.worker import Worker

GLOBAL = "channel:"


class Waiting:
    """The frames of one execution that wait, and what reaches them.

    Attributes:
        waits: the frames that wait.
        mailbox: the messages that are unread.
        wake: the wake counter that was read with, or before, the messages.
        looking: whether a look is under way.
        told: whether something has reached the execution that was not read yet: maybe a cancel, so
            no frame begins before it is.
        alarm: what rings when the next wait is due, if any.
    """

    def __init__(self, runner: Runner, worker: Worker) -> None:
        """Prepare for the waits of `runner`."""
        self._runner = runner
        self._worker = worker
        self._journal = runner.journal
        self.waits = Waits()
        self.mailbox = Mailbox(runner.table)
        self.alarm: Alarm | None = None

    def acquired(self, mail: Mail) -> None:
        """Begin under a new epoch, with the mail of the acquisition."""
        self.looking = False
        self.told = False
        self._look_again = False
        self._asked: set[str] = set()
        self._heard: set[str] = set()
        self._accept(mail)

    def rest(self) -> None:
        """Wait no more: the execution is owned by nobody, or by somebody else."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    # -- what reaches it ---------------------------------------------------------------------

    def notice(self, wake: int | None = None) -> None:
        """Take notice that something reached it: its wake counter is `wake`, if that is known.

        A message on a global channel does not raise the counter of an execution that is owned.
        """
        if self._runner.alive and (wake != self.wake or self.waits.global_channels):
            self.told = True
            self.look()

    def hear(self, channels: tuple[str, ...]) -> None:
        """Take notice that global channels got messages."""
        keys = self.waits.global_channels
        if self._runner.alive and any(GLOBAL + channel in keys for channel in channels):
            self.look()

    def look(self) -> None:
        """Read the wake counter and the channels again, then go on with what is found."""
        self._look_again = self.looking  # what is being read now may be older than the reason
        if not self.looking:
            self.looking = True
            self._worker.read_mail(self._runner)

    def channels(self) -> dict[str, int]:
        """Name the global channels to look at, each with the number up to which it is known."""
        keys = self.waits.global_channels
        self._asked = set(keys)
        return {key.removeprefix(GLOBAL): self.mailbox.consumed(key) for key in keys}

    def looked(self, mail: Mail | None) -> None:
        """Take what a look found; ``None`` if the store does not know the execution."""
        runner = self._runner
        self.looking = False
        self._heard |= self._asked
        if self._look_again:
            self.look()
        else:
            self.told = False
        if not runner.alive:
            return
        if mail is not None:
            self._accept(mail)
        if not runner.giving_up and runner.driver.stopped is None:
            self.serve()
            runner.begin_opened()
        runner.advance()

    def _accept(self, mail: Mail) -> None:
        self.wake = mail.wake
        self._runner.cancelling.notice(mail.cancel)
        for message in mail.messages:
            self.mailbox.accept(message.channel, message)
        for message in mail.heard:
            self.mailbox.accept(GLOBAL + message.channel, message)

    # -- frames ------------------------------------------------------------------------------

    def add(self, frame: Frame[Any]) -> None:
        """Let a frame wait, unless what it waits for is there."""
        frame.on = self._condition(frame)
        self.waits.add(frame)
        self._serve_one(frame, self._runner.now_us())
        if frame.on == frame.channel and frame in self.waits:
            self.look()  # nobody tells an owner of global messages before it waits for them

    def back_off(self, frame: Frame[Any], retry_at: int) -> None:
        """Let a failed step wait until its next attempt is due."""
        frame.deadline = retry_at
        self.add(frame)

    def take_back(self, frame: Frame[Any]) -> None:
        """Take back a message that a frame has consumed, but not delivered."""
        if frame.message is not None:
            self.mailbox.put_back(frame.channel, frame.message)
            self.look()

    def _condition(self, frame: Frame[Any]) -> str:
        """Say what a frame waits on, as the journal names it."""
        if frame.child is not None:
            return f"child:{frame.child.eid}"
        if frame.kind == "step" and frame.channel:
            return f"step:{frame.fid}"
        if not frame.channel:
            return f"timer:{frame.fid}"
        scoped = not frame.channel.startswith(GLOBAL)
        return f"channel:{self._runner.eid}.{frame.channel}" if scoped else frame.channel

    def serve(self) -> None:
        """Fulfil the waits whose conditions are met, in the order of their calls."""
        now = self._runner.now_us()
        for frame in self.waits.ready(self.mailbox.unread(), now):
            self._serve_one(frame, now)

    def _serve_one(self, frame: Frame[Any], now: int) -> None:
        """Fulfil a wait if its condition is met; a message goes before a timeout."""
        runner = self._runner
        if runner.cancelling.holds(frame):
            return
        if frame.on == frame.channel and frame.on not in self._heard:
            return  # a look is under way that tells of its messages
        due = frame.deadline is not None and frame.deadline <= now
        if frame.kind == "step":
            self._serve_step(frame, now, due=due)
            return
        message = self.mailbox.take(frame.channel) if frame.channel else None
        if message is None and not due:
            return
        try:
            value, error = recorded.outcome_of_wait(frame, message, runner.values)
        except (NondeterminismError, PayloadUnreadable) as misfit:
            runner.driver.stop(misfit)
            return
        self.waits.remove(frame)
        frame.message = message
        if message is not None and frame.on != frame.channel:
            self._journal.also(Consume(runner.eid, frame.channel, message.seq))
        entry = FrameFulfilled(now, frame.fid, 1, frame.on, message)
        self._journal.append_outcome(frame, entry, value, error)

    def _serve_step(self, frame: Frame[Any], now: int, *, due: bool) -> None:
        """Take the outcome of a step that ran elsewhere, or try one again that has failed."""
        if frame.channel:
            message = self.mailbox.take(frame.channel)
            if message is not None:
                self._runner.steps.answered(frame, message)
        elif due and not self._runner.draining:
            self._retry(frame, now)

    def _retry(self, frame: Frame[Any], now: int) -> None:
        """The delay of a step that failed is over."""
        self.waits.remove(frame)
        if frame.suspended is not None:
            entry = FrameFulfilled(now, frame.fid, frame.attempts, frame.suspended)
            self._journal.append(entry)
            frame.suspended = None
        self._runner.steps.request(frame)

    # -- the wait set ------------------------------------------------------------------------

    def read_up_to(self) -> tuple[tuple[str, int], ...]:
        """Give the global channels that frames wait on, and how far each was read."""
        keys = self.waits.global_channels
        return tuple((key.removeprefix(GLOBAL), self.mailbox.consumed(key)) for key in keys)

    def set_alarm(self, *, busy: bool) -> None:
        """While the execution is owned its timers are ours: look again when the next is due."""
        runner = self._runner
        self.rest()
        due = self.waits.next_due(runner.cancelling.holds)
        served = not runner.draining and runner.driver.stopped is None
        if due is not None and served and busy:
            seconds = (due - runner.now_us()) / 1e6
            self.alarm = self._worker.alarms.after(seconds, self.look)
