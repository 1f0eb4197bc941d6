"""Sagas: what has completed is undone in reverse, on a failure and on a cancel, after any crash."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perdure import Context, InvalidArgument, NonRetryableError, Registry, StepFailed
from perdure.patterns import saga
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, nothing_left, running
from tests.engine.support import Machine, result_of, trace_of


class Trip:
    """Actions and undos that keep a list of what was done, outside the engine.

    Attributes:
        done: what ran: ``1`` is the action, ``-1`` the undo of its value.
        failing: what fails, and how often.
        gate: what the action 2 waits at, if that is asked for.
    """

    def __init__(self, *, gated: bool = False, **failing: int) -> None:
        self.done: list[str] = []
        self.failing = {name.lstrip("_").replace("m", "-"): n for name, n in failing.items()}
        self.gate = Gate()
        self.registry = Registry()

        @self.registry.workflow("trip", version="1")
        async def trip(ctx: Context) -> Any:
            third = self.gate.wait if gated else partial(self.act, "2")
            return await saga(
                ctx,
                [
                    (partial(self.act, "0"), self.undo),
                    (partial(self.act, "1"), self.undo),
                    (partial(third, "2") if gated else third, self.undo),
                    (partial(self.act, "3"), None),
                ],
            )

        @self.registry.workflow("bad", version="1")
        async def bad(ctx: Context, what: str) -> Any:
            act = partial(self.act, "0")
            wrong: dict[str, Any] = {
                "no pairs": [act],
                "no list": 7,
                "triple": [(act, self.undo, self.undo)],
                "no function": [(act, self.undo), ("act", self.undo)],
                "no undo": [(act, "undo")],
            }
            return await saga(ctx, wrong[what])

    def act(self, name: str) -> str:
        self._do(name)
        return name

    def undo(self, given: str) -> None:
        self._do(f"-{given}")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.failing.get(what, 0) > 0:
            self.failing[what] -= 1
            raise NonRetryableError(what) if not what.startswith("-") else ValueError(what)


async def test_all_actions_succeed(url: str) -> None:
    trip = Trip()
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("trip")
        await under.run_until_idle()
        assert await result_of(under, eid) == ["0", "1", "2", "3"]
        assert trip.done == ["0", "1", "2", "3"]
        assert (await trace_of(under, eid)).startswith(
            "XS FS saga-act:0/1 FC saga-act:0 FS saga-act:1"
        )


async def test_a_failure_undoes_what_has_completed_in_reverse(url: str) -> None:
    trip = Trip(_2=1)
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("trip")
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == "StepFailed"
        assert "saga-act:2" in row.error.message
        assert trip.done == ["0", "1", "2", "-1", "-0"]
        assert (await trace_of(under, eid)).endswith(
            "FF saga-act:2/1 FS saga-undo:1/1 FC saga-undo:1 FS saga-undo:0/1 FC saga-undo:0 "
            "XF(StepFailed)"
        )


async def test_an_undo_is_tried_five_times(url: str) -> None:
    trip = Trip(_2=1, m1=4)
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("trip")
        await under.run_until_idle()
        assert trip.done == ["0", "1", "2", *["-1"] * 5, "-0"]
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert "saga-act:2" in row.error.message


async def test_an_undo_that_fails_for_good_is_raised_and_the_others_run(url: str) -> None:
    trip = Trip(_2=1, m1=9)
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("trip")
        await under.run_until_idle()
        assert trip.done == ["0", "1", "2", *["-1"] * 5, "-0"]
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == StepFailed.__name__
        assert "saga-undo:1" in row.error.message
        (failed,) = [e for e in await under.engine.journal(eid) if e.type == "execution.failed"]
        assert "saga-act:2" in failed.payload["traceback"]


async def test_a_cancel_undoes_under_a_shield(url: str) -> None:
    """The action that runs finishes first, and is undone, too."""
    trip = Trip(gated=True)
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("trip")
        async with running(under) as run:
            await trip.gate.entered.wait()
            await under.engine.cancel(eid)
            trip.gate.opened.set()
            await run
        assert (await under.engine.status(eid)) == "cancelled"
        assert trip.done == ["0", "1", "-2", "-1", "-0"]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
async def test_a_crash_at_any_commit_changes_nothing(
    url: str, *, fails: bool, before: bool
) -> None:
    """No undo without its completed action, and none of these is left out."""
    crash_at, died = 0, True
    while died:
        crash_at += 1
        trip = Trip(_2=99 if fails else 0)
        machine = await Machine.open(trip.registry, url)
        under = await machine.boot(crash_at=crash_at, before=before)
        eids: list[Any] = []

        async def work(under: Any, eids: list[Any] = eids) -> None:
            if not eids:
                eids.append(await under.engine.start("trip"))
            await under.advance(100)

        died = await machine.until_death(work(under))
        if died:
            await machine.bury()
            under = await machine.boot()
            await work(under)
        completed = [
            e.fid.removeprefix("root/saga-")
            for e in await under.engine.journal(eids[0])
            if e.type == "frame.completed"
        ]
        acts = ["act:0", "act:1", *([] if fails else ["act:2", "act:3"])]
        assert completed == [*acts, *(["undo:1", "undo:0"] if fails else [])]
        assert max(trip.done.count(what) for what in trip.done) <= 2
        assert await nothing_left(machine.store)
        await machine.bury()
        await machine.store.close()
    assert crash_at > 4


@pytest.mark.parametrize("what", ["no pairs", "no list", "triple", "no function", "no undo"])
async def test_bad_input_is_refused_before_anything_runs(url: str, what: str) -> None:
    trip = Trip()
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("bad", what)
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert row.error.type == InvalidArgument.__name__
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"
        assert trip.done == []
