"""Do random trees of executions survive a kill, and does every journal replay? Cold and warm."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Cancelled, ChildFailed, Context, EngineConfig, Registry, StepFailed
from perdure.model.entry import FrameCompleted, FrameFulfilled, FrameStarted, unpack
from perdure.model.execution import ExecutionRow
from perdure.testing import EngineUnderTest, engine_under_test
from tests.engine.support import Machine, trace
from tests.engine.test_order import INLINE, STEPS, Program, wait_turns
from tests.replay.history import record, replay

TALK = st.tuples(
    st.sampled_from(["send", "send_globally", "announce", "claim", "listen", "answer"]),
    st.sampled_from(["x", "y"]),
)
MORE = st.tuples(
    st.sampled_from(["detached", "transaction", "publish", "task", "patched"]), st.integers(0, 2)
)
NAPS = st.tuples(st.just("nap"), st.sampled_from([0, 60, 3600]))


def programs(depth: int) -> st.SearchStrategy[Program]:
    """Give programs that nest branches and children at most `depth` deep."""
    operations: st.SearchStrategy[tuple[str, Any]] = STEPS | INLINE | TALK | MORE | NAPS
    if depth:
        branches = st.lists(programs(depth - 1), min_size=1, max_size=3)
        operations |= st.tuples(st.just("gather") | st.just("select"), branches)
        inner = st.sampled_from(["child", "guard", "shield"])
        operations |= st.tuples(inner, programs(depth - 1))
    return st.lists(operations, max_size=4)


async def run(ctx: Context, program: Program) -> list[Any]:
    """Run a program, and give what its operations gave."""
    given: list[Any] = []
    for kind, detail in program:
        try:
            given.append([kind, await operate(ctx, kind, detail)])
        except (StepFailed, ChildFailed) as failed:
            given.append([kind, type(failed).__name__])
    return given


async def operate(ctx: Context, kind: str, detail: Any) -> Any:  # noqa: PLR0911 - one for each
    """Do one operation."""
    if kind == "step":
        name, turns, fails = detail
        return await ctx.step(wait_turns, turns, fails, name=name)
    if kind == "gather":
        return await ctx.gather(*(run(ctx, program) for program in detail))
    if kind == "select":
        return list(await ctx.select(*(run(ctx, program) for program in detail)))
    if kind == "child":
        return await ctx.child("tree", detail)
    if kind in ("guard", "shield"):
        return await protected(ctx, kind, detail)
    if kind in ("detached", "transaction", "publish", "task", "patched"):
        return await more(ctx, kind, detail)
    return await talk(ctx, kind, detail)


async def more(ctx: Context, kind: str, detail: int) -> Any:
    """Do an operation that is done elsewhere, or that leaves something behind for others."""
    if kind == "detached":
        return await ctx.step(wait_turns, detail, fails=detail == 2, queue="default")
    if kind == "transaction":
        return await ctx.transaction(in_database, detail)
    if kind == "publish":
        return await ctx.publish("items", detail)
    if kind == "patched":
        return ctx.patched(str(detail))
    task = await ctx.enqueue("nobody", detail)
    return await ctx.withdraw("nobody", task)


def in_database(connection: Any, number: int) -> int:
    """Write in a table of one's own, or fail after that."""
    connection.execute("CREATE TABLE IF NOT EXISTS written (number INTEGER)")
    connection.execute("INSERT INTO written VALUES (?)", (number,))
    return 1 // (2 - number)


async def protected(ctx: Context, kind: str, program: Program) -> list[Any]:
    """Run a program that a cancel does not reach, or that cleans up after one."""
    if kind == "shield":
        async with ctx.shield():
            return await run(ctx, program)
    try:
        return await run(ctx, program)
    except Cancelled:
        async with ctx.shield():
            await ctx.step(wait_turns, 1, fails=False, name="undo")
        raise


async def talk(ctx: Context, kind: str, detail: Any) -> Any:
    """Do an operation that needs nobody else."""
    scope: Any = "global" if kind in ("answer", "send_globally") else "execution"
    if kind in ("now", "random", "uuid"):
        value: Any = str(getattr(ctx, kind)())
    elif kind == "nap":
        value = str(await ctx.sleep(detail) - ctx.now() < timedelta(seconds=1))
    elif kind in ("send", "send_globally"):
        value = await ctx.send(detail, [detail], scope=scope)
    elif kind == "announce":
        value = await ctx.announce(detail, None)
    elif kind == "claim":
        value = list(await ctx.claim(detail, str(ctx.eid)))
    else:
        message = await ctx.receive(detail, timeout=0, scope=scope)
        value = None if message is None else [message.seq, message.payload]
    return value


def trees() -> Registry:
    """Give the workflow ``tree``, which runs a program."""
    registry = Registry()
    registry.step()(wait_turns)

    @registry.workflow("tree", version="1")
    async def tree(ctx: Context, program: Any) -> list[Any]:
        return await run(ctx, program)

    return registry


async def rows_of(under: EngineUnderTest) -> list[ExecutionRow]:
    """List all executions."""
    page = await under.engine.executions(limit=500)
    assert page.cursor is None
    return list(page.items)


async def check_effects(under: EngineUnderTest, rows: list[ExecutionRow]) -> None:
    """Check that each effect that a journal holds happened once, and that no other did."""
    store = under.engine.store
    told = Counter((e.eid, e.type) for e in await store.control(limit=5_000))
    assert told[UUID(int=0), "execution.created"] == 0
    announced: Counter[UUID] = Counter()
    sent: Counter[str] = Counter()
    published: Counter[UUID] = Counter()
    for row in rows:
        names: dict[str, str] = {}
        numbers: list[Any] = []
        for journal_row in await store.journal(row.eid):
            for entry in unpack(journal_row.body):
                if isinstance(entry, FrameStarted):
                    names[entry.fid] = entry.name
                elif isinstance(entry, FrameCompleted):
                    announced[row.eid] += names[entry.fid] == "announce"
                    sent[str(row.eid)] += names[entry.fid] == "send"
                    published[row.eid] += names[entry.fid] == "publish"
                elif isinstance(entry, FrameFulfilled) and entry.message is not None:
                    numbers.append((entry.on, entry.message.seq))
        assert len(set(numbers)) == len(numbers), "no message is consumed twice"
    for row in rows:
        ours = sum(
            number
            for (eid, kind), number in told.items()
            if eid == row.eid and kind.startswith("announce.")
        )
        assert ours == announced[row.eid]
        items = await store.items(row.eid, "items", 0, 500)
        assert len(items) == published[row.eid]
        for kind in ("execution.created", f"execution.{row.status}"):
            assert told[row.eid, kind] == 1, (row.eid, kind)


async def finish(under: EngineUnderTest, root: UUID, cancel_after: int | None) -> None:
    """Let time pass until the tree has ended; cancel it after some of it."""
    await under.run_until_idle()
    if cancel_after is not None:
        await under.advance(cancel_after)
        if not (await under.engine.status(root)).terminal:
            await under.engine.cancel(root)
    for _ in range(40):
        await under.advance(3600)
        if all(row.status.terminal for row in await rows_of(under)):
            return


async def check(program: Program, crash_at: int, cancel_after: int | None, url: str) -> None:
    """Run a tree whose process dies at one write, and look at everything it has left."""
    registry = trees()
    machine = await Machine.open(registry, url)
    under = await machine.boot()
    root = await under.engine.start("tree", program)
    await machine.bury()
    under = await machine.boot(crash_at=crash_at)
    prefixes: dict[UUID, str] = {}
    if await machine.until_death(finish(under, root, cancel_after)):
        await machine.bury()
        under = await machine.boot()
        for row in await rows_of(under):
            prefixes[row.eid] = trace(await under.engine.journal(row.eid))
        await under.advance(60)  # until the session of the dead process has expired
        await finish(under, root, cancel_after)
    ends = {"completed"} if cancel_after is None else {"completed", "cancelled"}
    assert (await under.engine.execution(root)).status in ends
    rows = await rows_of(under)
    assert all(row.status.terminal for row in rows), "no child is left behind"
    for row in rows:
        journal = await under.engine.journal(row.eid)
        assert trace(journal).startswith(prefixes.get(row.eid, ""))
        assert [entry.seq for entry in journal] == list(range(1, len(journal) + 1))
        if len(journal) > 1:  # one that was cancelled while it was pending has nothing to replay
            history = await record(under.engine, row.eid)
            end, new = await replay(history, registry)
            assert end == {name: history[name] for name in end}, trace(journal)
            kinds = [entry.type.partition(".")[0] for entry in new]
            assert kinds == ["execution", "execution"], f"a replay runs nothing: {trace(new)}"
    await check_effects(under, rows)
    info = await under.engine.store_info()
    assert (info.ready_tasks, info.delayed_tasks, info.timers) == (0, 0, 0)
    await machine.bury()
    await machine.store.close()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    program=programs(2),
    crash_at=st.integers(0, 40),
    cancel_after=st.none() | st.sampled_from([0, 30, 1800]),
)
def test_a_random_tree_ends_well_wherever_its_process_dies(
    program: Program, crash_at: int, cancel_after: int | None
) -> None:
    """Journals only grow, no effect is lost or doubled, and each journal replays to its end."""
    asyncio.run(check(program, crash_at, cancel_after, "memory:"))


async def journals(program: Program, warm_executions: int, cancel_after: int | None) -> list[str]:
    """Run a tree in one process, and give all its journals, by the place in the tree."""
    config = EngineConfig(drain=0, warm_executions=warm_executions)
    async with engine_under_test(trees(), config=config) as under:
        root = await under.engine.start("tree", program)
        await finish(under, root, cancel_after)
        rows = {row.eid: row for row in await rows_of(under)}

        def place(row: ExecutionRow) -> str:
            parent = row.parent
            return "" if parent is None else f"{place(rows[parent.eid])} {parent.fid}"

        return [
            f"{place(row)}: {trace(await under.engine.journal(row.eid))}"
            for row in sorted(rows.values(), key=place)
        ]


@pytest.mark.cold  # it sets both modes itself
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=programs(2), cancel_after=st.none() | st.sampled_from([0, 30, 1800]))
def test_a_journal_does_not_show_whether_its_execution_was_kept(
    program: Program, cancel_after: int | None
) -> None:
    async def check_both() -> None:
        cold = await journals(program, 0, cancel_after)
        assert await journals(program, 1_000, cancel_after) == cold

    asyncio.run(check_both())
