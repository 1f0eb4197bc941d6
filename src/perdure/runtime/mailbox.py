"""Which messages has an owned execution not consumed yet? In order, for each channel."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from perdure.model.entry import PackedMessage


class Mailbox:
    """The unread messages of one execution, as its owner knows them."""

    def __init__(self, consumed: dict[str, int]) -> None:
        """Make an empty box; `consumed` holds the last number consumed on each channel."""
        self._consumed = consumed
        self._unread: dict[str, deque[PackedMessage]] = {}

    def accept(self, messages: Iterable[PackedMessage]) -> None:
        """Keep the messages that are new; each channel's come in order."""
        for message in messages:
            unread = self._unread.setdefault(message.channel, deque())
            last = unread[-1].seq if unread else self._consumed.get(message.channel, 0)
            if message.seq > last:
                unread.append(message)

    def take(self, channel: str) -> PackedMessage | None:
        """Take the next message of a channel, or ``None`` if there is none."""
        unread = self._unread.get(channel)
        if not unread:
            return None
        message = unread.popleft()
        self._consumed[channel] = message.seq
        return message
