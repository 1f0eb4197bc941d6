"""Which messages has an owned execution not consumed yet? In order, for each channel.

A channel is named by its key: see ``model.message.channel_key``.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator

from perdure.model.entry import PackedMessage
from perdure.model.memo import MemoTable


class Mailbox:
    """The unread messages of one execution, as its owner knows them."""

    def __init__(self, table: MemoTable) -> None:
        """Make a box of what the journal gave back."""
        self._consumed = table.consumed
        self._unread: dict[str, deque[PackedMessage]] = {}
        self._returned: set[tuple[str, int]] = set()
        for (channel, _), message in table.returned.items():
            self.put_back(channel, message)

    def accept(self, channel: str, message: PackedMessage) -> None:
        """Keep a message if it is new; each channel's come in order."""
        unread = self._unread.get(channel)
        last = unread[-1].seq if unread else 0
        if message.seq > max(last, self._consumed.get(channel, 0)):
            self._unread.setdefault(channel, deque()).append(message)

    def take(self, channel: str) -> PackedMessage | None:
        """Take the next message of a channel, or ``None`` if there is none."""
        unread = self._unread.get(channel)
        if not unread:
            return None
        message = unread.popleft()
        if not unread:
            del self._unread[channel]
        self._consumed[channel] = max(message.seq, self._consumed.get(channel, 0))
        self._returned.discard((channel, message.seq))
        return message

    def put_back(self, channel: str, message: PackedMessage) -> None:
        """Take back a message whose frame was abandoned before the function was told of it."""
        unread = self._unread.setdefault(channel, deque())
        bisect.insort(unread, message, key=lambda other: other.seq)
        self._returned.add((channel, message.seq))

    def unread(self) -> Iterator[tuple[str, int]]:
        """Give the channels with unread messages, and how many each has."""
        return ((channel, len(messages)) for channel, messages in self._unread.items())

    def consumed(self, channel: str) -> int:
        """Give the number up to which a channel was consumed."""
        return self._consumed.get(channel, 0)

    @property
    def returned(self) -> tuple[tuple[str, int], ...]:
        """The messages that were put back, by channel and number."""
        return tuple(sorted(self._returned))
