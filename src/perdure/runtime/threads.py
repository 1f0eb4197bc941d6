"""Where do sync steps run? In a pool of daemon threads of the worker's own.

A thread that runs too long is abandoned: it cannot be stopped, so its place is given to a new one
and it ends when its function returns. Daemon threads never keep a process alive.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class Threads:
    """A pool that starts a thread when a job finds none idle. The caller bounds the jobs."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._alive = 0

    def submit(self, job: Job) -> None:
        """Run `job`, which must not raise, in a thread of the pool."""
        with self._lock:
            start = self._idle <= self._jobs.qsize()
            self._alive += start
        self._jobs.put(job)
        if start:
            threading.Thread(target=self._work, name="perdure-step", daemon=True).start()

    def close(self) -> None:
        """Let every idle thread end, and the others when their job is done."""
        with self._lock:
            alive = self._alive
        for _ in range(alive):
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if job is None:
                with self._lock:
                    self._alive -= 1
                return
            job()
            del job
