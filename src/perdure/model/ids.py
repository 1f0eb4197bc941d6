"""How are things named? Grammar of names and the construction of ids; no state, no clock."""

from __future__ import annotations

import re
from uuid import UUID, uuid5

from uuid_utils import compat

from perdure.errors import InvalidArgument, InvalidName

ROOT = "root"
PATCHES = f"{ROOT}/patched:"
"""Begins the ids of the frames that hold the answers about patches."""

FRAME_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
FRAME_KEY = re.compile(r"[A-Za-z0-9_.@+=-]{1,256}")
CHANNEL = re.compile(r"[a-z0-9._-]{1,200}")
QUEUE = re.compile(r"[A-Za-z0-9._-]{1,200}")
WORKFLOW = re.compile(r"[A-Za-z0-9_.-]{1,200}")
VERSION = re.compile(r"[A-Za-z0-9_.+-]{1,100}")
DISPATCH_KEY = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,512}")
CLAIM_KEY = DISPATCH_KEY
TASK_KEY = re.compile(r"[A-Za-z0-9_.@+=:#-]{1,400}")

_CHILDREN = UUID("6f1d0f1c-6a52-5b1e-9f0d-2f1f3c7a9d55")
_REPLIES = UUID("b8a3c3d2-90f4-5a0e-8a56-61d9b7a0c4f1")

REPLY = "reply."
SESSION = "session:"
UUID_LENGTH = 36


def new_eid() -> UUID:
    """Give the id of a new execution: a UUIDv7, so that ids sort by creation."""
    return compat.uuid7()


def child_eid(parent: UUID, fid: str) -> UUID:
    """Give the id of the child that a frame starts: the same at every start of it."""
    return uuid5(_CHILDREN, f"{parent}/{fid}")


def parse_eid(eid: UUID | str) -> UUID:
    """Read an execution id given as a UUID or in its 36-character form.

    Raises:
        InvalidArgument: if it is neither.
    """
    if isinstance(eid, UUID):
        return eid
    try:
        parsed = UUID(eid)
    except (ValueError, AttributeError, TypeError):
        parsed = None
    if parsed is None or str(parsed) != eid.lower():
        message = f"{eid!r} is not an execution id: give a UUID in its 36-character form"
        raise InvalidArgument(message)
    return parsed


def check_name(what: str, value: object, pattern: re.Pattern[str]) -> str:
    """Return `value` if it matches `pattern` as a whole.

    Raises:
        InvalidName: if it is no string or does not match.
    """
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise InvalidName(what, value, pattern.pattern)
    return value


def is_text(value: object) -> bool:
    """Tell whether a value is a string that every store can keep: one without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def task_id(kind: str, eid: UUID, key: str = "") -> str:
    """Give the id of a queue task: ``{kind}:{eid}`` and ``:{key}`` if there is a key."""
    return f"{kind}:{eid}:{key}" if key else f"{kind}:{eid}"


def session_holder(session: int) -> str:
    """Name a session as the holder of a task: the lease lasts as long as the session."""
    return f"{SESSION}{session}"


def parse_task_id(given: object) -> tuple[str, UUID, str]:
    """Take the id of a queue task apart: its kind, execution and key.

    Raises:
        InvalidArgument: if it is none.
    """
    kind, _, rest = given.partition(":") if isinstance(given, str) else ("", "", "")
    eid, _, key = rest.partition(":")
    if not kind or len(eid) != UUID_LENGTH:
        message = f"{given!r} is not the id of a task; give what ctx.enqueue returned"
        raise InvalidArgument(message)
    return kind, parse_eid(eid), key


def reply_channel(task_id: str, fid: str) -> str:
    """Give the channel on which the answer to a task comes that a frame has enqueued.

    Args:
        task_id: what ``ctx.enqueue`` returned.
        fid: the id of its frame.
    """
    return f"{REPLY}{uuid5(_REPLIES, f'{task_id}/{fid}').hex}"


def is_reply_channel(channel: str) -> bool:
    """Tell whether a channel is one on which answers come: nobody else can send on it."""
    return channel.startswith(REPLY)
