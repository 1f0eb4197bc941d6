"""Which messages has an owned execution not consumed yet? In order, for each channel."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable

from perdure.model.entry import PackedMessage
from perdure.model.memo import MemoTable


class Mailbox:
    """The unread messages of one execution, as its owner knows them."""

    def __init__(self, table: MemoTable, messages: Iterable[PackedMessage]) -> None:
        """Make a box of what the journal gave back and of what the store holds unread."""
        self._consumed = table.consumed
        self._unread: dict[str, deque[PackedMessage]] = {}
        for message in table.returned.values():
            self.put_back(message)
        self.accept(messages)

    def accept(self, messages: Iterable[PackedMessage]) -> None:
        """Keep the messages that are new; each channel's come in order."""
        for message in messages:
            unread = self._unread.setdefault(message.channel, deque())
            last = unread[-1].seq if unread else 0
            if message.seq > max(last, self._consumed.get(message.channel, 0)):
                unread.append(message)

    def take(self, channel: str) -> PackedMessage | None:
        """Take the next message of a channel, or ``None`` if there is none."""
        unread = self._unread.get(channel)
        if not unread:
            return None
        message = unread.popleft()
        self._consumed[channel] = max(message.seq, self._consumed.get(channel, 0))
        return message

    def put_back(self, message: PackedMessage) -> None:
        """Take back a message whose frame was abandoned before the function was told of it."""
        unread = self._unread.setdefault(message.channel, deque())
        bisect.insort(unread, message, key=lambda other: other.seq)
