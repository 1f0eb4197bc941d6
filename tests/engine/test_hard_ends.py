"""What if a function ends in a way that nobody expects? Its worker goes on."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import perdure
from perdure import Context, LeaseInfo, Registry, StoreUnavailable, WaitTimeout
from perdure.testing import engine_under_test


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit])
async def test_a_function_that_raises_what_is_no_exception_fails(
    url: str, error: type[BaseException]
) -> None:
    registry = Registry()

    @registry.workflow("odd", version="1")
    async def odd(_ctx: Context) -> None:
        raise error

    @registry.workflow("fine", version="1")
    async def fine(_ctx: Context) -> int:
        return 1

    async with engine_under_test(registry, url=url) as under:
        eid, other = await under.engine.start(odd), await under.engine.start(fine)
        await under.run_until_idle()
        row = await under.engine.execution(eid)
        assert row.status == "failed"
        assert row.error is not None
        assert row.error.type == error.__name__
        assert await under.engine.result(other) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_a_function_whose_cleanup_raises_that_is_suspended_all_the_same(
    url: str, error: type[BaseException]
) -> None:
    registry = Registry()

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise error

    @registry.workflow("odd", version="1")
    async def odd(ctx: Context) -> None:
        async for _ in numbers():
            try:
                await ctx.receive("go")
            finally:
                raise error

    @registry.workflow("fine", version="1")
    async def fine(_ctx: Context) -> int:
        return 1

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(odd)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "suspended"
        assert await under.engine.lease(eid) == LeaseInfo(None, 1, None, live=False)
        other = await under.engine.start(fine)
        await under.run_until_idle()
        assert await under.engine.result(other) == 1


async def test_a_step_that_is_interrupted_fails(url: str) -> None:
    registry = Registry()

    async def interrupted() -> None:
        raise KeyboardInterrupt

    @registry.workflow("steps", version="1")
    async def steps(ctx: Context) -> None:
        await ctx.step(interrupted)

    async with engine_under_test(registry, url=url) as under:
        eid = await under.engine.start(steps)
        await under.run_until_idle()
        error = (await under.engine.execution(eid)).error
        assert error is not None
        assert "KeyboardInterrupt" in error.message


async def test_who_waits_for_a_blocked_execution_is_told_why(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry()

    @registry.workflow("blocked", version="1")
    async def blocked(_ctx: Context) -> None:
        await perdure_unaware()

    async with engine_under_test(registry, url=url) as under:
        with caplog.at_level(logging.WARNING, "perdure"):
            eid = await under.engine.start(blocked)
            await under.run_until_idle()
        assert f"execution {eid} is blocked" in caplog.text
        with pytest.raises(WaitTimeout, match="waits for an operator") as late:
            await under.engine.wait(eid, timeout=0)
        assert late.value.blocked is not None
        assert "ctx.sleep" in late.value.blocked


class Bare:
    """Something that only an event loop could wait for."""

    def __await__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204 - any generator will do
        yield


async def perdure_unaware() -> None:
    await Bare()


async def test_a_file_that_was_removed_is_noticed_before_anything_is_acknowledged(
    tmp_path: Path,
) -> None:
    registry = Registry()

    @registry.workflow("fine", version="1")
    async def fine(_ctx: Context) -> int:
        return 1

    path = tmp_path / "gone.db"
    async with perdure.open(f"sqlite:///{path}", registry) as engine:
        await engine.start(fine)
        path.rename(tmp_path / "moved.db")
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await engine.start(fine)
        (tmp_path / "moved.db").rename(path)
        await engine.start(fine)
        assert (await engine.store_info()).executions == {"pending": 2}


def stubborn() -> Registry:
    """Give a workflow, ``stubborn``, that catches everything in a loop, and one that is fine."""
    registry = Registry()

    @registry.workflow("stubborn", version="1")
    async def never_ends(ctx: Context) -> None:
        while True:
            with suppress(BaseException):
                await ctx.sleep(3600)

    @registry.workflow("fine", version="1")
    async def fine(_ctx: Context) -> int:
        return 1

    return registry


async def test_a_function_that_catches_everything_in_a_loop_is_left_where_it_stands(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be closed, and yet it does not hold up its worker."""
    async with engine_under_test(stubborn(), url=url) as under:
        with caplog.at_level(logging.WARNING, "perdure"):
            await under.engine.start("stubborn")
            await under.run_until_idle()
            await under.kill_worker()
        assert "cannot be closed" in caplog.text
        await under.start_worker()
        fine = await under.engine.start("fine")
        await under.run_until_idle()
        assert await under.engine.status(fine) == "completed"


async def test_a_function_that_goes_on_after_every_cancel_is_cancelled_all_the_same(
    url: str,
) -> None:
    async with engine_under_test(stubborn(), url=url) as under:
        eid = await under.engine.start("stubborn")
        await under.run_until_idle()
        await under.engine.cancel(eid)
        await under.run_until_idle()
        assert await under.engine.status(eid) == "cancelled"
        fine = await under.engine.start("fine")
        await under.run_until_idle()
        assert await under.engine.status(fine) == "completed"
