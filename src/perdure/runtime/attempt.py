"""How does one attempt of a step run? As a task, or in a thread; it reports exactly one outcome.

An attempt that was dropped (timed out, abandoned, fenced) reports nothing any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import sys
import traceback as traceback_module
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

from perdure.errors import InvalidArgument
from perdure.model import codec
from perdure.model.entry import FrameFailed
from perdure.model.ids import CHANNEL, check_name
from perdure.model.retry import NEVER_RETRIED, RetryPolicy, class_name
from perdure.runtime.frames import StepCall
from perdure.runtime.threads import Threads

Publisher = Callable[["StepInfo", str, Raw], None]
"""Adds an item, JSON, to a stream for an attempt; any thread may call it."""

TRACEBACK_MAX = 16_384
MESSAGE_MAX = 16_384


class StepInfo(msgspec.Struct, frozen=True):
    """What a running step knows of itself.

    Attributes:
        eid: the execution.
        fid: the frame id of the step.
        attempt: the number of this attempt, from 1.
        idempotency_key: the same on every attempt of this step, different for every other step:
            pass it to services that refuse a second request with the same key.
        started_at: when this attempt began.
    """

    eid: UUID
    fid: str
    attempt: int
    idempotency_key: str
    started_at: datetime
    _publish: Publisher

    def publish(self, stream: str, value: Any) -> None:
        """Add an item to a stream of the execution, at least once: an attempt may be repeated.

        It returns at once. Items keep their order, and are durable before the step's outcome.

        Args:
            stream: the stream's name, of the grammar of a channel.
            value: any JSON value.

        Raises:
            InvalidName: if the stream's name is out of its grammar.
            NotSerializable: if the value is not JSON.
            PayloadTooLarge: if it is too large.

        Example:
            ``for token in answer: step_info().publish("tokens", token)``
        """
        check_name("stream", stream, CHANNEL)
        self._publish(self, stream, codec.encode(self.fid, value))


CURRENT_STEP: ContextVar[StepInfo | None] = ContextVar("perdure_step", default=None)


def step_info() -> StepInfo:
    """Give what the running step knows of itself: its ids, attempt and idempotency key.

    Raises:
        InvalidArgument: outside a step function.

    Example:
        ``requests.post(url, headers={"Idempotency-Key": step_info().idempotency_key})``
    """
    info = CURRENT_STEP.get()
    if info is None:
        message = "step_info() was called outside a step; call it in a function run by ctx.step"
        raise InvalidArgument(message)
    return info


Finished = Callable[["Attempt", Any, BaseException | None], None]


class Attempt:
    """One real run of a step function.

    Attributes:
        dropped: whether nobody waits for its outcome any more.
    """

    __slots__ = ("_finished", "_free", "_task", "call", "dropped", "info")

    def __init__(
        self, call: StepCall, info: StepInfo, finished: Finished, free: Callable[[], None]
    ) -> None:
        """Prepare an attempt.

        Args:
            call: what it runs.
            info: what the function can learn of it.
            finished: receives the value or the error, on the event loop, unless it was dropped.
            free: gives its slot back, exactly once.
        """
        self.call = call
        self.info = info
        self.dropped = False
        self._finished = finished
        self._free: Callable[[], None] | None = free
        self._task: asyncio.Task[None] | None = None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: Threads,
        context: contextvars.Context,
    ) -> None:
        """Run it, in a context of its own."""
        context.run(CURRENT_STEP.set, self.info)
        if self.call.is_async:
            self._task = _start_task(loop, self._run_async(), context)
        else:
            threads.submit(lambda: self._run_sync(loop, context))

    def drop(self) -> None:
        """Report nothing any more: cancel a task, abandon a thread and give its slot away."""
        self.dropped = True
        self._release()
        if self._task is not None:
            self._task.cancel()

    async def _run_async(self, begun: Coroutine[Any, Any, Any] | None = None) -> None:
        call = self.call
        try:
            value = await (begun or call.function(*call.args, **call.kwargs))
        except BaseException as error:  # noqa: BLE001 - a step's own CancelledError is a failure
            if self.dropped and isinstance(error, asyncio.CancelledError):
                return
            self._report(None, error)
        else:
            self._report(value, None)

    def _run_sync(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None:
        call = self.call
        value: Any = None
        failure: BaseException | None = None
        try:
            value = context.run(call.function, *call.args, **call.kwargs)
        except BaseException as error:  # noqa: BLE001 - whatever ends a step is its outcome
            failure = error
        try:
            loop.call_soon_threadsafe(self._leave_thread, loop, context, value, failure)
        except RuntimeError:
            return  # the loop is closed: nobody waits for the outcome

    def _leave_thread(
        self,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        value: Any,
        error: BaseException | None,
    ) -> None:
        """Report what a thread gave, unless the function was async without looking like it.

        A lambda around an async function is an example, and so are many decorators.
        """
        if not inspect.iscoroutine(value):
            self._report(value, error)
        elif self.dropped:
            value.close()
        else:
            self._task = _start_task(loop, self._run_async(value), context)

    def _report(self, value: Any, error: BaseException | None) -> None:
        self._release()
        if not self.dropped:
            self._finished(self, value, error)

    def _release(self) -> None:
        free, self._free = self._free, None
        if free is not None:
            free()


if sys.version_info >= (3, 12):

    def _start_task(
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, None],
        context: contextvars.Context,
    ) -> asyncio.Task[None]:
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)

else:

    def _start_task(
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, None],
        context: contextvars.Context,
    ) -> asyncio.Task[None]:
        return loop.create_task(coroutine, context=context)


def failure(
    retry: RetryPolicy, fid: str, number: int, error: BaseException, *, now: int
) -> FrameFailed:
    """Decide what a failed attempt means: whether another one follows, and when."""
    again = retry.retries(error)
    return failure_entry(retry, fid, number, describe_error(error), again=again, now=now)


def failure_entry(
    retry: RetryPolicy,
    fid: str,
    number: int,
    error: tuple[str, str, str | None],
    *,
    again: bool,
    now: int,
) -> FrameFailed:
    """Make the entry of a failed attempt whose error is described: class, text and traceback.

    With `again` another attempt follows if one is left.
    """
    delay = None
    if again:
        delay = retry.delay_us(number, random.random())  # noqa: S311 - jitter, no secret
    error_type, message, trace = error
    return FrameFailed(
        now,
        fid,
        number,
        error_type,
        message,
        retryable=delay is not None,
        retry_at=now + delay if delay else None,
        traceback=trace,
    )


def is_final(error: BaseException) -> bool:
    """Tell whether an error of this kind is never retried."""
    return isinstance(error, NEVER_RETRIED)


def describe_classes(error: BaseException) -> tuple[str, ...]:
    """Name the class of an error and those above it, as `RetryPolicy` compares them elsewhere."""
    return tuple(class_name(one) for one in type(error).__mro__[:-2])


def describe_error(error: BaseException) -> tuple[str, str, str | None]:
    """Give class name, text and traceback of an error, whatever its own methods do."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an error may fail to describe itself
        message = f"<{type(error).__name__} whose text cannot be made>"
    try:
        trace = "".join(traceback_module.format_exception(error))
    except Exception:  # noqa: BLE001 - likewise
        trace = "".join(traceback_module.format_tb(error.__traceback__))
    return type(error).__name__, _clean(message[:MESSAGE_MAX]), _clean(trace[-TRACEBACK_MAX:])


def _clean(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
