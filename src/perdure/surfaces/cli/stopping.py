"""How is a process that works told to stop? By a signal; a second one stops it at once.

The first SIGTERM or SIGINT lets it drain. The second one stops the process as a crash would, and it
exits with 128 + the number of the signal: 130 or 143.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Whether the process was told to stop.

    Attributes:
        event: set at the first signal.
        name: the name of that signal, or ``None``.
    """

    def __init__(self, last_words: str) -> None:
        """Nobody has told it to stop."""
        self._last_words = f"perdure: stopped at once; {last_words}\n".encode()
        self.event = asyncio.Event()
        self.name: str | None = None
        self._loop = asyncio.get_running_loop()

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal: the first one asks to stop, a second one stops at once.

        It runs between two lines of whatever the process does, also while a step blocks the event
        loop. So it must not print through a stream that may be in use.
        """
        if self.name is not None:
            os.write(2, self._last_words)
            os._exit(128 + number)
        self.name = signal.Signals(number).name
        self._loop.call_soon_threadsafe(self.event.set)


@contextmanager
def stop_signals(last_words: str) -> Iterator[Stop]:
    """Take SIGTERM and SIGINT, and give them back at the end.

    Args:
        last_words: what a second signal says of the work that it cuts off.
    """
    stop = Stop(last_words)
    before = {number: signal.signal(number, stop.receive) for number in STOPPING}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
