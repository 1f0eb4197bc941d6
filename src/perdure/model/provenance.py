"""Who did it, where, with which code, and when? The four questions every write answers."""

from __future__ import annotations

import os
import re
import socket
from datetime import datetime
from typing import Literal, get_args

import msgspec

from perdure.errors import InvalidArgument
from perdure.model.ids import is_text

ActorKind = Literal["worker", "human", "system", "schedule"]

_KINDS = get_args(ActorKind)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


class Actor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who acts.

    Attributes:
        kind: ``worker``, ``human``, ``system`` or ``schedule``.
        id: an email address for a human, else a short name.
        on_behalf_of: the email address of the person a system acts for, if any.

    Raises:
        InvalidArgument: if the kind is another, the id is no text, or a person is not named by an
            email address.
    """

    kind: ActorKind
    id: str
    on_behalf_of: str | None = None

    def __post_init__(self) -> None:
        """Refuse an actor that no reader could make sense of."""
        if self.kind not in _KINDS or not is_text(self.id) or not self.id:
            message = (
                f"{self.kind!r} with the id {self.id!r} is no actor; its kind is one of "
                f"{', '.join(_KINDS)}, its id a text that is not empty"
            )
            raise InvalidArgument(message)
        for person in (self.id if self.kind == "human" else None, self.on_behalf_of):
            if person is not None and not (is_text(person) and _EMAIL.fullmatch(person)):
                message = f"{person!r} is not an email address; the id of a person is one"
                raise InvalidArgument(message)

    @classmethod
    def human(cls, email: str) -> Actor:
        """Give the actor for a person, named by email address.

        Raises:
            InvalidArgument: if it is no email address; it keeps a journal legible years later.
        """
        return cls("human", email)

    @classmethod
    def system(cls, name: str, *, on_behalf_of: str | None = None) -> Actor:
        """Give the actor for a program, optionally acting for a person."""
        return cls("system", name, on_behalf_of)

    @classmethod
    def schedule(cls, name: str) -> Actor:
        """Give the actor for a schedule."""
        return cls("schedule", name)

    @classmethod
    def worker(cls, worker_id: str) -> Actor:
        """Give the actor for a worker."""
        return cls("worker", worker_id)

    def __str__(self) -> str:
        """Give ``kind:id``, the form in which the command line names an actor."""
        return f"{self.kind}:{self.id}"


class Site(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where code runs.

    Attributes:
        host: the machine's name.
        pid: the process id.
        worker_id: the worker, or ``None`` for an engine without one.
        instance: a name the operator gives this process, or ``None``.
        region: where the machine stands, or ``None``.
        epoch: the epoch of the owner's lease, or ``None`` where no lease is involved.
    """

    host: str
    pid: int
    worker_id: str | None = None
    instance: str | None = None
    region: str | None = None
    epoch: int | None = None

    @classmethod
    def here(cls, *, instance: str | None = None, region: str | None = None) -> Site:
        """Give the site of this process."""
        return cls(socket.gethostname(), os.getpid(), None, instance, region)


class Code(msgspec.Struct, frozen=True, omit_defaults=True):
    """What runs: the workflow, its version, the frame, and the code reference of the deploy."""

    workflow: str
    version: str
    frame_kind: str
    frame_name: str
    code_ref: str | None = None


class Provenance(msgspec.Struct, frozen=True):
    """Actor, site, code, attempt and time of one write."""

    actor: Actor
    site: Site | None
    code: Code | None
    attempt: int
    at: datetime


def describe_stop(by: Actor, reason: str | None) -> str:
    """Say who stopped something and why: ``by human:ada@example.com: wrong customer``."""
    return f"by {by}" if reason is None else f"by {by}: {reason}"
