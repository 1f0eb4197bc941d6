"""Does code that is patched anywhere finish what the old code began? Random programs, killed."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Context, Registry
from perdure.model import codec
from perdure.model.entry import AnyEntry, FrameCompleted, entry_fid, unpack
from tests.engine.support import Machine, Runs, trace
from tests.engine.test_order import Program, programs, wait_turns
from tests.engine.test_order import run as run_operation

HOUR = 3_600


class Change(NamedTuple):
    """What a patch puts in the place of something, anywhere in a program."""

    program: Program
    old: Program
    new: Program
    marked: bool


def changes() -> st.SearchStrategy[Change]:
    branches = (programs(1), programs(1))
    return st.builds(
        _insert, programs(2), *branches, st.booleans(), st.randoms(use_true_random=False)
    )


def _insert(
    program: Program, old: Program, new: Program, marked: bool, chance: random.Random
) -> Change:
    """Insert a patch at a random place, in a branch maybe."""
    program = list(program)
    place = program
    while True:
        index = chance.randint(0, len(place))
        inner = place[index : index + 1]
        if not inner or inner[0][0] not in ("gather", "select"):
            place.insert(index, ("patch", None))
            return Change(program, old, new, marked)
        kind, branches = inner[0]
        branches = [list(branch) for branch in branches]
        place[index] = (kind, branches)
        place = chance.choice(branches)


def deploy(change: Change, answers: list[list[bool]], runs: Runs, *, asks: bool) -> Registry:
    """Give the code before or after the change; each run of it notes what the patch gave."""
    registry = Registry()

    async def mark(branch: str) -> None:
        runs[branch] += 1
        await wait_turns(6, fails=False)  # its beginning is durable before its outcome

    @registry.workflow("random", version="1")
    async def random_program(ctx: Context) -> None:
        answers.append([])
        await run(ctx, change.program, "")
        await ctx.receive("go")

    async def run(ctx: Context, program: Program, path: str) -> None:
        for index, (kind, detail) in enumerate(program):
            if kind == "patch":
                taken = asks and ctx.patched("p")
                answers[-1].append(taken)
                if change.marked:
                    await ctx.step(mark, "new" if taken else "old")
                await run(ctx, change.new if taken else change.old, f"{path}.p")
            elif kind in ("gather", "select"):
                await getattr(ctx, kind)(*(run(ctx, p, f"{path}.{index}") for p in detail))
            else:
                await run_operation(ctx, [(kind, detail)], f"{path}.{index}", [])

    return registry


@pytest.mark.timeout(120)
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(change=changes(), first=st.integers(0, 12), second=st.integers(0, 12), before=st.booleans())
def test_code_that_is_patched_anywhere_finishes_what_the_old_code_began(
    change: Change, first: int, second: int, *, before: bool
) -> None:
    """Whenever the old code dies, and the new one after it: no block, and one branch for good."""
    asyncio.run(check(change, first, second, before=before))


async def check(change: Change, first: int, second: int, *, before: bool) -> None:
    """Begin with the old code, which dies at a write; go on with the new one, which does, too."""
    answers: list[list[bool]] = []
    runs = Runs()
    machine = await Machine.open(deploy(change, answers, runs, asks=False), "memory:")
    under = await machine.boot()
    eid = await under.engine.start("random")
    await machine.bury()
    await live(machine, eid, first, before=before)
    runs.clear()  # an attempt whose beginning was not durable yet has run in vain
    began_old = any(entry_fid(e) == "root/mark#0" for e in await journal(machine, eid))
    machine.registry = deploy(change, answers, runs, asks=True)
    fixed: bool | None = None
    for crash_at in (second, 0, 0):
        answers.clear()
        await live(machine, eid, crash_at, before=before)
        given = {answer for answers_of_one_run in answers for answer in answers_of_one_run}
        assert fixed is None or given <= {fixed}, "the memo was durable before"
        fixed = await memo(machine, eid)
        assert crash_at or given <= {fixed}, "nothing was lost"
    under = await machine.boot()
    await under.engine.signal(eid, "go", None)
    await under.advance(HOUR)
    row = await under.engine.execution(eid)
    assert row.status == "completed", (row.blocked, trace(await under.engine.journal(eid)))
    await machine.bury()
    assert await memo(machine, eid) == fixed
    assert not (runs["new"] and (began_old or runs["old"])), "a step of one of the branches only"
    await machine.store.close()


async def live(machine: Machine, eid: UUID, crash_at: int, *, before: bool) -> None:
    """Let a process run until there is nothing left to do, or until it dies at a write."""
    under = await machine.boot(crash_at=crash_at, before=before)

    async def go_on() -> None:
        await under.engine.resume(eid)
        await under.advance(HOUR)

    await machine.until_death(go_on())
    await machine.bury()


async def memo(machine: Machine, eid: UUID) -> bool | None:
    """Read what the journal holds of the patch."""
    found = [
        entry.value
        for entry in await journal(machine, eid)
        if isinstance(entry, FrameCompleted) and entry.fid == "root/patched:p"
    ]
    assert len(found) <= 1
    return bool(codec.decode(found[0])) if found else None


async def journal(machine: Machine, eid: UUID) -> list[AnyEntry]:
    """Read the entries of an execution."""
    return [entry for row in await machine.store.journal(eid) for entry in unpack(row.body)]
