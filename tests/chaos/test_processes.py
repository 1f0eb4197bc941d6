"""What if the operating system kills, stops or asks a worker? Another one goes on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from perdure import Engine
from tests.chaos.conftest import Start
from tests.chaos.program import effects
from tests.engine.cluster import entry_of
from tests.engine.support import trace


async def test_a_worker_killed_in_a_step_is_followed_by_another(
    engine: Engine, start: Start, tmp_path: Path
) -> None:
    """The journal tells of both: two epochs, and the one attempt that began twice."""
    first = await start()
    eid = await engine.start("held")
    await first.says("held")
    await entry_of(engine, eid, "frame.started", "root/held#0")
    await first.kill()
    second = await start()
    await second.says("held")
    second.go()
    result = await engine.result(eid)
    journal = await engine.journal(eid)
    assert trace(journal) == (
        "XS FS held#0/1 | XR(2,recovery) FS held#0/1 FC held#0 FS effect#0/1 FC effect#0 XC"
    )
    assert [entry.epoch for entry in journal] == [1, 1, 2, 2, 2, 2, 2, 2]
    sites = [entry.provenance.site for entry in journal]
    assert [site.pid for site in sites if site is not None] == [first.pid] * 2 + [second.pid] * 6
    done = effects(tmp_path)
    assert len(done[eid, "root/held#0"]) == 2, "the kill cost one more run of the step"
    assert result == [done[eid, "root/held#0"][1], done[eid, "root/effect#0"][0]]


async def test_a_stopped_worker_that_continues_writes_nothing_and_takes_new_work(
    engine: Engine, start: Start, tmp_path: Path
) -> None:
    first = await start()
    eid = await engine.start("held")
    await first.says("held")
    await entry_of(engine, eid, "frame.started", "root/held#0")
    first.send(signal.SIGSTOP)
    second = await start()
    await second.says("held")
    second.go()
    result = await engine.result(eid)
    ended = await engine.journal(eid)
    assert trace(ended).startswith("XS FS held#0/1 | XR(2,recovery) FS held#0/1 FC held#0")
    await second.kill()

    new = await engine.start("held")
    first.go()  # the step that it still runs gets what it waits for
    first.send(signal.SIGCONT)
    await first.says("held")  # the new execution
    first.go()
    tokens = await engine.result(new)
    assert await engine.journal(eid) == ended
    assert await engine.result(eid) == result
    done = effects(tmp_path)
    assert done[new, "root/held#0"] == [tokens[0]]
    sites = {
        entry.provenance.site.pid for entry in await engine.journal(new) if entry.provenance.site
    }
    assert sites == {first.pid}


async def test_a_worker_that_is_asked_to_end_hands_back_what_it_owns(
    engine: Engine, start: Start, tmp_path: Path
) -> None:
    """The other worker goes on at once: with this time to live it could not wait for an expiry."""
    first = await start(ttl=3600)
    eid = await engine.start("held")
    await first.says("held")
    first.send(signal.SIGTERM)
    await first.says("draining")
    second = await start(ttl=3600)
    first.go()
    await first.says("drained")
    assert await first.ended() == 0
    await engine.result(eid)
    assert trace(await engine.journal(eid)) == (
        "XS FS held#0/1 FC held#0 | XR(2,drain) FS effect#0/1 FC effect#0 XC"
    )
    assert [len(tokens) for tokens in effects(tmp_path).values()] == [1, 1]
    second.send(signal.SIGTERM)
    assert await second.ended() == 0


async def test_a_worker_with_no_time_to_drain_ends_in_the_middle_of_a_step(
    engine: Engine, start: Start
) -> None:
    first = await start(ttl=3600, drain=0)
    eid = await engine.start("held")
    await first.says("held")
    first.send(signal.SIGTERM)
    assert await first.ended() == 0
    second = await start(ttl=3600)
    await second.says("held")
    second.go()
    await engine.result(eid)
    assert trace(await engine.journal(eid)).startswith(
        "XS FS held#0/1 | XR(2,drain) FS held#0/1 FC held#0"
    )


async def test_a_worker_in_another_process_reacts_to_a_signal_sent_here(
    engine: Engine, start: Start
) -> None:
    """It starts what is started here, and is told of what is sent here."""
    await start()
    eid = await engine.start("waiting")
    await entry_of(engine, eid, "execution.suspended")
    await engine.signal(eid, "x", "hello")
    assert await engine.result(eid) == "hello"


async def test_workers_in_many_processes_share_the_work(
    engine: Engine, start: Start, tmp_path: Path
) -> None:
    """Nothing is run twice, and no message gets lost between them."""
    workers = await asyncio.gather(*[start(ttl=30) for _ in range(3)])
    eids = await engine.start_many("waiting", [[]] * 60)
    await asyncio.gather(*[engine.signal(eid, "x", str(eid)) for eid in eids])
    results = await asyncio.gather(*[engine.result(eid) for eid in eids])
    assert results == [str(eid) for eid in eids]
    done = effects(tmp_path)
    assert [len(done[eid, "root/effect#0"]) for eid in eids] == [1] * 60
    assert len(workers) == 3
