"""What can a workflow function do? The methods of its context; each opens one frame.

A method gives its frame an id and starts it at the call, and returns something to await. Only the
function and its branches may call one: what runs elsewhere could not be replayed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeVar, overload
from uuid import UUID

from perdure.errors import Abandoned, InvalidArgument, NondeterminismError
from perdure.model import codec
from perdure.model.ids import CHANNEL, FRAME_KEY, ROOT, check_name
from perdure.model.instants import duration_us, from_us, to_us
from perdure.model.message import Message
from perdure.runtime.attempt import CURRENT_STEP
from perdure.runtime.code.effects import Effects, Scope, check_scope
from perdure.runtime.code.opening import Shield
from perdure.runtime.code.stepping import Stepping
from perdure.runtime.frames import Frame, Pending

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")

_DATETIME = codec.decoder_of(datetime)
_UUID = codec.decoder_of(UUID)
_OLD_BRANCH = (
    "the old branch of patch {0!r} is gone from the code: bring it back under "
    "ctx.patched({0!r}) and resume the execution, or migrate it to a version that has it"
)


class Context(Stepping, Effects):
    """The first parameter of every workflow function: it opens frames and waits for them."""

    __slots__ = ()

    # -- what it is --------------------------------------------------------------------------

    @property
    def eid(self) -> UUID:
        """The id of this execution."""
        return self._runner.eid

    @property
    def fid(self) -> str:
        """The id of the frame that runs: ``root`` in the function, the step's inside a step."""
        step = CURRENT_STEP.get()
        return ROOT if step is None else step.fid

    @property
    def attempt(self) -> int:
        """The attempt of the frame that runs: 1 in the function, the step's inside a step."""
        step = CURRENT_STEP.get()
        return 1 if step is None else step.attempt

    @property
    def baggage(self) -> Mapping[str, str]:
        """The text values that the execution was started with."""
        return MappingProxyType(self._runner.record.options.baggage)

    @property
    def cancel_requested(self) -> bool:
        """Whether a cancel was delivered: every frame outside a shield raises `Cancelled`."""
        return self._runner.cancelling.delivered

    # -- frames ------------------------------------------------------------------------------

    def receive(
        self,
        channel: str,
        timeout: timedelta | float | None = None,
        *,
        scope: Scope = "execution",
        name: str | None = None,
        key: str | None = None,
    ) -> Frame[Message | None]:
        """Wait for the next message on a channel.

        Args:
            channel: its name, for example ``"payments"``.
            timeout: how long to wait, a timedelta or seconds; for ever if it is not given.
            scope: ``"execution"`` for a channel of this execution; ``"global"`` for one that all
                share, a log of which every execution reads every message, from the first.
            name: the name in the frame id; ``receive`` if it is not given.
            key: makes the frame id ``root/{name}:{key}``.

        Returns:
            Something to await: the message, or ``None`` if none came in time.

        Raises:
            InvalidName: at once, if the channel's name is out of its grammar.
        """
        fid, name = self._name("receive", "receive" if name is None else name, key)
        check_name("channel", channel, CHANNEL)
        timeout_us = None if timeout is None else duration_us(f"the timeout of {fid}", timeout)
        check_scope(scope)
        digest = codec.digest(fid, (scope, channel, timeout_us))
        frame: Frame[Message | None] = Frame(fid, "receive", name, digest)
        frame.channel = channel if scope == "execution" else f"channel:{channel}"
        if timeout_us is not None:
            frame.deadline = self._runner.now_us() + timeout_us
        return self._start(frame)

    def sleep(
        self, duration: timedelta | float, *, name: str | None = None, key: str | None = None
    ) -> Frame[datetime]:
        """Wait for a while: a timedelta or seconds. The due instant is computed once.

        Returns:
            Something to await: the due instant.
        """
        fid, name = self._name("sleep", "sleep" if name is None else name, key)
        pause_us = duration_us(f"the duration of {fid}", duration)
        frame: Frame[datetime] = Frame(fid, "sleep", name, codec.digest(fid, (pause_us,)))
        frame.deadline = self._runner.now_us() + pause_us
        return self._start(frame)

    def sleep_until(
        self, instant: datetime, *, name: str | None = None, key: str | None = None
    ) -> Frame[datetime]:
        """Wait until an aware instant; one in the past is over at once.

        Returns:
            Something to await: the instant.
        """
        fid, name = self._name("sleep_until", "sleep_until" if name is None else name, key)
        due = to_us(instant)
        frame: Frame[datetime] = Frame(fid, "sleep", name, codec.digest(fid, ("until", due)))
        frame.deadline = due
        return self._start(frame)

    @overload
    def gather(
        self,
        frame1: Awaitable[T1],
        frame2: Awaitable[T2],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> Pending[tuple[T1, T2]]: ...
    @overload
    def gather(
        self,
        frame1: Awaitable[T1],
        frame2: Awaitable[T2],
        frame3: Awaitable[T3],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> Pending[tuple[T1, T2, T3]]: ...
    @overload
    def gather(
        self,
        frame1: Awaitable[T1],
        frame2: Awaitable[T2],
        frame3: Awaitable[T3],
        frame4: Awaitable[T4],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> Pending[tuple[T1, T2, T3, T4]]: ...
    @overload
    def gather(
        self, *frames: Awaitable[T], return_exceptions: Literal[False] = False
    ) -> Pending[list[T]]: ...
    @overload
    def gather(
        self, *frames: Awaitable[T], return_exceptions: Literal[True]
    ) -> Pending[list[T | BaseException]]: ...
    def gather(self, *frames: Awaitable[Any], return_exceptions: bool = False) -> Pending[Any]:
        """Run frames and coroutines of this function at the same time.

        A coroutine becomes a branch: it may open frames of its own. On a failure the error that is
        first in the journal is raised, and the frames that are still open are abandoned.

        Args:
            *frames: what ``ctx`` methods return, or coroutines that await such.
            return_exceptions: give errors among the results instead.

        Returns:
            Something to await: the results, a list in the order of the arguments.
        """
        members = self._members("gather", frames)
        return self._driver.gather(members, return_exceptions=return_exceptions)

    def select(self, *frames: Awaitable[T]) -> Pending[tuple[int, T]]:
        """Wait for the first of several frames and coroutines of this function.

        Which one is first is decided by the journal, so a replay decides the same. The others are
        abandoned: their waits receive nothing any more, and the outcome of a step is dropped.

        Args:
            *frames: what ``ctx`` methods return, or coroutines that await such; at least one.

        Returns:
            Something to await: the place of the first among the arguments, from 0, and its value.
            If it failed, its error is raised.

        Example:
            ``place, value = await ctx.select(ctx.receive("answer"), ctx.sleep(3600))``
        """
        members = self._members("select", frames)
        if not members:
            message = "ctx.select was given nothing to wait for; pass at least one frame"
            raise InvalidArgument(message)
        return self._driver.select(members)

    def shield(self) -> Shield:
        """Let the frames that are opened inside run even when a cancel is requested.

        Example:
            ``async with ctx.shield(): await ctx.step(refund, receipt)`` in an ``except Cancelled``.
        """
        self._check("shield")
        return Shield()

    def _members(self, method: str, frames: tuple[Awaitable[Any], ...]) -> list[Any]:
        """Check what is to be awaited together."""
        members: list[Any] = list(frames)
        try:
            self._check(method)
            _check_members(method, members)
        except BaseException:
            for member in members:
                if inspect.iscoroutine(member):
                    member.close()  # else it would warn that it was never awaited
            raise
        return members

    # -- inline frames -----------------------------------------------------------------------

    def now(self) -> datetime:
        """Give the instant at which this line first ran, on every replay.

        It returns at the call; there is nothing to await.
        """
        value: datetime = self._inline(
            "now", lambda _: from_us(self._runner.now_us()), _DATETIME, gate=True
        )
        return value

    def random(self) -> float:
        """Give a random number in [0, 1), the same on every replay. It returns at the call."""

        def derive(fid: str) -> float:
            return (int.from_bytes(self._derive(fid)[:8]) >> 11) / 2**53

        value: float = self._inline("random", derive, codec.decode, gate=False)
        return value

    def uuid(self) -> UUID:
        """Give a random UUID, the same on every replay. It returns at the call."""

        def derive(fid: str) -> UUID:
            return UUID(bytes=self._derive(fid)[:16], version=4)

        value: UUID = self._inline("uuid", derive, _UUID, gate=False)
        return value

    # -- patches -----------------------------------------------------------------------------

    def patched(self, patch_id: str) -> bool:
        """Tell whether this execution takes the new branch of a change to its code.

        True for one that comes to this line for the first time, False for one that had passed it
        when the line was not there yet. The answer is recorded, so it is the same on every replay,
        and wherever else the function asks for this patch. It returns at the call.

        Args:
            patch_id: the name of the change, one of its own for each: the frame is
                ``root/patched:{patch_id}``.

        Raises:
            InvalidName: if `patch_id` is out of the grammar of frame keys.

        Example:
            ``if ctx.patched("two-signatures"): …`` with the old code in the ``else``.
        """
        self._check("patched")
        check_name("patch id", patch_id, FRAME_KEY)
        known = self._patches.get(patch_id)
        if known is None:
            new: bool = self._inline(
                "patched",
                lambda _: not self._runner.repeats,
                codec.decode,
                gate=True,
                key=patch_id,
            )
            known = self._patches[patch_id] = new
        return known

    def deprecate_patch(self, patch_id: str) -> None:
        """Say that the old branch of a patch is gone from the code.

        Put it where ``ctx.patched`` was, when no execution needs the old branch any more. One that
        does is blocked here, before it runs code that is not its own. It returns at the call.

        Args:
            patch_id: the name that was given to ``ctx.patched``.

        Raises:
            InvalidName: if `patch_id` is out of the grammar of frame keys.
        """
        self._check("deprecate_patch")
        fid = f"{ROOT}/patched:{check_name('patch id', patch_id, FRAME_KEY)}"
        runner = self._runner
        known = patch_id in self._patches or fid in runner.table.memos
        if not known and runner.repeats:
            difference = "the execution had passed this place before there was such a patch"
        elif not self.patched(patch_id):
            difference = "the execution has taken the old branch"
        else:
            return
        self._driver.stop(NondeterminismError(fid, difference, _OLD_BRANCH.format(patch_id)))
        raise Abandoned


def _check_members(method: str, members: list[Any]) -> None:
    for index, member in enumerate(members):
        if not isinstance(member, Pending) and not inspect.iscoroutine(member):
            message = (
                f"argument {index + 1} of ctx.{method} is {member!r}; pass what ctx methods "
                "return, or coroutines of the workflow function"
            )
            raise InvalidArgument(message)
