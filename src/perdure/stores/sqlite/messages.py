"""How do commands reach channels, claims and the control log? One function for each."""

from __future__ import annotations

from msgspec import Raw

from perdure.model.message import stream_channel
from perdure.ports.commands import (
    Announce,
    Broadcast,
    Claim,
    Consume,
    Publish,
    Refused,
    Send,
)
from perdure.stores.sqlite.batch import GLOBAL, Batch, encode
from perdure.stores.sqlite.statements import SQL


def send(batch: Batch, command: Send) -> object:
    """Send a message to an execution, or to the one that it continues as."""
    now = batch.now = command.now
    eid = command.eid.bytes
    while not batch.wake(eid, "message", now):
        row = batch.execute(SQL["latest"], (eid,)).fetchone()
        if row is None:
            return Refused("unknown_execution")
        if row[1] is None:
            return Refused("already_closed", row[0])
        eid = row[1]
    sender = (command.sent_by, now, command.correlation)
    return batch.put(eid, command.channel, command.payload, sender)


def broadcast(batch: Batch, command: Broadcast) -> int:
    """Send a message on a global channel."""
    now = batch.now = command.now
    seq = batch.put(GLOBAL, command.channel, command.payload, (command.sent_by, now, None))
    for (eid,) in batch.execute(SQL["waiters"], (command.channel,)).fetchall():
        batch.wake(eid, "message", now)
    batch.heard.append(command.channel)
    return seq


def consume(batch: Batch, command: Consume) -> None:
    """Remember how far a channel was consumed."""
    batch.execute(SQL["consume"], (command.eid.bytes, command.channel, command.seq))


def announce(batch: Batch, command: Announce) -> int:
    """Append to the control log, behind what the batch appends to it before."""
    batch.now = command.now
    batch.flush()
    facts = encode({"fid": command.fid, "payload": Raw(command.payload)})
    kind = f"announce.{command.kind}"
    row = (command.eid.bytes, kind, command.now, command.epoch, facts)
    position = batch.execute(SQL["control"], row).lastrowid
    assert position is not None  # noqa: S101 - an insert has a row
    return position


def publish(batch: Batch, command: Publish) -> object:
    """Add an item to a stream. To its channel nothing is ever unread."""
    now = batch.now = command.now
    eid, epoch = command.eid.bytes, command.epoch
    if epoch is not None and batch.execute(SQL["has_epoch"], (eid, epoch)).fetchone() is None:
        return Refused("lease_lost")
    channel = stream_channel(command.stream)
    seq: int = batch.execute(SQL["next_item"], (eid, channel)).fetchone()[0]
    row = (eid, channel, seq, batch.actor(command.sent_by), now, None, command.payload)
    batch.execute(SQL["send"], row)
    return seq


def claim(batch: Batch, command: Claim) -> object:
    """Keep a value under a key unless the key is taken."""
    batch.now = command.now
    row = (command.key, command.eid.bytes, command.value, command.now)
    won = batch.execute(SQL["claim"], row).rowcount > 0
    value = command.value
    if not won:
        value = batch.execute(SQL["claimed"], (command.key,)).fetchone()[0]
        if command.only_first:
            return Refused("claimed", value.decode())
    return encode((won, Raw(value)))
