"""What can a workflow function wait for? Frames, and what is built of them.

A `Pending` is resolved once, by the runner (a frame) or by the driver (a gather, a branch); it
never touches an event loop. Awaiting one that is done returns at once; else the coroutine yields it
to the driver, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Raw

from perdure.errors import Cancelled, InvalidArgument

if TYPE_CHECKING:
    from uuid import UUID

    from perdure.model.codec import Decoder
    from perdure.model.entry import PackedMessage
    from perdure.model.retry import RetryPolicy
    from perdure.ports.commands import Command, CreateExecution
    from perdure.runtime.attempt import Attempt
    from perdure.runtime.transactions import InTransaction

T = TypeVar("T")

Watcher = Callable[["Pending[Any]"], None]
Abandon = Callable[[list["Pending[Any]"], str], None]


class Pending(Generic[T]):
    """Something that a workflow function can await. It starts when it is made."""

    __slots__ = ("_watchers", "abandoned", "done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        self.abandoned = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._watchers: list[Watcher] = []

    def __await__(self) -> Generator[Pending[T], None, T]:
        """Wait until it is done; return its value or raise its error."""
        if not self.done:
            yield self
        if self.error is not None:
            raise self.error
        value: T = self.value
        return value

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when this is done; at once if it is."""
        if self.done:
            watcher(self)
        else:
            self._watchers.append(watcher)

    def resolve(self, value: Any = None, error: BaseException | None = None) -> None:
        """Finish it, and tell those who watch in the order in which they began to."""
        self.done = True
        self.value = value
        self.error = error
        watchers = self._watchers
        if watchers:
            self._watchers = []
            for watcher in watchers:
                watcher(self)

    def abandon(self, reason: str) -> None:
        """Finish it for good: whoever waits for it all the same gets an error."""
        self.abandoned = True
        message = f"{self!r} was abandoned: {reason}"
        self.resolve(error=InvalidArgument(message))


class Frame(Pending[T]):
    """One node of the execution: a step, a child, a receive or a sleep.

    Attributes:
        fid: its id.
        index: its place among the frames of the execution, in the order of their calls.
        kind: ``step``, ``child``, ``receive`` or ``sleep``.
        name: the name part of the id.
        digest: the digest of its arguments.
        attempts: how many attempts have failed.
        deadline: the due instant of a sleep or of a receive's timeout, in microseconds.
        on: what it waits on, as the journal names it; ``""`` while it runs.
        recorded: whether the journal holds its ``frame.started``, for a frame that waits.
        suspended: what the journal says it waits on, or ``None``.
        call: what a step runs.
        effect: makes the command of a step that is an effect of the engine, at an instant.
        child: what a child frame starts.
        channel: the key of the channel that a receive, a child or a detached step waits on, or
            ``""``.
        shielded: whether a cancel does not concern it.
        attempt: the attempt that runs now, if any.
        message: the message that a receive has consumed, or ``None``.
    """

    __slots__ = (
        "attempt",
        "attempts",
        "call",
        "channel",
        "child",
        "deadline",
        "decoder",
        "digest",
        "effect",
        "fid",
        "index",
        "kind",
        "message",
        "name",
        "on",
        "recorded",
        "shielded",
        "suspended",
    )

    def __init__(self, fid: str, kind: str, name: str, digest: str) -> None:
        super().__init__()
        self.fid = fid
        self.kind = kind
        self.name = name
        self.digest = digest
        self.index = 0
        self.attempts = 0
        self.deadline: int | None = None
        self.on = ""
        self.recorded = False
        self.suspended: str | None = None
        self.call: StepCall | None = None
        self.effect: Callable[[int], Command] | None = None
        self.child: ChildCall | None = None
        self.shielded = False
        self.attempt: Attempt | None = None
        self.message: PackedMessage | None = None
        self.channel = ""
        self.decoder: Decoder | None = None

    def __repr__(self) -> str:
        """Name the frame."""
        return f"<frame {self.fid}>"


class StepCall:
    """What one step runs, under which policy, and where if not in a slot of its worker."""

    __slots__ = ("args", "function", "is_async", "kwargs", "place", "retry", "timeout_us")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_async: bool,
        retry: RetryPolicy,
        timeout_us: int | None,
        place: Detached | InTransaction | None = None,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.is_async = is_async
        self.retry = retry
        self.timeout_us = timeout_us
        self.place = place


class Detached:
    """Where a step runs that another worker runs: its queue, its registered name, its arguments."""

    __slots__ = ("args", "queue", "step")

    def __init__(self, queue: str, step: str, args: Raw) -> None:
        self.queue = queue
        self.step = step
        self.args = args


class ChildCall:
    """Which execution a child frame starts, and whether it ends with its parent."""

    __slots__ = ("create", "eid", "tied")

    def __init__(self, eid: UUID, create: Callable[[int], CreateExecution], *, tied: bool) -> None:
        self.eid = eid
        self.create = create
        self.tied = tied


class Continue(BaseException):
    """The function ends here, and continues as a fresh execution with these arguments."""

    def __init__(self, args: Raw) -> None:
        self.encoded = args
        super().__init__("ctx.continue_as ends the function; let it through")


class Group(Pending[T]):
    """Several pendings awaited together.

    When one of them is cancelled, so are the others, and each may clean up: `Cancelled` is raised
    when all of them are done.
    """

    __slots__ = ("_abandon", "_cancelled", "_left", "members")

    def __init__(self, members: Sequence[Pending[Any]], abandon: Abandon) -> None:
        """Watch `members`; `abandon` is called with those that nobody waits for any more."""
        super().__init__()
        self.members = list(members)
        self._abandon = abandon
        self._left = len(self.members)
        self._cancelled: Cancelled | None = None
        for member in self.members:
            member.watch(self._member_done)

    def _member_done(self, member: Pending[Any]) -> None:
        if self.done:
            return
        self._left -= 1
        if self._cancelled is None:
            self._cancelled = self._cancelled_by(member)
        if self._cancelled is None:
            self._decide(member)
        elif self._left == 0:
            self.resolve(error=self._cancelled)

    def _cancelled_by(self, member: Pending[Any]) -> Cancelled | None:
        """Give the `Cancelled` of a member that is to be raised when all are done."""
        return member.error if isinstance(member.error, Cancelled) else None

    def _decide(self, member: Pending[Any]) -> None:
        """Take notice that a member is done, while this is not."""
        raise NotImplementedError

    def _end(self, reason: str, value: Any = None, error: BaseException | None = None) -> None:
        self.resolve(value, error)
        self._abandon([m for m in self.members if not m.done], reason)


class Gathered(Group[list[Any]]):
    """All of several; the results in argument order.

    Without `return_exceptions` the first error, by the journal, ends it.
    """

    __slots__ = ("_return_exceptions",)

    def __init__(
        self, members: Sequence[Pending[Any]], abandon: Abandon, *, return_exceptions: bool
    ) -> None:
        """Wait for all of `members`."""
        self._return_exceptions = return_exceptions
        super().__init__(members, abandon)
        if not members:
            self.resolve([])

    def _cancelled_by(self, member: Pending[Any]) -> Cancelled | None:
        return None if self._return_exceptions else super()._cancelled_by(member)

    def _decide(self, member: Pending[Any]) -> None:
        if member.error is not None and not self._return_exceptions:
            self._end("another frame of its gather failed", error=member.error)
            return
        if self._left == 0:
            self.resolve([m.value if m.error is None else m.error for m in self.members])


class Selected(Group[tuple[int, Any]]):
    """The first of several, by the journal: its place and its value, or its error."""

    __slots__ = ()

    def _decide(self, member: Pending[Any]) -> None:
        place = self.members.index(member)
        self._end("another frame of its select was first", (place, member.value), member.error)
