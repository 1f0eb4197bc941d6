"""Is the view the same however the log reaches it? In pieces, twice, from several processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import StoreUnavailable
from perdure.ports.projection import Projection
from perdure.projection import SqliteProjection
from perdure.projection import view as module
from perdure.testing import ManualClock
from tests.engine.cluster import turns
from tests.projection.support import BEGIN, Log, everything

EIDS = [UUID(int=number) for number in range(1, 4)]
ADA = {"kind": "human", "id": "ada@example.com"}
INSTANT = "2030-01-01T00:00:00Z"

FACTS: dict[str, dict[str, Any]] = {
    "execution.created": {"workflow": "w", "version": "1", "queue": "q", "parent": str(EIDS[0])},
    "execution.started": {},
    "execution.suspended": {"on": ["timer:a"]},
    "execution.resumed": {"reason": "timer"},
    "execution.completed": {},
    "execution.failed": {"error_type": "E", "message": "m"},
    "execution.cancelled": {"by": ADA},
    "execution.terminated": {"by": ADA, "reason": "r"},
    "execution.migrated": {"version": "2"},
    "execution.archived": {},
    "execution.unheard": {},
    "announce.other": {"fid": "root/a#0", "payload": [1]},
    "announce.review.requested": {
        "fid": "root/a#0",
        "payload": {"rid": "r", "queue": "q", "payload": 1, "schema": None, "deadline": INSTANT},
    },
    "announce.review.decided": {
        "fid": "root/a#0",
        "payload": {"rid": "r", "verdict": "v", "decided_by": ADA, "decided_at": INSTANT},
    },
    "announce.review.expired": {"fid": "root/a#0", "payload": {"rid": "r"}},
    "task.enqueued": {"task_id": "t", "queue": "q", "kind": "delegate", "fid": "root/d#0"},
}

TOLD = st.tuples(
    st.sampled_from(EIDS), st.sampled_from(sorted(FACTS)), st.booleans(), st.integers(0, 5)
)
LOGS = st.lists(st.tuples(TOLD, st.booleans()), max_size=40)


def memory(log: Log) -> SqliteProjection:
    """Give a view in memory."""
    return SqliteProjection(log.store, None, ManualClock())


@settings(max_examples=200, deadline=None)
@given(told=LOGS, page=st.integers(2, 9))
async def test_pieces_and_a_rebuild_give_the_same(told: list[Any], page: int) -> None:
    """One view follows the log as it grows, in pieces; others read it when it is whole."""
    log = Log()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAGE", page)
        following = memory(log)
        for (eid, kind, fits, shift), look in told:
            log.tell(eid, kind, FACTS[kind] if fits else {"on": 1}, at=BEGIN + shift)
            if look:
                await following.refresh()
        gradual = await everything(following)
        await following.rebuild()
        rebuilt = await everything(following)
    whole = memory(log)
    assert gradual == rebuilt == await everything(whole)
    # Every execution whose life the log tells of has a row.
    lives = {one.eid for one in log.entries if one.type.startswith("execution.")}
    seen = {one.eid for one in gradual[0]}
    assert seen <= lives
    await following.close()
    await whole.close()


async def test_refresh_gives_the_position_of_the_last_entry(log: Log, view: Projection) -> None:
    assert await view.refresh() == 0
    log.create(EIDS[0])
    assert await view.refresh() == 1
    assert await view.refresh() == 1
    for _ in range(2_500):
        log.tell(EIDS[0], "execution.resumed")
    assert await view.refresh() == 2_501


async def test_processes_share_a_file(log: Log, tmp_path: Path) -> None:
    """Each entry is applied once, whoever does it, and nobody waits for another one's work."""
    path = str(tmp_path / "view")
    views = [SqliteProjection(log.store, path, ManualClock()) for _ in range(3)]
    for number in range(30):
        log.announce(EIDS[0], "told", number)
    found = await asyncio.gather(*(view.announcements() for view in views for _ in range(3)))
    assert all([one.payload for one in told] == list(range(30)) for told in found)
    log.announce(EIDS[0], "told", 30)
    found = await asyncio.gather(*(view.announcements() for view in views))
    assert all(len(told) == 31 for told in found)
    for view in views:
        await view.close()


async def test_what_another_process_has_applied_is_not_applied_again(
    log: Log, tmp_path: Path
) -> None:
    """It has read an entry, and before it applies it another one has gone on."""
    path = str(tmp_path / "view")
    slow, fast = (SqliteProjection(log.store, path, ManualClock()) for _ in range(2))
    log.create(EIDS[0])
    await slow.refresh()
    log.tell(EIDS[0], "execution.started")
    read, held = log.control, asyncio.Event()

    async def control(after: int = 0, limit: int = 1_000) -> Any:
        found = await read(after, limit)
        if not held.is_set():
            held.set()
            log.tell(EIDS[0], "execution.suspended", {"on": ["timer:a"]})
            await fast.refresh()
        return found

    log.control = control  # type: ignore[method-assign]
    assert await slow.refresh() == 3
    assert await slow.counts() == await fast.counts() == {"suspended": 1}
    await slow.close()
    await fast.close()


async def test_readers_of_one_view_apply_the_log_together(log: Log, view: Projection) -> None:
    log.create(EIDS[0])
    found = await asyncio.gather(*(view.counts() for _ in range(10)))
    assert found == [{"pending": 1}] * 10


async def test_a_view_of_another_log_is_made_anew(log: Log, view: Projection) -> None:
    """The store was replaced, or restored from a copy."""
    log.create(EIDS[0])
    log.tell(EIDS[0], "execution.started")
    assert await view.counts() == {"running": 1}
    log.entries.pop()
    log.tell(EIDS[0], "execution.completed", at=BEGIN)
    assert await view.counts() == {"completed": 1}
    log.entries.clear()
    log.create(EIDS[1])
    assert [one.eid for one in (await view.executions()).items] == [EIDS[1]]
    log.entries.clear()
    assert await view.counts() == {}
    assert await view.refresh() == 0


async def test_a_log_that_was_pruned_goes_on(log: Log, view: Projection) -> None:
    log.create(EIDS[0])
    assert await view.counts() == {"pending": 1}
    log.create(EIDS[1])
    log.create(EIDS[2])
    del log.entries[:2]
    assert await view.counts() == {"pending": 2}
    assert {one.eid for one in (await view.executions()).items} == {EIDS[0], EIDS[2]}


async def test_wait_for_a_position(log: Log) -> None:
    clock = ManualClock()
    view = SqliteProjection(log.store, None, clock)
    position = log.create(EIDS[0])
    assert await view.wait_for(position)
    waiting = asyncio.create_task(view.wait_for(2, timeout=1))
    await turns()
    assert not waiting.done()
    log.tell(EIDS[0], "execution.started")
    clock.advance(0.02)
    assert await waiting
    late = asyncio.create_task(view.wait_for(3, timeout=1))
    await turns()
    for _ in range(60):
        clock.advance(0.02)
        await turns(5)
    assert await late is False
    assert await view.wait_for(3, timeout=0) is False
    await view.close()


async def test_a_store_that_cannot_be_read_is_told(log: Log, view: Projection) -> None:
    async def broken(after: int = 0, limit: int = 1_000) -> Any:  # noqa: ARG001
        raise StoreUnavailable("the test has cut the wire")

    log.create(EIDS[0])
    read, log.control = log.control, broken  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await view.counts()
    log.control = read  # type: ignore[method-assign]
    assert await view.counts() == {"pending": 1}


async def test_a_closed_view_says_so(log: Log, view: Projection) -> None:
    log.create(EIDS[0])
    await view.refresh()
    await view.close()
    await view.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await view.counts()
