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

from perdure.errors import InvalidArgument
from perdure.model import codec
from perdure.model.ids import CHANNEL, ROOT, check_name
from perdure.model.instants import duration_us, to_us
from perdure.model.message import Message
from perdure.runtime.attempt import CURRENT_STEP
from perdure.runtime.code.effects import Effects, Scope, check_scope
from perdure.runtime.code.inline import Inline
from perdure.runtime.code.opening import Shield
from perdure.runtime.code.stepping import Stepping
from perdure.runtime.frames import Frame, Pending

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")


class Context(Stepping, Effects, Inline):
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


def _check_members(method: str, members: list[Any]) -> None:
    for index, member in enumerate(members):
        if not isinstance(member, Pending) and not inspect.iscoroutine(member):
            message = (
                f"argument {index + 1} of ctx.{method} is {member!r}; pass what ctx methods "
                "return, or coroutines of the workflow function"
            )
            raise InvalidArgument(message)
