"""What may a caller ask for? Commands and queries made of arguments that were checked first.

Everything is refused here, before anything is stored; nothing here writes.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from perdure.errors import AlreadyClosed, Conflict, InvalidArgument, PerdureError, UnknownExecution
from perdure.model.execution import (
    Execution,
    ExecutionStatus,
    FrameRef,
    OnParentCancel,
    StartOptions,
)
from perdure.model.ids import (
    CHANNEL,
    DISPATCH_KEY,
    QUEUE,
    check_name,
    child_eid,
    is_reply_channel,
    is_text,
    new_eid,
    parse_eid,
)
from perdure.model.instants import to_us
from perdure.model.provenance import Actor
from perdure.ports.commands import CreateExecution, Refused, Send
from perdure.ports.store import ExecutionQuery

if TYPE_CHECKING:
    from perdure.runtime.registry import Workflow
    from perdure.runtime.values import Values

LIMIT_MAX = 500
SEED_BYTES = 16
ENGINE = Actor.system("perdure")


def creation(
    workflow: Workflow,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    key: str | None,
    queue: str | None,
    options: StartOptions | None,
    by: Actor,
    now: int,
    values: Values,
) -> CreateExecution:
    """Make the command that creates an execution."""
    options = _check_options(options)
    if key is not None:
        check_name("dispatch key", key, DISPATCH_KEY)
    record = Execution(
        eid=new_eid(),
        workflow=workflow.name,
        version=workflow.version,
        args=values.seal(workflow.its_arguments, workflow.encode_arguments(args, dict(kwargs))),
        seed=secrets.token_bytes(SEED_BYTES),
        queue=workflow.queue if queue is None else check_name("queue", queue, QUEUE),
        created_by=check_actor(by),
        created_at=now,
        options=options,
        dispatch_key=key,
    )
    return CreateExecution(record, now)


def child(
    workflow: Workflow,
    encoded: Raw,
    parent: Execution,
    fid: str,
    *,
    queue: str | None,
    options: StartOptions | None,
    on_parent_cancel: OnParentCancel,
    by: Actor,
) -> Execution:
    """Make the record of a child, but for when it is created.

    What its options leave at the default it inherits: the priority and the baggage.
    """
    if on_parent_cancel not in ("cancel", "abandon"):
        reason = f"on_parent_cancel is {on_parent_cancel!r}; it is 'cancel' or 'abandon'"
        raise InvalidArgument(reason)
    options = _check_options(options)
    inherited = parent.options
    if options.priority == StartOptions().priority:
        options = replace(options, priority=inherited.priority)
    options = replace(options, baggage={**inherited.baggage, **options.baggage})
    return Execution(
        eid=child_eid(parent.eid, fid),
        workflow=workflow.name,
        version=workflow.version,
        args=encoded,
        seed=secrets.token_bytes(SEED_BYTES),
        queue=workflow.queue if queue is None else check_name("queue", queue, QUEUE),
        created_by=by,
        created_at=0,
        options=options,
        parent=FrameRef(parent.eid, fid),
        on_parent_cancel=on_parent_cancel,
    )


def successor(record: Execution, encoded: Raw, *, by: Actor, now: int) -> Execution:
    """Make the record of the execution that goes on in the place of another one."""
    return replace(
        record,
        eid=new_eid(),
        args=encoded,
        seed=secrets.token_bytes(SEED_BYTES),
        created_by=by,
        created_at=now,
        options=replace(record.options, not_before=None),
    )


def message(
    eid: UUID,
    channel: str,
    payload: object,
    *,
    correlation: str | None,
    by: Actor,
    now: int,
    values: Values,
) -> Send:
    """Make the command that sends a message."""
    encoded = payload_for(channel, payload, values)
    if correlation is not None and not is_text(correlation):
        reason = f"correlation is {correlation!r}; it is a text"
        raise InvalidArgument(reason)
    return Send(eid, channel, encoded, check_actor(by), correlation, now)


def payload_for(channel: str, payload: object, values: Values) -> bytes:
    """Check the name of a channel, and encode what is to be sent on it."""
    check_channel(channel)
    return bytes(values.encode(f"the payload for channel {channel!r}", payload))


def check_channel(channel: str) -> None:
    """Refuse a name that is no channel's, or only that of an answer to a task."""
    check_name("channel", channel, CHANNEL)
    if is_reply_channel(channel):
        reason = (
            f"{channel!r} is a channel for the answer to a task; only its consumer sends on it: "
            "use engine.deliver"
        )
        raise InvalidArgument(reason)


def answer(
    eid: UUID, channel: str, payload: object, *, by: Actor, now: int, values: Values
) -> Send:
    """Make the command that sends the answer to a task."""
    if not isinstance(channel, str) or not is_reply_channel(channel):
        reason = (
            f"{channel!r} is not a reply channel; give the reply_channel of the task, or use "
            "engine.signal for a channel of the execution"
        )
        raise InvalidArgument(reason)
    check_name("channel", channel, CHANNEL)
    encoded = bytes(values.encode(f"the answer for channel {channel!r}", payload))
    return Send(eid, channel, encoded, check_actor(by), None, now)


def check_reason(reason: object) -> str | None:
    """Refuse a reason that no reader could make sense of."""
    if reason is not None and not is_text(reason):
        message = f"reason is {reason!r}; it is a text"
        raise InvalidArgument(message)
    return reason if isinstance(reason, str) else None


def check_limit(limit: object) -> None:
    """Refuse a limit of a list that is none, or that is too large for one answer."""
    if not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        message = f"limit is {limit!r}; it is between 1 and {LIMIT_MAX}"
        raise InvalidArgument(message)


def query(
    *,
    status: ExecutionStatus | str | Iterable[ExecutionStatus | str] | None,
    workflow: str | None,
    tags: Mapping[str, str] | None,
    text: str | None,
    parent: UUID | str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    cursor: str | None,
) -> ExecutionQuery:
    """Make the query of a list of executions."""
    check_limit(limit)
    if tags is not None and not isinstance(tags, Mapping):
        reason = f"tags is {tags!r}; it maps text to text"
        raise InvalidArgument(reason)
    texts = (workflow, text, cursor, *itertools.chain.from_iterable((tags or {}).items()))
    for given in texts:
        if given is not None and not is_text(given):
            reason = f"{given!r} is no text; workflow, text, cursor and tags are compared with text"
            raise InvalidArgument(reason)
    return ExecutionQuery(
        status=None if status is None else _statuses(status),
        workflow=workflow,
        tags=tuple(sorted((tags or {}).items())),
        text=text,
        parent=None if parent is None else parse_eid(parent),
        since=None if since is None else to_us(since, "since"),
        until=None if until is None else to_us(until, "until"),
        limit=limit,
        cursor=cursor,
    )


def narrowed(
    query: ExecutionQuery, statuses: frozenset[ExecutionStatus], cursor: str | None = None
) -> ExecutionQuery:
    """Give the query of the next page, of these statuses only."""
    return dataclasses.replace(query, status=statuses, cursor=cursor)


def refusal(eid: UUID, refused: Refused) -> PerdureError:
    """Give the error that tells a caller why a request was refused."""
    if refused.code == "unknown_execution":
        return UnknownExecution(eid)
    if refused.code == "already_closed":
        return AlreadyClosed(eid, refused.detail or "closed")
    if refused.code == "same_version":
        return Conflict(f"execution {eid} has version {refused.detail!r} already; nothing was done")
    return Conflict(f"execution {eid}: refused ({refused.code})")


def key_taken(creation: CreateExecution, refused: Refused) -> PerdureError:
    """Give the error that tells a caller that a dispatch key belongs to another workflow."""
    return Conflict(
        f"dispatch key {creation.record.dispatch_key!r} belongs to execution {refused.detail} of "
        "another workflow; nothing was started: use another key"
    )


def _check_options(options: StartOptions | None) -> StartOptions:
    if options is None:
        return StartOptions()
    if not isinstance(options, StartOptions):
        reason = f"options is {options!r}; give StartOptions(...)"
        raise InvalidArgument(reason)
    options.check()
    return options


def check_actor(by: Actor) -> Actor:
    """Refuse what is no actor."""
    if not isinstance(by, Actor):
        reason = f"by is {by!r}; give an Actor, for example Actor.human('ada@example.com')"
        raise InvalidArgument(reason)
    return by


def _statuses(
    status: ExecutionStatus | str | Iterable[ExecutionStatus | str],
) -> frozenset[ExecutionStatus]:
    try:
        given = [status] if isinstance(status, str) else list(status)
        return frozenset(ExecutionStatus(one) for one in given)
    except (TypeError, ValueError) as error:
        known = ", ".join(ExecutionStatus)
        reason = f"{error}: a status is one of {known}"
        raise InvalidArgument(reason) from error
