"""What is a message? One item on a channel, as the workflow function and readers see it."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model.entry import PackedMessage
from perdure.model.instants import from_us
from perdure.model.provenance import Actor, Provenance


def channel_key(on: str, channel: str) -> str:
    """Give the key of a channel in the books of one execution.

    A channel of the execution itself has its name there, a global one what a wait on it is called:
    ``channel:{name}``. So the two never meet.

    Args:
        on: what the frame that consumed the message waited on.
        channel: the name of the channel.
    """
    return on if on == f"channel:{channel}" else channel


def stream_channel(stream: str) -> str:
    """Give the channel that holds the items of a stream; no user can name it."""
    return f"stream/{stream}"


class Message(msgspec.Struct, frozen=True):
    """One item on a channel.

    Attributes:
        seq: its number on the channel, from 1.
        channel: the channel's name.
        payload: the JSON value that was sent; ``None`` is a value like any other.
        sent_by: who sent it and when.
        correlation: a string of the sender's that ties it to something else, or ``None``.
    """

    seq: int
    channel: str
    payload: Any
    sent_by: Provenance
    correlation: str | None = None

    @property
    def actor(self) -> Actor:
        """Who sent it."""
        return self.sent_by.actor


def unpack_message(packed: PackedMessage) -> Message:
    """Give the public form of a packed message."""
    return Message(
        packed.seq,
        packed.channel,
        msgspec.json.decode(packed.payload),
        Provenance(packed.sent_by, None, None, 0, from_us(packed.sent_at)),
        packed.correlation,
    )
