"""How does a step write in the transaction that commits its memo? The runner lends its place to it.

Part of a runner. A transaction counts as handed to the committer: it begins when everything before
it is durable, and nothing of the execution is handed over until it has ended. It takes two numbers
of the journal, for ``frame.started`` and the outcome; what is appended meanwhile comes behind.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from perdure.errors import NotSerializable, StepTimeout, StoreUnavailable
from perdure.model import codec
from perdure.model.entry import FrameCompleted, FrameStarted, pack
from perdure.model.instants import from_us
from perdure.ports.commands import Append, Done, Outcome, Transition
from perdure.ports.store import OutOfTime
from perdure.runtime import recorded
from perdure.runtime.attempt import CURRENT_STEP, StepInfo, failure
from perdure.runtime.frames import Frame, StepCall

if TYPE_CHECKING:
    from perdure.runtime.runner import Runner
    from perdure.runtime.worker import Worker

RETRY_S = 0.5


class InTransaction:
    """That a step runs in the transaction of its memo, and how many seconds it may take."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Transactions:
    """The transactional steps of one execution: one at a time.

    Attributes:
        waiting: those that wait for their turn.
        running: whether one runs.
    """

    def __init__(self, runner: Runner, worker: Worker) -> None:
        """Prepare for the steps of `runner`."""
        self._runner = runner
        self._worker = worker
        self.waiting: deque[Frame[Any]] = deque()
        self.running = False

    def request(self, frame: Frame[Any]) -> None:
        """Let a step run when its turn comes."""
        self.waiting.append(frame)

    def begin(self) -> bool:
        """Begin the next one if there is one and everything before it is durable."""
        runner = self._runner
        waiting = self.waiting
        while waiting and (waiting[0].done or runner.cancelling.holds(waiting[0])):
            waiting.popleft()
        if not waiting or runner.over or runner.draining or not runner.journal.settled_all:
            return False
        frame = waiting.popleft()
        call = frame.call
        assert call is not None  # noqa: S101 - a step frame has a call
        self.running = True
        frame.recorded = True
        first = runner.journal.reserve()
        self._worker.spawn(self._run(frame, call, first))
        return True

    async def _run(self, frame: Frame[Any], call: StepCall, first: int) -> None:
        """Make the transaction; a store that cannot be reached is asked again."""
        place, runner, store = call.place, self._runner, self._worker.store
        assert isinstance(place, InTransaction)  # noqa: S101 - nothing else comes here
        attempt = Attempted(runner, frame, call, first, self._worker.site)
        error: BaseException | None = None
        outcome: Outcome | None = None
        while outcome is None and error is None:
            try:
                outcome = await store.transact(attempt.run, place.seconds)
            except StoreUnavailable:
                await self._worker.clock.sleep(RETRY_S)
            except OutOfTime:
                error = StepTimeout(frame.fid, place.seconds)
            except Exception as raised:  # noqa: BLE001 - whatever ends a step is its outcome
                error = raised
            if not runner.alive:
                return
        self._worker.call_soon(lambda: self._ended(attempt, outcome, error))

    def _ended(
        self, attempt: Attempted, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Take what came of it; the function is driven on, so this is never inside a task."""
        runner, frame = self._runner, attempt.frame
        self.running = False
        if not runner.alive:
            return
        if isinstance(outcome, Done):
            runner.journal.settled_reserved()
            self._worker.changed()
            frame.resolve(attempt.value)
            runner.driver.run()
            runner.begin_opened()
        elif outcome is not None:
            self._worker.lease_lost(runner, outcome)
            runner.lose()
            return
        else:
            assert error is not None  # noqa: S101 - one of the two
            self._failed(attempt, error)
        runner.advance()

    def _failed(self, attempt: Attempted, error: BaseException) -> None:
        runner, frame, number = self._runner, attempt.frame, attempt.number
        retry = attempt.call.retry
        entry = failure(retry, frame.fid, number, error, now=runner.now_us())
        frame.attempts = number
        final = None
        if not entry.retryable:
            final = recorded.step_failed(entry)
            final.__cause__ = error
        runner.journal.fill_reserved([attempt.started(), entry], frame, final)
        if entry.retryable and entry.retry_at is None:
            self.request(frame)
        elif entry.retryable and entry.retry_at is not None:
            runner.waiting.back_off(frame, entry.retry_at)


class Attempted:
    """One attempt of a transactional step.

    Attributes:
        value: what the function gave, as a replay sees it.
    """

    def __init__(
        self, runner: Runner, frame: Frame[Any], call: StepCall, first: int, site: int
    ) -> None:
        """Take what it runs, and the first of its two numbers."""
        self.frame = frame
        self.call = call
        self.number = frame.attempts + 1
        self.value: Any = None
        self._runner = runner
        self._first = first
        self._site = site
        self._at = runner.now_us()

    def started(self) -> FrameStarted:
        """Give the first entry."""
        frame = self.frame
        return FrameStarted(self._at, frame.fid, self.number, frame.kind, frame.name, frame.digest)

    def run(self, connection: Any) -> Transition:
        """Run the function, in whatever thread, and give what its memo needs."""
        frame, call, runner = self.frame, self.call, self._runner
        key = f"{runner.eid}:{frame.fid}"
        info = StepInfo(runner.eid, frame.fid, self.number, key, from_us(self._at), _refuse)
        token = CURRENT_STEP.set(info)
        try:
            given = call.function(connection, *call.args, **call.kwargs)
        finally:
            CURRENT_STEP.reset(token)
        memo, self.value = codec.settle(frame.fid, given, frame.decoder)
        memo = runner.values.seal(frame.fid, memo)
        completed = FrameCompleted(runner.now_us(), frame.fid, self.number, memo)
        body, eid, epoch = pack([self.started(), completed]), runner.eid, runner.epoch
        return Transition((Append(eid, epoch, self._site, self._first, 2, body),))


def _refuse(info: StepInfo, stream: str, value: Raw) -> None:
    del stream, value
    reason = "is published inside a transaction; publish it from the function, or another step"
    raise NotSerializable(info.fid, "$", reason)
