"""How is an execution cancelled? The request is held until nothing runs, then it becomes a fact.

From the moment the owner knows of a request, no frame begins and no wait is served; what runs may
finish, and a function that returns then has completed. When nothing runs any more, the owner
appends ``execution.cancelling``, and once that is durable every frame that waits raises
`Cancelled`, as does every frame that is opened from then on. Frames under ``ctx.shield()`` know
nothing of all this. A replay delivers the cancel at the same place of the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.errors import Cancelled, PerdureError
from perdure.model.entry import ExecutionCancelling
from perdure.model.provenance import describe_stop
from perdure.ports.store import CancelRequest

if TYPE_CHECKING:
    from perdure.runtime.frames import Frame
    from perdure.runtime.runner import Runner

REFUSALS_MAX = 1_000


class Cancelling:
    """The cancel of one owned execution.

    Attributes:
        request: who asked and why, or ``None``: nobody has.
        delivered: whether the function has seen it.
    """

    def __init__(self, runner: Runner) -> None:
        """Begin with what the journal says."""
        self._runner = runner
        recorded = runner.table.cancelling
        self.request: CancelRequest | None = None
        if recorded is not None:
            self.request = CancelRequest(recorded.by, recorded.reason)
        self._appended = recorded is not None
        self.delivered = False
        self._refusals = 0

    def notice(self, request: CancelRequest | None) -> None:
        """Take notice of a request; the first one counts."""
        if self.request is None:
            self.request = request

    def holds(self, frame: Frame[Any]) -> bool:
        """Whether a frame may not begin, nor be served if it waits."""
        return self.request is not None and not frame.shielded

    def error(self) -> Cancelled:
        """Make the error that the function sees."""
        request = self.request
        assert request is not None  # noqa: S101 - nothing is refused without a request
        return Cancelled(f"a cancel was requested {describe_stop(request.by, request.reason)}")

    def append(self) -> None:
        """Append the fact if it is time for it, with the requests to cancel the children."""
        runner = self._runner
        if self.request is None or self._appended or runner.over or runner.moves:
            return
        self._appended = True
        now = runner.now_us()
        request = self.request
        entry = ExecutionCancelling(now, request.by, request.reason)
        runner.journal.append_outcome(None, entry)
        for frame in runner.open_frames():
            child = frame.child
            if child is not None and child.tied and frame.recorded and not frame.shielded:
                runner.cancel_child(child, request.by, request.reason)
            elif not frame.shielded:
                runner.steps.detached.withdraw(frame)

    def deliver(self) -> None:
        """Raise `Cancelled` in every frame that is open."""
        self.delivered = True
        for frame in self._runner.open_frames():
            if not frame.shielded:
                self._runner.waiting.waits.remove(frame)
                frame.resolve(error=self.error())

    def refuse(self, frame: Frame[Any]) -> bool:
        """Refuse a frame that is opened after the delivery, and tell whether it was."""
        if frame.shielded:
            return False
        self._refusals += 1
        if self._refusals > REFUSALS_MAX:
            message = f"the function went on after {REFUSALS_MAX} times Cancelled"
            self._runner.driver.stop(PerdureError(message))
        else:
            frame.resolve(error=self.error())
        return True
