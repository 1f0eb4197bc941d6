"""What ends the commands of a consumer that was killed? A small process that outlives it.

The guard reads which process groups run. When the consumer is gone, however it went, the pipe to it
is closed: then the guard kills what still runs, and removes the files. It is started as a script,
apart from everything else, so it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


def kill_group(group: int, number: int) -> None:
    """Send a signal to a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class Guard:
    """The consumer's end of the pipe. Made by `guarding`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Speak to a guard that was started."""
        self._process = process

    def add(self, group: int) -> None:
        """Have a process group killed when this process is gone."""
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Forget a process group: it has ended."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        # Without a guard, because somebody killed it, commands run all the same.
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None  # noqa: S101 - `guarding` makes the pipe
            self._process.stdin.write(line.encode())


@contextmanager
def guarding(folder: str) -> Iterator[Guard]:
    """Start a guard; it removes `folder` if this process does not live to do so.

    Args:
        folder: the folder with the files of the commands.
    """
    with subprocess.Popen(  # noqa: S603 - this file
        [sys.executable, "-I", "-S", __file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    ) as process:
        yield Guard(process)


def watch(lines: Iterable[str], folder: str) -> None:
    """Read which groups run until the pipe is closed; then end them, and remove the files."""
    groups: set[int] = set()
    for line in lines:
        change = groups.add if line[0] == "+" else groups.discard
        change(int(line[1:]))
    for group in groups:
        kill_group(group, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    watch(sys.stdin, sys.argv[1])
