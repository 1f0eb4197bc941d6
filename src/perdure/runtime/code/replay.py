"""How is a workflow function driven? By a small cooperative scheduler, never inside a task.

The driver runs the function and its branches from event-loop callbacks, first in, first out. Live,
the runner delivers an outcome when it is durable; on replay in the same order, the order of the
journal. So branches interleave on replay exactly as they did. What the function awaits that is not
one of its frames stops it: a replay could not repeat it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

from perdure.errors import ForeignAwait
from perdure.runtime.frames import Frame, Gathered, Group, Pending, Selected

REFUSALS_MAX = 100

# Coroutines that would not be closed. If they were freed they would be closed again.
_stubborn: list[Coroutine[Any, Any, Any]] = []

log = logging.getLogger("perdure.runner")

Member = Pending[Any] | Coroutine[Any, Any, Any]


class Branch(Pending[Any]):
    """A coroutine that the driver runs: the workflow function, or a member of a gather."""

    __slots__ = ("context", "coroutine", "opened")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> None:
        super().__init__()
        self.coroutine = coroutine
        self.context = context
        self.opened: list[Pending[Any]] = []


class Driver:
    """Drives one workflow function.

    Attributes:
        root: the branch of the function itself; done when the function has ended.
        stopped: why the function is not driven any more, or ``None``.
        closed: whether its coroutines were closed; a frame that is opened then is `Abandoned`.
    """

    def __init__(self, abandon_frame: Callable[[Frame[Any], str], None]) -> None:
        self._abandon_frame = abandon_frame
        self._ready: deque[Branch] = deque()
        self._branches: dict[Branch, None] = {}
        self._generators: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
        self._thread = 0
        self._current: Branch | None = None
        self.root: Branch | None = None
        self.stopped: Exception | None = None
        self.closed = False
        self._refusals = 0

    # -- what the runner asks ----------------------------------------------------------------

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Make `coroutine` the function that is driven; `run` then starts it."""
        self.root = self._add_branch(coroutine, contextvars.copy_context())

    def run(self) -> None:
        """Run every branch that can go on, until all of them wait.

        Only called from callbacks of the event loop: within a task, ``asyncio.timeout`` in the
        function would cancel that one.
        """
        if not self._ready:
            return
        self._thread = threading.get_ident()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._generators.add, self._close_generator)
        try:
            while self._ready and self.stopped is None:
                branch = self._ready.popleft()
                if not branch.done:
                    self._resume(branch)
        finally:
            sys.set_asyncgen_hooks(*hooks)
            self._thread = 0

    def stop(self, reason: Exception) -> None:
        """Drive no further: the first reason counts."""
        if self.stopped is None:
            self.stopped = reason

    def close(self) -> None:
        """Close every coroutine and asynchronous generator; none of them can open a frame."""
        self._ready.clear()
        with self._closing():
            for branch in list(self._branches):
                _close_coroutine(branch.coroutine)
            self._branches.clear()
            for generator in list(self._generators):
                self._close_generator(generator)
        self.closed = True

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Let what runs now, because it is closed, open no frame."""
        before = self.closed, self._thread
        self.closed, self._thread = True, threading.get_ident()
        try:
            yield
        finally:
            self.closed, self._thread = before

    @property
    def ended(self) -> bool:
        """Whether the function has returned or raised."""
        return self.root is not None and self.root.done

    # -- what the context asks ---------------------------------------------------------------

    @property
    def driving(self) -> bool:
        """Whether this thread runs the function or one of its branches right now."""
        return self._thread == threading.get_ident()

    def refuses(self) -> bool:
        """Whether a frame that is opened while the function is closed raises `Abandoned`.

        One that catches even that, in a loop, is given something to await instead: then it can be
        left where it stands.
        """
        self._refusals += 1
        return self._refusals <= REFUSALS_MAX

    def opened(self, pending: Pending[Any]) -> None:
        """Remember what the current branch opened, so that it can be abandoned with it."""
        branch = self._current
        if branch is not None and branch is not self.root:
            branch.opened.append(pending)

    def gather(self, members: list[Member], *, return_exceptions: bool) -> Gathered:
        """Await all members; a coroutine among them becomes a branch."""
        pendings = self._pendings(members)
        gathered = Gathered(pendings, self._abandon_all, return_exceptions=return_exceptions)
        self.opened(gathered)
        return gathered

    def select(self, members: list[Member]) -> Selected:
        """Await the first of some members; a coroutine among them becomes a branch."""
        selected = Selected(self._pendings(members), self._abandon_all)
        self.opened(selected)
        return selected

    def _pendings(self, members: list[Member]) -> list[Pending[Any]]:
        pendings: list[Pending[Any]] = []
        for member in members:
            if isinstance(member, Pending):
                pendings.append(member)
            else:
                branch = self._add_branch(member, contextvars.copy_context())
                self.opened(branch)
                pendings.append(branch)
        return pendings

    # -- branches ----------------------------------------------------------------------------

    def _add_branch(
        self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context
    ) -> Branch:
        branch = Branch(coroutine, context)
        self._branches[branch] = None
        self._ready.append(branch)
        return branch

    def _resume(self, branch: Branch) -> None:
        self._current = branch
        try:
            awaited = branch.context.run(branch.coroutine.send, None)
        except StopIteration as stop:
            self._end(branch, value=stop.value)
        except BaseException as error:  # noqa: BLE001 - whatever ends a branch is its outcome
            self._failed(branch, error)
        else:
            if isinstance(awaited, Pending):
                awaited.watch(lambda _: self._ready.append(branch))
            else:
                self.stop(ForeignAwait(_describe(awaited)))
                _let_go(awaited)
        finally:
            self._current = None

    def _failed(self, branch: Branch, error: BaseException) -> None:
        if self.stopped is not None:
            return
        if isinstance(error, RuntimeError) and _raised_by_asyncio(error):
            self.stop(ForeignAwait(f"asyncio ({error})"))
        else:
            self._end(branch, error=error)

    def _end(self, branch: Branch, value: Any = None, error: BaseException | None = None) -> None:
        if self.stopped is None:
            self._branches.pop(branch, None)
            branch.resolve(value, error)

    # -- abandoning --------------------------------------------------------------------------

    def _abandon_all(self, pendings: list[Pending[Any]], reason: str) -> None:
        for pending in pendings:
            self._abandon(pending, reason)

    def _abandon(self, pending: Pending[Any], reason: str) -> None:
        if pending.done:
            return
        if isinstance(pending, Frame):
            self._abandon_frame(pending, reason)
        pending.abandon(reason)
        if isinstance(pending, Group):
            self._abandon_all(pending.members, reason)
        elif isinstance(pending, Branch):
            with self._closing():
                _close_coroutine(pending.coroutine)
            self._branches.pop(pending, None)
            self._abandon_all(pending.opened, reason)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators.discard(generator)
        closing = generator.aclose()
        with self._closing():
            with suppress(BaseException):  # nobody waits for its cleanup
                closing.send(None)
            closing.close()


def _close_coroutine(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine: local code of a ``finally`` runs, ``except Exception`` does not."""
    with suppress(BaseException):  # it opened a frame or raised while it was closed
        coroutine.close()
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED:
        log.warning("%r cannot be closed: it catches BaseException in a loop", coroutine)
        _stubborn.append(coroutine)


def _let_go(awaited: object) -> None:
    """End what the function has started in the event loop and nobody will wait for."""
    children = getattr(awaited, "_children", None)  # asyncio.gather
    if isinstance(awaited, asyncio.Task) or children is not None:
        awaited.cancel()  # type: ignore[attr-defined]
        awaited.add_done_callback(  # type: ignore[attr-defined]
            lambda done: done.cancelled() or done.exception()
        )


def _describe(awaited: object) -> str:
    if awaited is None:
        return "something of the event loop (a bare yield, such as asyncio.sleep(0))"
    if isinstance(awaited, asyncio.Task):
        return f"the asyncio task {awaited.get_name()!r} ({awaited.get_coro()!r})"
    return f"{awaited!r}"


def _raised_by_asyncio(error: BaseException) -> bool:
    """Tell whether asyncio itself raised because no task runs, as ``asyncio.timeout`` does."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return module == "asyncio" or module.startswith("asyncio.")
