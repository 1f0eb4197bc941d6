"""What a type checker must say of the engine without ``await``; see test_types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type
from uuid import UUID

import perdure.sync
from perdure import Decision, Entry, Registry
from perdure.ports.projection import Review

registry = Registry()

with perdure.sync.open("memory:", registry) as engine:
    eid = engine.start("w", 1, key="k")
    assert_type(eid, UUID)
    assert_type(engine.journal(eid), list[Entry])
    assert_type(engine.watch(eid), Iterator[Entry])
    assert_type(engine.reviews.pending(), list[Review])
    assert_type(engine.reviews.decide("r", verdict="ok"), Decision)
    with engine.worker() as worker:
        assert_type(worker.run_once(), int)
    engine.cancel(3)  # type: ignore[arg-type]
    engine.cancel(eid, why="?")  # type: ignore[call-arg]
    engine.reviews.decide("r")  # type: ignore[call-arg]
