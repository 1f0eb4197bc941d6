"""Which errors can a user of perdure meet? One tree; every error says what happened and what to do.

PerdureError
├── InvalidArgument         refused before anything is stored
│   ├── InvalidName         a name, key, channel or queue outside its grammar
│   ├── NotSerializable     a value that is not JSON
│   ├── PayloadTooLarge     a value that is larger than the engine allows
│   ├── UnknownWorkflow     nothing registered has that name or version
│   └── DuplicateRegistration
├── NotFound
│   ├── UnknownExecution
│   ├── UnknownFrame        the journal has no frame with this id
│   └── UnknownReview       no review was asked for under this id
├── Conflict                the state of the thing forbids it
│   ├── AlreadyClosed
│   └── DuplicateFrameError
├── StepFailed              raised in the workflow function, again on every replay
├── StepTimeout             the failure of one attempt that ran too long
├── NonRetryableError       raised by a step to stop its retries
├── ChildFailed             raised in the workflow function whose child did not complete
├── ExecutionFailed         raised by ``engine.result``, as are the two that follow
├── ExecutionCancelled
├── ExecutionTerminated
├── WaitTimeout
├── LeaseLost               somebody else holds the task of a queue, or it was withdrawn
├── PayloadUnwritable       the PayloadCodec raised while it encoded a value
├── PayloadUnreadable       a stored value that only another PayloadCodec can decode
├── NondeterminismError     the code no longer fits the journal: the execution is blocked
├── ForeignAwait            the function awaited something that is not a frame: blocked, too
├── ForeignFrame            a step function tried to open a frame
└── StoreUnavailable        the store cannot be reached or cannot write
    └── SchemaTooNew        the store was written by a newer perdure

BaseException
├── Cancelled               raised in the function at its waits: a cancel was requested
└── Abandoned               the coroutine is being closed; it can open no frame
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


SHOWN_MAX = 200
"""How much of a refused value an error shows."""


class PerdureError(Exception):
    """The root of every error that perdure raises."""


class InvalidArgument(PerdureError):
    """An argument cannot be accepted; nothing was stored."""


class InvalidName(InvalidArgument):
    """A name, key, channel or queue is outside its grammar.

    Attributes:
        what: which kind of name it is, for example ``"channel"``.
        value: the refused name.
        pattern: the regular expression that a name of this kind matches.
        hint: how to give another name, or ``""``.
    """

    def __init__(self, what: str, value: object, pattern: str, hint: str = "") -> None:
        self.what = what
        self.value = value
        self.pattern = pattern
        self.hint = hint
        shown = repr(value)
        if len(shown) > SHOWN_MAX:
            shown = f"{shown[:SHOWN_MAX]}…"
        super().__init__(f"{what} {shown} is not a valid name: it must match {pattern}{hint}")


class NotSerializable(InvalidArgument):
    """A value is not JSON; it was refused before anything was stored.

    Attributes:
        where: what the value belongs to, for example a frame id.
        path: the place inside the value, for example ``$.items[3].price``.
    """

    def __init__(self, where: str, path: str, reason: str) -> None:
        self.where = where
        self.path = path
        super().__init__(
            f"{where}: the value at {path} {reason}; pass plain JSON types, dataclasses, "
            "msgspec Structs or pydantic models"
        )


class PayloadTooLarge(InvalidArgument):
    """A value is larger than the engine allows; it was refused before anything was stored.

    Attributes:
        where: what the value belongs to, for example a frame id.
        size: the bytes of its JSON.
        limit: how many are allowed.
    """

    def __init__(self, where: str, size: int, limit: int) -> None:
        self.where = where
        self.size = size
        self.limit = limit
        super().__init__(
            f"{where}: {size:,} bytes of JSON are more than the {limit:,} of payload_max; keep "
            "large data elsewhere, and pass a reference"
        )


class PayloadUnwritable(PerdureError):
    """The PayloadCodec raised while it encoded a value; nothing of the value was stored.

    Attributes:
        where: what the value belongs to.
        reason: what it raised.
    """

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(
            f"{where}: the PayloadCodec could not encode it ({reason}); see to the codec and "
            "to what it needs, its keys for example, and try again"
        )


class PayloadUnreadable(PerdureError):
    """A stored value is what a PayloadCodec made of it, and cannot be decoded here.

    Attributes:
        where: what the value belongs to.
        reason: why not.
    """

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(
            f"{where}: it was encoded by a PayloadCodec and cannot be decoded ({reason}); open the "
            "engine with the codec that wrote it: EngineConfig(codec=…)"
        )


class UnknownWorkflow(InvalidArgument):
    """No registered workflow has this name, or none has this version of it.

    Attributes:
        workflow: the name asked for.
        version: the version asked for, or ``None`` for the latest.
        known: the versions of that name that are registered.
    """

    def __init__(self, workflow: str, version: str | None, known: tuple[str, ...] = ()) -> None:
        self.workflow = workflow
        self.version = version
        self.known = known
        asked = f"workflow {workflow!r}" + (f" version {version!r}" if version else "")
        have = f"registered versions are {', '.join(known)}" if known else "the name is unknown"
        super().__init__(f"{asked} is not registered here ({have}); register it, or check the name")


class DuplicateRegistration(InvalidArgument):
    """The same name and version of a workflow, or the same name of a step, was registered twice.

    Attributes:
        name: the name.
        version: the version of a workflow; ``None`` for a step.
    """

    def __init__(self, name: str, version: str | None = None) -> None:
        self.name = name
        self.version = version
        what, other = f"step {name!r}", "another name"
        if version is not None:
            what, other = f"workflow {name!r} version {version!r}", "another version"
        super().__init__(f"{what} is registered already; give the new function {other}")


class NotFound(PerdureError):
    """The thing asked for does not exist."""


class UnknownExecution(NotFound):
    """No execution has this id."""

    def __init__(self, eid: UUID | str) -> None:
        self.eid = eid
        super().__init__(f"no execution has the id {eid}; check the id and the store URL")


class UnknownFrame(NotFound):
    """The journal of the execution holds no frame with this id."""

    def __init__(self, eid: UUID, fid: str) -> None:
        self.eid = eid
        self.fid = fid
        super().__init__(
            f"execution {eid} has no frame {fid!r} in its journal; perdure status --frames shows "
            "those that it has"
        )


class UnknownReview(NotFound):
    """No review was asked for under this id.

    Attributes:
        rid: the id.
    """

    def __init__(self, rid: str) -> None:
        self.rid = rid
        super().__init__(
            f"no review has the id {rid!r}; perdure reviews list shows those that wait"
        )


class Conflict(PerdureError):
    """The present state of the thing forbids the operation."""


class AlreadyClosed(Conflict):
    """The execution has ended; it accepts no message and no request any more."""

    def __init__(self, eid: UUID, status: str) -> None:
        self.eid = eid
        self.status = status
        super().__init__(
            f"execution {eid} is {status} already; nothing was stored: start another execution"
        )


class DuplicateFrameError(Conflict):
    """One key was used twice for frames of the same name under one parent."""

    def __init__(self, fid: str) -> None:
        self.fid = fid
        super().__init__(f"frame {fid} exists already; give each frame of that name its own key")


class StepFailed(PerdureError):
    """A step failed and no attempt is left. Raised again on every replay.

    Attributes:
        fid: the frame id of the step.
        error_type: the class name of the last attempt's error.
        message: its text.
        attempts: how many attempts failed.
        traceback: the traceback text of the last attempt, or ``None``.
    """

    def __init__(
        self, fid: str, error_type: str, message: str, attempts: int, traceback: str | None = None
    ) -> None:
        self.fid = fid
        self.error_type = error_type
        self.message = message
        self.attempts = attempts
        self.traceback = traceback
        super().__init__(
            f"step {fid} failed after {attempts} attempt{'s' if attempts != 1 else ''}: "
            f"{error_type}: {message}"
        )


class StepTimeout(PerdureError):
    """One attempt of a step ran longer than its timeout. The attempt may be retried."""

    def __init__(self, fid: str, timeout_s: float) -> None:
        self.fid = fid
        self.timeout_s = timeout_s
        super().__init__(
            f"step {fid} did not finish within {timeout_s:g} s; give it more time, or more attempts"
        )


class NonRetryableError(PerdureError):
    """Raise it (or a subclass) in a step: no further attempt is made."""


class ChildFailed(PerdureError):
    """A child execution did not complete. Raised again on every replay.

    Attributes:
        eid: the child execution.
        status: ``failed``, ``cancelled`` or ``terminated``.
        error_type: the class name of the error that ended it.
        message: its text, or why it was stopped.
    """

    def __init__(self, eid: UUID, status: str, error_type: str, message: str) -> None:
        self.eid = eid
        self.status = status
        self.error_type = error_type
        self.message = message
        super().__init__(f"child execution {eid} is {status}: {error_type}: {message}")


class ExecutionFailed(PerdureError):
    """The execution ended as ``failed``.

    Attributes:
        eid: the execution.
        error_type: the class name of the error that ended it.
        message: its text.
    """

    def __init__(self, eid: UUID, error_type: str, message: str) -> None:
        self.eid = eid
        self.error_type = error_type
        self.message = message
        super().__init__(f"execution {eid} failed: {error_type}: {message}")


class ExecutionCancelled(PerdureError):
    """The execution ended as ``cancelled``.

    Attributes:
        eid: the execution.
        reason: who cancelled it and why.
    """

    def __init__(self, eid: UUID, reason: str) -> None:
        self.eid = eid
        self.reason = reason
        super().__init__(f"execution {eid} was cancelled {reason}")


class ExecutionTerminated(PerdureError):
    """The execution was closed as ``terminated``.

    Attributes:
        eid: the execution.
        reason: who terminated it and why.
    """

    def __init__(self, eid: UUID, reason: str) -> None:
        self.eid = eid
        self.reason = reason
        super().__init__(f"execution {eid} was terminated {reason}")


class WaitTimeout(PerdureError):
    """The wait ended before the execution did.

    Attributes:
        eid: the execution.
        timeout_s: how long was waited.
        blocked: why the execution waits for an operator, or ``None`` if it goes on.
    """

    def __init__(self, eid: UUID, timeout_s: float, blocked: str | None = None) -> None:
        self.eid = eid
        self.timeout_s = timeout_s
        self.blocked = blocked
        state = "it goes on: wait for it again"
        if blocked is not None:
            state = f"it is blocked, and waits for an operator: {blocked}"
        super().__init__(f"execution {eid} did not end within {timeout_s:g} s; {state}")


class LeaseLost(PerdureError):
    """The lease of a task is over: another holder has it, it was withdrawn, or it is done.

    Attributes:
        task_id: the task.
        holder: who held it.
    """

    def __init__(self, task_id: str, holder: str) -> None:
        self.task_id = task_id
        self.holder = holder
        super().__init__(
            f"{holder!r} does not hold task {task_id} any more; nothing was written: stop the work"
        )


class NondeterminismError(PerdureError):
    """A replay reached a frame that differs from the one in the journal.

    Attributes:
        fid: the frame id.
        difference: what differs, in words.
        remedy: what to do.
    """

    def __init__(
        self,
        fid: str,
        difference: str,
        remedy: str = (
            "the code changed under a live execution: restore it and resume the execution, or "
            "register the new code as another version and migrate it"
        ),
    ) -> None:
        self.fid = fid
        self.difference = difference
        self.remedy = remedy
        super().__init__(f"frame {fid}: {difference}; {remedy}")


class ForeignAwait(PerdureError):
    """The workflow function awaited something that is not one of its frames."""

    def __init__(self, awaited: str) -> None:
        self.awaited = awaited
        super().__init__(
            f"the workflow function awaited {awaited}, which a replay cannot repeat: use "
            "ctx.sleep, ctx.gather and ctx.select instead of asyncio's own, and move what else it "
            "awaits into a step function: await ctx.step(function, ...)"
        )


class ForeignFrame(PerdureError):
    """A frame was opened by code that is not the workflow function, for example by a step."""

    def __init__(self, method: str) -> None:
        self.method = method
        super().__init__(
            f"ctx.{method} was called inside a step; only the workflow function and its branches "
            "open frames: return the value from the step and call ctx from the function"
        )


class StoreUnavailable(PerdureError):
    """The store cannot be reached, read or written. Nothing acknowledged is lost."""


class SchemaTooNew(StoreUnavailable):
    """The store has a schema of a newer perdure; it was left untouched."""

    def __init__(self, url: str, found: int, supported: int) -> None:
        self.url = url
        self.found = found
        self.supported = supported
        super().__init__(
            f"{url} has schema version {found}, this perdure knows up to {supported}; "
            "upgrade perdure to open it"
        )


class Cancelled(BaseException):
    """A cancel was requested. Raised where the function waits, and at every frame it opens then.

    ``except Exception`` does not catch it. Clean up in a ``finally`` or ``except Cancelled``, in
    frames under ``async with ctx.shield()``, and let it go on.
    """


class Abandoned(BaseException):
    """The coroutine of a suspended or lost execution is being closed; it can open no frame."""
