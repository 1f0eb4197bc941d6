"""Do branches interleave on replay exactly as they did live? Random programs, live and replayed."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Context, Registry, StepFailed
from perdure.testing import engine_under_test
from tests.engine.support import trace

# A program is a list of operations; a gather holds programs that run as branches.
Program = list[tuple[str, Any]]

STEPS = st.tuples(
    st.just("step"), st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 6), st.booleans())
)
INLINE = st.tuples(st.sampled_from(["now", "random", "uuid"]), st.none())
NAPS = st.tuples(st.just("sleep"), st.integers(0, 0))


def programs(depth: int) -> st.SearchStrategy[Program]:
    """Give programs that nest branches at most `depth` deep."""
    operations: st.SearchStrategy[tuple[str, Any]] = STEPS | INLINE | NAPS
    if depth:
        branches = st.lists(programs(depth - 1), min_size=1, max_size=3)
        operations |= st.tuples(st.just("gather") | st.just("select"), branches)
    return st.lists(operations, max_size=4)


async def wait_turns(turns: int, fails: bool) -> int:
    """End after some turns of the event loop, so that outcomes come in any order."""
    for _ in range(turns):
        await asyncio.sleep(0)
    if fails:
        message = "this step fails"
        raise ValueError(message)
    return turns


async def run(ctx: Context, program: Program, path: str, schedule: list[str]) -> None:
    """Run a program, and note what it did in which order."""
    for index, (kind, detail) in enumerate(program):
        here = f"{path}.{index}"
        schedule.append(f"{here} {kind}")
        if kind == "step":
            name, turns, fails = detail
            try:
                value = await ctx.step(wait_turns, turns, fails, name=name)
            except StepFailed as failed:
                schedule.append(f"{here} failed {failed.fid}")
            else:
                schedule.append(f"{here} gave {value}")
        elif kind in ("gather", "select"):
            branches = [run(ctx, p, f"{here}/{n}", schedule) for n, p in enumerate(detail)]
            schedule.append(f"{here} gave {await getattr(ctx, kind)(*branches)}")
        elif kind == "sleep":
            await ctx.sleep(detail)
        else:
            schedule.append(f"{here} {getattr(ctx, kind)()}")
        schedule.append(f"{here} done")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(program=programs(2))
def test_a_replay_repeats_the_live_schedule(program: Program) -> None:
    """The function does the same things in the same order when it is replayed."""

    async def check() -> None:
        registry = Registry()
        schedules: list[list[str]] = []

        @registry.workflow("random", version="1")
        async def random_program(ctx: Context) -> None:
            schedules.append([])
            await run(ctx, program, "", schedules[-1])
            await ctx.receive("go")

        async with engine_under_test(registry) as under:
            eid = await under.engine.start(random_program)
            await under.run_until_idle()
            assert await under.engine.status(eid) == "suspended"
            before = trace(await under.engine.journal(eid))
            await under.kill_worker()
            await under.start_worker()
            await under.engine.signal(eid, "go", None)
            await under.run_until_idle()
            row = await under.engine.execution(eid)
            assert row.status == "completed", row.blocked
            assert trace(await under.engine.journal(eid)).startswith(before)
        live, replayed = schedules
        assert replayed == live

    asyncio.run(check())
