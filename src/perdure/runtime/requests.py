"""What may a caller ask for? Commands and queries made of arguments that were checked first.

Everything is refused here, before anything is stored; nothing here writes.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.errors import AlreadyClosed, Conflict, InvalidArgument, PerdureError, UnknownExecution
from perdure.model import codec
from perdure.model.execution import Execution, ExecutionStatus, StartOptions
from perdure.model.ids import CHANNEL, DISPATCH_KEY, QUEUE, check_name, is_text, new_eid
from perdure.model.instants import to_us
from perdure.model.provenance import Actor
from perdure.ports.commands import CreateExecution, Refused, Send
from perdure.ports.store import ExecutionQuery
from perdure.runtime.registry import Workflow

LIMIT_MAX = 500


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
) -> CreateExecution:
    """Make the command that creates an execution."""
    options = StartOptions() if options is None else options
    if not isinstance(options, StartOptions):
        reason = f"options is {options!r}; give StartOptions(...)"
        raise InvalidArgument(reason)
    options.check()
    if key is not None:
        check_name("dispatch key", key, DISPATCH_KEY)
    record = Execution(
        eid=new_eid(),
        workflow=workflow.name,
        version=workflow.version,
        args=workflow.encode_arguments(args, dict(kwargs)),
        seed=secrets.token_bytes(16),
        queue=workflow.queue if queue is None else check_name("queue", queue, QUEUE),
        created_by=_check_actor(by),
        created_at=now,
        options=options,
        dispatch_key=key,
    )
    return CreateExecution(record, now)


def message(
    eid: UUID, channel: str, payload: object, *, correlation: str | None, by: Actor, now: int
) -> Send:
    """Make the command that sends a message."""
    check_name("channel", channel, CHANNEL)
    encoded = codec.encode(f"the payload for channel {channel!r}", payload)
    if correlation is not None and not is_text(correlation):
        reason = f"correlation is {correlation!r}; it is a text"
        raise InvalidArgument(reason)
    return Send(eid, channel, bytes(encoded), _check_actor(by), correlation, now)


def query(
    *,
    status: ExecutionStatus | str | Iterable[ExecutionStatus | str] | None,
    workflow: str | None,
    tags: Mapping[str, str] | None,
    text: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    cursor: str | None,
) -> ExecutionQuery:
    """Make the query of a list of executions."""
    if not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        reason = f"limit is {limit!r}; it is between 1 and {LIMIT_MAX}"
        raise InvalidArgument(reason)
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
        since=None if since is None else to_us(since, "since"),
        until=None if until is None else to_us(until, "until"),
        limit=limit,
        cursor=cursor,
    )


def refusal(eid: UUID, refused: Refused) -> PerdureError:
    """Give the error that tells a caller why a request was refused."""
    if refused.code == "unknown_execution":
        return UnknownExecution(eid)
    if refused.code == "already_closed":
        return AlreadyClosed(eid, refused.detail or "closed")
    return Conflict(f"execution {eid}: refused ({refused.code})")


def key_taken(creation: CreateExecution, refused: Refused) -> PerdureError:
    """Give the error that tells a caller that a dispatch key belongs to another workflow."""
    return Conflict(
        f"dispatch key {creation.record.dispatch_key!r} belongs to execution {refused.detail} of "
        "another workflow; nothing was started: use another key"
    )


def _check_actor(by: Actor) -> Actor:
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
