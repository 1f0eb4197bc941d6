"""How does a function act on the rest of the system? Children, messages, announcements, claims.

An effect is a step of the engine's own: it and its memo are one transaction, so it happens exactly
once. Unlike other frames an effect counts even if the function returns without awaiting it; so does
the start of a child that is to live on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar, overload
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from perdure.errors import Conflict, InvalidArgument, UnknownWorkflow
from perdure.model import codec
from perdure.model.execution import OnParentCancel, StartOptions
from perdure.model.ids import (
    CHANNEL,
    CLAIM_KEY,
    QUEUE,
    ROOT,
    TASK_KEY,
    check_name,
    parse_eid,
    parse_task_id,
)
from perdure.model.queue_task import DELEGATE
from perdure.ports.commands import (
    Announce,
    Broadcast,
    Claim,
    Command,
    CreateExecution,
    Enqueue,
    Publish,
    Send,
    Withdraw,
)
from perdure.runtime import requests
from perdure.runtime.code.opening import Opening
from perdure.runtime.frames import ChildCall, Continue, Frame

if TYPE_CHECKING:
    from perdure.runtime.code.context import Context
    from perdure.runtime.registry import Workflow

P = ParamSpec("P")
T = TypeVar("T")

Scope = Literal["execution", "global"]


class Effects(Opening):
    """The part of a context that acts on the rest of the system."""

    __slots__ = ()

    # A call without options is checked against the child's parameters. With options it is not: the
    # type system has no way to say both at once. The result type is known in every case.
    @overload
    def child(
        self,
        workflow: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        name: str,
        key: str | None = None,
        queue: str | None = None,
        options: StartOptions | None = None,
        on_parent_cancel: OnParentCancel = "cancel",
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def child(
        self,
        workflow: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        key: str,
        queue: str | None = None,
        options: StartOptions | None = None,
        on_parent_cancel: OnParentCancel = "cancel",
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def child(
        self,
        workflow: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        queue: str,
        options: StartOptions | None = None,
        on_parent_cancel: OnParentCancel = "cancel",
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def child(
        self,
        workflow: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        options: StartOptions,
        on_parent_cancel: OnParentCancel = "cancel",
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def child(
        self,
        workflow: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        on_parent_cancel: OnParentCancel,
        **kwargs: Any,
    ) -> Frame[T]: ...
    @overload
    def child(
        self,
        workflow: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Frame[T]: ...
    @overload
    def child(
        self,
        workflow: str,
        /,
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        queue: str | None = None,
        options: StartOptions | None = None,
        on_parent_cancel: OnParentCancel = "cancel",
        **kwargs: Any,
    ) -> Frame[Any]: ...
    def child(  # type: ignore[misc]  # no implementation accepts every ParamSpec and options
        self,
        workflow: str | Callable[..., Coroutine[Any, Any, Any]],
        /,
        *args: Any,
        name: str | None = None,
        key: str | None = None,
        queue: str | None = None,
        options: StartOptions | None = None,
        on_parent_cancel: OnParentCancel = "cancel",
        **kwargs: Any,
    ) -> Frame[Any]:
        """Start another workflow as a child execution, and wait for its end.

        The child has the id ``child_eid(ctx.eid, fid)``, so it is started exactly once. It runs the
        version that is registered last when it is started. A cancel of this execution is handed
        down to it; so is one when its frame is abandoned, or this execution ends before it.

        Args:
            workflow: the registered function, or the name of a workflow.
            *args: the function's arguments, without the context.
            name: the name in the frame id; the function's name if it is not given.
            key: makes the frame id ``root/{name}:{key}``; give one in a loop.
            queue: the queue it stands on, if not the workflow's own.
            options: as in ``engine.start``; priority and baggage are inherited.
            on_parent_cancel: ``"cancel"``, or ``"abandon"`` for a child that is to live on when
                this execution is cancelled, terminated or ends.
            **kwargs: the function's keyword arguments.

        Returns:
            Something to await: what the child's function returned.

        Raises:
            ChildFailed: when awaited, if it failed, was cancelled or was terminated.
            UnknownWorkflow: at once, if nothing registered here fits.
            InvalidArgument: at once, if an argument does not fit the child's function.

        Example:
            ``receipts = await ctx.gather(*(ctx.child(ship, order) for order in orders))``
        """
        self._check("child")
        found = self._find(workflow)
        default = found.function.__name__ if name is None else name
        fid, name = self._name("child", default, key)
        encoded = self._seal_once(fid, found.encode_arguments(args, kwargs))
        frame: Frame[Any] = Frame(fid, "child", name, codec.digest(fid, (found.name, args, kwargs)))
        runner = self._runner
        record = requests.child(
            found,
            encoded,
            runner.record,
            fid,
            queue=queue,
            options=options,
            on_parent_cancel=on_parent_cancel,
            by=runner.actor,
        )
        frame.channel = fid
        frame.decoder = found.decoder

        def create(now: int) -> CreateExecution:
            return CreateExecution(replace(record, created_at=now), now)

        frame.child = ChildCall(record.eid, create, tied=on_parent_cancel == "cancel")
        return self._start(frame)

    def _find(self, workflow: str | Callable[..., Any]) -> Workflow:
        """Find the workflow of a child."""
        try:
            return self._runner.registry.find(workflow)
        except UnknownWorkflow as unknown:
            if self._runner.has_recorded("child"):  # it was known when the child was started
                self._driver.stop(unknown)
            raise

    def send(
        self,
        channel: str,
        payload: Any,
        *,
        to: UUID | str | None = None,
        scope: Scope = "execution",
        name: str | None = None,
        key: str | None = None,
    ) -> Frame[int]:
        """Send one message on a channel, exactly once.

        Args:
            channel: the channel's name.
            payload: any JSON value.
            to: the execution that receives it; this one if it is not given.
            scope: ``"global"`` sends to every execution that receives on the global channel.
            name: the name in the frame id; ``send`` if it is not given.
            key: makes the frame id ``root/{name}:{key}``.

        Returns:
            Something to await: the message's sequence number on the channel.

        Raises:
            StepFailed: when awaited, if the execution does not exist or has ended.
            InvalidName: at once, if the channel's name is out of its grammar.
            NotSerializable: at once, if the payload is not JSON.
        """
        fid, name = self._name("send", "send" if name is None else name, key)
        requests.check_channel(channel)
        encoded = bytes(self._encode_once(fid, payload))
        check_scope(scope)
        if to is not None and scope == "global":
            message = "a global channel belongs to no execution; give to= or scope='global'"
            raise InvalidArgument(message)
        target = None if to is None else parse_eid(to)
        digest = codec.digest(fid, (scope, target, channel, payload))
        eid, actor = target or self._runner.eid, self._runner.actor

        def command(now: int) -> Command:
            if scope == "global":
                return Broadcast(channel, encoded, actor, now)
            return Send(eid, channel, encoded, actor, None, now)

        return self._effect(Frame(fid, "step", name, digest), command)

    def announce(
        self,
        type: str,  # noqa: A002 - the word for it
        payload: Any = None,
        *,
        name: str | None = None,
        key: str | None = None,
    ) -> Frame[int]:
        """Append an entry of your own to the control log, exactly once.

        Args:
            type: what it is about; the entry's type is ``announce.{type}``.
            payload: any JSON value.
            name: the name in the frame id; ``announce`` if it is not given.
            key: makes the frame id ``root/{name}:{key}``.

        Returns:
            Something to await: the position of the entry in the control log.
        """
        fid, name = self._name("announce", "announce" if name is None else name, key)
        check_name("announcement type", type, CHANNEL)
        encoded = codec.encode(fid, payload)
        if not self._recorded(fid):
            self._runner.values.check(fid, encoded)
        digest = codec.digest(fid, (type, payload))
        runner = self._runner

        def command(now: int) -> Command:
            return Announce(runner.eid, runner.epoch, fid, type, bytes(encoded), now)

        return self._effect(Frame(fid, "step", name, digest), command)

    def publish(
        self, stream: str, value: Any, *, name: str | None = None, key: str | None = None
    ) -> Frame[int]:
        """Add an item to a stream of this execution, exactly once; ``engine.stream`` reads it.

        Inside a step use ``step_info().publish(stream, value)``.

        Args:
            stream: the stream's name, of the grammar of a channel.
            value: any JSON value.
            name: the name in the frame id; ``publish`` if it is not given.
            key: makes the frame id ``root/{name}:{key}``.

        Returns:
            Something to await: the number of the item, from 1.

        Raises:
            InvalidName: at once, if the stream's name is out of its grammar.
            NotSerializable: at once, if the value is not JSON.
        """
        fid, name = self._name("publish", "publish" if name is None else name, key)
        check_name("stream", stream, CHANNEL)
        encoded = bytes(self._encode_once(fid, value))
        runner = self._runner

        def command(now: int) -> Command:
            return Publish(runner.eid, None, stream, encoded, runner.actor, now)

        digest = codec.digest(fid, (stream, value))
        return self._effect(Frame(fid, "step", name, digest), command)

    def claim(self, key: str, value: Any, *, name: str | None = None) -> Frame[tuple[bool, Any]]:
        """Put a value under a key that all executions of the store share, unless it is taken.

        Exactly one caller wins; everybody learns the winner's value.

        Args:
            key: a text of at most 512 characters.
            value: any JSON value.
            name: the name in the frame id; ``claim`` if it is not given.

        Returns:
            Something to await: whether this frame won, and the value under the key.

        Raises:
            NotSerializable: at once, if the value is not JSON.
        """
        fid, name = self._name("claim", "claim" if name is None else name, None)
        check_name("claim key", key, CLAIM_KEY)
        encoded = bytes(self._encode_once(fid, value))
        frame: Frame[tuple[bool, Any]] = Frame(fid, "step", name, codec.digest(fid, (key, value)))
        eid, values = self._runner.eid, self._runner.values

        def decode(memo: bytes | Raw) -> tuple[bool, Any]:
            won, kept = codec.decode(memo)
            return won, values.plain(fid, kept)

        frame.decoder = decode
        return self._effect(frame, lambda now: Claim(key, eid, encoded, now))

    def enqueue(
        self,
        queue: str,
        payload: Any = None,
        *,
        task_key: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> Frame[str]:
        """Enqueue a task for a consumer outside the engine, exactly once.

        No worker runs such a task: a consumer dequeues it (``engine.consumer``, ``perdure
        consume``) and may answer on the reply channel; ``patterns.delegate`` waits for that.

        Args:
            queue: the queue's name.
            payload: any JSON value.
            task_key: tells the task from others of this execution. While a task with the same key
                is on the queue, nothing is added. The frame's id by default.
            name: the name in the frame id; ``enqueue`` if it is not given.
            key: makes the frame id ``root/{name}:{key}``.

        Returns:
            Something to await: the id of the task.

        Raises:
            InvalidName: at once, if the queue or the key is out of its grammar.
            NotSerializable: at once, if the payload is not JSON.

        Example:
            ``task = await ctx.enqueue("agents", {"question": "What is due?"})``
        """
        fid, name = self._name("enqueue", "enqueue" if name is None else name, key)
        check_name("queue", queue, QUEUE)
        if task_key is not None:
            check_name("task key", task_key, TASK_KEY)
        encoded = bytes(self._encode_once(fid, payload))
        digest = codec.digest(fid, (queue, task_key, payload))
        runner, own = self._runner, fid.removeprefix(f"{ROOT}/") if task_key is None else task_key

        def command(now: int) -> Command:
            return Enqueue(runner.eid, runner.epoch, fid, DELEGATE, own, queue, encoded, now)

        return self._effect(Frame(fid, "step", name, digest), command)

    def withdraw(
        self, queue: str, task_id: str, *, name: str | None = None, key: str | None = None
    ) -> Frame[bool]:
        """Remove a task from a queue, exactly once; whoever holds it loses its lease.

        Args:
            queue: the queue's name.
            task_id: what ``ctx.enqueue`` returned.
            name: the name in the frame id; ``withdraw`` if it is not given.
            key: makes the frame id ``root/{name}:{key}``.

        Returns:
            Something to await: whether it was there.

        Raises:
            InvalidArgument: at once, if this is not the id of a delegated task.
        """
        fid, name = self._name("withdraw", "withdraw" if name is None else name, key)
        check_name("queue", queue, QUEUE)
        if parse_task_id(task_id)[0] != DELEGATE:
            message = f"{task_id!r} is no delegated task; give what ctx.enqueue returned"
            raise InvalidArgument(message)
        frame: Frame[bool] = Frame(fid, "step", name, codec.digest(fid, (queue, task_id)))
        return self._effect(frame, lambda _: Withdraw(queue, task_id))

    def _effect(self, frame: Frame[T], command: Callable[[int], Command]) -> Frame[T]:
        frame.effect = command
        return self._start(frame)

    def continue_as(self, *args: Any, **kwargs: Any) -> NoReturn:
        """End this execution, and start a fresh one of the same workflow in its place.

        The journal begins anew, so a loop can run for ever. What moves to the successor: the frame
        of the parent that waits, the dispatch key, the options, and the unread messages. Operations
        on this execution's id find the successor.

        Args:
            *args: the successor's arguments, without the context.
            **kwargs: its keyword arguments.

        Raises:
            Conflict: if a frame or a child is open; await it first.
            InvalidArgument: if an argument does not fit the function.

        Example:
            ``ctx.continue_as(page + 1)`` as the last line of the function.
        """
        self._check("continue_as")
        record = self._runner.record
        found = self._runner.registry.find(record.workflow, record.version)
        encoded = self._seal(found.its_arguments, found.encode_arguments(args, kwargs))
        open_frames = [frame.fid for frame in self._runner.open_frames()]
        if open_frames:
            message = (
                f"execution {record.eid} cannot continue while frames are open: "
                f"{', '.join(open_frames)}; await them first"
            )
            raise Conflict(message)
        raise Continue(encoded)


def check_scope(scope: object) -> None:
    """Refuse what is no scope of a channel."""
    if scope not in ("execution", "global"):
        message = f"scope is {scope!r}; it is 'execution' or 'global'"
        raise InvalidArgument(message)
