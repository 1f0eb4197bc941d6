"""How does a function run a step? The method of its context, typed by the step's own signature."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from perdure.errors import InvalidArgument
from perdure.model import codec
from perdure.model.ids import QUEUE, check_name
from perdure.model.instants import duration_us
from perdure.model.retry import NO_RETRY, RetryPolicy
from perdure.runtime.code.functions import step_function
from perdure.runtime.code.opening import NO_ARGUMENTS, Opening
from perdure.runtime.frames import Detached, Frame, StepCall
from perdure.runtime.transactions import InTransaction

TRANSACTION_S = 5.0
TRANSACTION_MAX_S = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class Stepping(Opening):
    """The part of a context that runs steps."""

    __slots__ = ()

    # A call without options is checked against the function's parameters. With options it is not:
    # the type system has no way to say both at once. The result type is known in every case.
    @overload
    def step(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        name: str,
        key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        key: str,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        retry: RetryPolicy,
        timeout: timedelta | float | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        timeout: timedelta | float,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        queue: str,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Frame[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        name: str,
        key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        key: str,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        retry: RetryPolicy,
        timeout: timedelta | float | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        timeout: timedelta | float,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def step(
        self, function: Callable[..., T], /, *args: Any, queue: str, **kwargs: Any
    ) -> Frame[T]: ...
    @overload
    def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Frame[T]: ...
    def step(  # type: ignore[misc]  # no implementation accepts every ParamSpec and options
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Frame[Any]:
        """Run a function once for the life of the execution, and memoize its value.

        Args:
            function: an async function, or a sync one, which runs in a thread.
            *args: its arguments; they are JSON, or made of it.
            name: the name in the frame id; the function's name if it is not given.
            key: makes the frame id ``root/{name}:{key}``; give one in a loop.
            retry: how often and when it is attempted again; once by default.
            timeout: how long one attempt may take, a timedelta or seconds.
            queue: runs the step detached: any worker that takes work from this queue runs it, and
                this execution waits for the outcome. The function is one that is registered with
                ``@registry.step``; the other worker finds it by its name.
            **kwargs: its keyword arguments.

        Returns:
            Something to await: the value, as it comes back from JSON and the result annotation.

        Raises:
            StepFailed: when awaited, if no attempt is left.
            NotSerializable: at once, if an argument is not JSON.
            InvalidArgument: at once, if a step with a queue is not registered, or an argument does
                not fit it.
            DuplicateFrameError: at once, if the key was used for this name before.

        Example:
            ``invoice = await ctx.step(read_invoice, "INV-7", retry=RetryPolicy(max_attempts=3))``
        """
        known = step_function(function)
        fid, name = self._name("step", known.name if name is None else name, key)
        digest = codec.digest(fid, (args, kwargs)) if args or kwargs else NO_ARGUMENTS
        frame: Frame[Any] = Frame(fid, "step", name, digest)
        frame.decoder = known.decoder
        detached = None
        if queue is not None:
            detached = self._detached(
                fid, function, check_name("queue", queue, QUEUE), args, kwargs
            )
        frame.call = StepCall(
            function,
            args,
            kwargs,
            is_async=known.is_async,
            retry=NO_RETRY if retry is None else retry,
            timeout_us=None
            if timeout is None
            else duration_us(f"the timeout of {fid}", timeout, allow_zero=False),
            place=detached,
        )
        return self._start(frame)

    def _detached(
        self,
        fid: str,
        function: Callable[..., Any],
        queue: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Detached:
        """Say where a step runs that another worker runs."""
        step = self._runner.registry.step_of(function)
        if step is None:
            name = getattr(function, "__name__", repr(function))
            message = (
                f"step {fid}: {name} is not registered, so no other worker can find it; put "
                "@registry.step() above it, or leave queue= out"
            )
            raise InvalidArgument(message)
        encoded = step.encode_arguments(args, kwargs)
        if not self._runner.journal.has_outcome(fid):
            encoded = self._seal(fid, encoded)
        return Detached(queue, step.name, encoded)

    # The types of a call without options are checked, as of `step`.
    @overload
    def transaction(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        name: str,
        key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float = TRANSACTION_S,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def transaction(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        key: str,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float = TRANSACTION_S,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def transaction(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        retry: RetryPolicy,
        timeout: timedelta | float = TRANSACTION_S,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def transaction(
        self, function: Callable[..., T], /, *args: Any, timeout: timedelta | float, **kwargs: Any
    ) -> Frame[T]: ...
    @overload
    def transaction(
        self, function: Callable[Concatenate[Any, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Frame[T]: ...
    def transaction(  # type: ignore[misc]  # no implementation accepts every ParamSpec and options
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float = TRANSACTION_S,
        **kwargs: Any,
    ) -> Frame[Any]:
        """Run a function in the database transaction that commits its memo.

        What it writes in tables of that database happens exactly once, whatever crashes. All other
        writers of the database wait meanwhile, so it is to be quick.

        Args:
            function: a sync function; its first parameter is a connection to the database of the
                store, of SQLite a ``sqlite3.Connection``. It neither commits nor rolls back.
            *args: its other arguments; they are JSON, or made of it.
            name: the name in the frame id; the function's name if it is not given.
            key: makes the frame id ``root/{name}:{key}``; give one in a loop.
            retry: how often and when it is attempted again; once by default.
            timeout: how long it may take, a timedelta or seconds, at most 10 seconds. Then it is
                undone, and the attempt has failed.
            **kwargs: its keyword arguments.

        Returns:
            Something to await: the value, as it comes back from JSON and the result annotation.

        Raises:
            StepFailed: when awaited, if no attempt is left; nothing was written.
            InvalidArgument: at once, if the function is async, or the time is out of range.

        Example:
            ``await ctx.transaction(book, account, 40)`` with ``def book(connection, account, sum)``
        """
        known = step_function(function)
        fid, name = self._name("transaction", known.name if name is None else name, key)
        if known.is_async:
            message = f"step {fid}: an async function cannot run in a transaction; make it sync"
            raise InvalidArgument(message)
        seconds = duration_us(f"the timeout of {fid}", timeout, allow_zero=False) / 1e6
        if seconds > TRANSACTION_MAX_S:
            message = (
                f"the timeout of {fid} is {seconds:g} s; it is {TRANSACTION_MAX_S:g} s at most"
            )
            raise InvalidArgument(message)
        digest = codec.digest(fid, (args, kwargs)) if args or kwargs else NO_ARGUMENTS
        frame: Frame[Any] = Frame(fid, "step", name, digest)
        frame.decoder = known.decoder
        frame.call = StepCall(
            function,
            args,
            kwargs,
            is_async=False,
            retry=NO_RETRY if retry is None else retry,
            timeout_us=None,
            place=InTransaction(seconds),
        )
        return self._start(frame)
