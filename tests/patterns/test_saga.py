"""Sagas: what has completed is undone in reverse, on a failure and on a cancel."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from perdure import (
    Context,
    InvalidArgument,
    NonRetryableError,
    Registry,
    RetryPolicy,
    StepFailed,
)
from perdure.patterns import saga
from perdure.testing import engine_under_test
from tests.engine.cluster import Gate, running
from tests.engine.support import result_of, trace_of


async def later() -> None:
    """Be a function that somebody called instead of naming it."""


async def fail_later(ctx: Context) -> None:
    """Be a branch that fails."""
    await ctx.sleep(60)
    raise ValueError("the other branch has failed")


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
            if what == "running":
                wrong[what] = [(act, self.undo), (later(), later())]
            return await saga(ctx, wrong[what])

        @self.registry.workflow("options", version="1")
        async def options(ctx: Context, what: str) -> Any:
            wrong: dict[str, Any] = {
                "long name": {"name": "n" * 121},
                "no name": {"name": 7},
                "no act policy": {"act_retry": 3},
                "no undo policy": {"undo_retry": None},
            }
            return await saga(ctx, [(partial(self.act, "0"), self.undo)], **wrong[what])

        @self.registry.workflow("twice", version="1")
        async def twice(ctx: Context, second: str) -> Any:
            pairs = [(partial(self.act, "0"), self.undo)]
            return await saga(ctx, pairs) + await saga(ctx, pairs, name=second)

        @self.registry.workflow("beside", version="1")
        async def beside(ctx: Context, *, together: bool) -> Any:
            policy = RetryPolicy(max_attempts=3, backoff=timedelta(hours=1))
            pairs = [(partial(self.flaky, "0"), self.undo), (partial(self.flaky, "1"), self.undo)]
            branches = saga(ctx, pairs, act_retry=policy), fail_later(ctx)
            if together:
                return await ctx.gather(*branches, return_exceptions=True)
            return await ctx.gather(*branches)

        @self.registry.workflow("patient", version="1")
        async def patient(ctx: Context) -> Any:
            policy = RetryPolicy(max_attempts=3, backoff=timedelta(hours=1))
            pairs = [(partial(self.flaky, "0"), self.undo), (partial(self.flaky, "1"), self.undo)]
            return await saga(ctx, pairs, act_retry=policy)

    def act(self, name: str) -> str:
        self._do(name)
        return name

    def flaky(self, name: str) -> str:
        self.done.append(name)
        if self.failing.get(name, 0) >= self.done.count(name):
            raise ValueError(name)
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


async def test_an_undo_that_cannot_be_called_stops_no_other(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only a step that fails: whatever is raised, the undos that are left run."""
    trip, step = Trip(_2=1), Context.step

    def refuses(self: Context, *args: Any, **options: Any) -> Any:
        if (options["name"], options["key"]) == ("saga-undo", "1"):
            raise InvalidArgument("not this one")
        return step(self, *args, **options)

    monkeypatch.setattr(Context, "step", refuses)
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("trip")
        await under.run_until_idle()
        assert trip.done == ["0", "1", "2", "-0"]
        row = await under.engine.execution(eid)
        assert row.error is not None
        assert (row.error.type, row.error.message) == ("InvalidArgument", "not this one")


async def test_an_action_is_attempted_as_its_policy_says(url: str) -> None:
    trip = Trip(_0=2, _1=9)
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("patient")
        await under.advance(timedelta(hours=5))
        assert trip.done == ["0", "0", "0", "1", "1", "1", "-0"]
        assert (await under.engine.status(eid)) == "failed"


async def test_a_cancel_ends_the_wait_for_the_next_attempt(url: str) -> None:
    """What has failed so far is not undone; what has completed is."""
    trip = Trip(_1=9)
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("patient")
        await under.run_until_idle()
        await under.engine.cancel(eid)
        await under.run_until_idle()
        assert (await under.engine.status(eid)) == "cancelled"
        assert trip.done == ["0", "1", "-0"]


@pytest.mark.parametrize("together", [False, True])
async def test_an_abandoned_saga_undoes_nothing(url: str, *, together: bool) -> None:
    """What a failed gather abandons opens no frame any more, so a saga is not put at that risk."""
    trip = Trip(_1=1)
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("beside", together=together)
        await under.advance(timedelta(hours=2))
        assert (await under.engine.status(eid)).terminal
        assert trip.done == (["0", "1", "1"] if together else ["0", "1"])


async def test_two_sagas_of_a_function_have_two_names(url: str) -> None:
    trip = Trip()
    async with engine_under_test(trip.registry, url=url) as under:
        good = await under.engine.start("twice", "other")
        bad = await under.engine.start("twice", "saga")
        await under.run_until_idle()
        assert await result_of(under, good) == ["0", "0"]
        row = await under.engine.execution(bad)
        assert row.error is not None
        assert (row.error.type, "root/saga-act:0" in row.error.message) == (
            "DuplicateFrameError",
            True,
        )


@pytest.mark.parametrize(
    "what", ["no pairs", "no list", "triple", "no function", "no undo", "running"]
)
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


@pytest.mark.parametrize("what", ["long name", "no name", "no act policy", "no undo policy"])
async def test_an_option_that_would_stop_an_undo_is_refused_at_once(url: str, what: str) -> None:
    trip = Trip()
    async with engine_under_test(trip.registry, url=url) as under:
        eid = await under.engine.start("options", what)
        await under.run_until_idle()
        assert await trace_of(under, eid) == "XS XF(InvalidArgument)"
        assert trip.done == []
