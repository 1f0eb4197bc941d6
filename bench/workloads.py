"""Which workflows are measured? Those that do nothing, so that only the engine costs time."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

from perdure import Context, Engine, Registry

STEPS = 10
BATCH = 1_000
EXPECTED = sum(range(STEPS))

registry = Registry()


class Stage:
    """What the workflows tell a measurement, and what they wait for.

    It stands in for the outside world, so it belongs to one process and to one event loop.

    Attributes:
        ran: how many steps of `long_then_listen` ran.
        holding: how many steps of `hold` wait at this moment.
        held: is set when `holding` reaches `hold_target`.
        release: ends every such wait.
    """

    def __init__(self) -> None:
        self.ran = 0
        self.holding = 0
        self.hold_target = 0
        self.held = asyncio.Event()
        self.release = asyncio.Event()
        self._arrivals: dict[int, asyncio.Future[float]] = {}

    def expect(self, number: int) -> asyncio.Future[float]:
        """Give a future for the instant at which a workflow has received this number."""
        self._arrivals[number] = asyncio.get_running_loop().create_future()
        return self._arrivals[number]

    def arrived(self, number: Any) -> None:
        """Take notice that a workflow has received a number, now or once more on a replay."""
        arrival = self._arrivals.pop(number, None)
        if arrival is not None:
            arrival.set_result(time.perf_counter())


stage = Stage()


async def echo(number: int) -> int:
    """Do nothing, on the event loop."""
    return number


def echo_in_thread(number: int) -> int:
    """Do nothing, in a thread."""
    return number


@registry.workflow("ten_steps", version="1")
async def ten_steps(ctx: Context) -> int:
    """Run ten steps, one after the other."""
    total = 0
    for number in range(STEPS):
        total += await ctx.step(echo, number)
    return total


@registry.workflow("ten_sync_steps", version="1")
async def ten_sync_steps(ctx: Context) -> int:
    """Run ten steps in threads, one after the other."""
    total = 0
    for number in range(STEPS):
        total += await ctx.step(echo_in_thread, number)
    return total


@registry.workflow("listen", version="1")
async def listen(ctx: Context) -> None:
    """Wait for a message, for ever again."""
    while True:
        message = await ctx.receive("go")
        stage.arrived(message.payload if message else None)


async def tally(number: int) -> int:
    """Do nothing but count how often that was done."""
    stage.ran += 1
    return number


@registry.workflow("long_then_listen", version="1")
async def long_then_listen(ctx: Context, steps: int) -> None:
    """Run many steps, then wait for messages."""
    for number in range(steps):
        await ctx.step(tally, number)
    await listen(ctx)


async def wait_for_release() -> None:
    """Wait as a step that calls a slow service does."""
    stage.holding += 1
    if stage.holding == stage.hold_target:
        stage.held.set()
    await stage.release.wait()
    stage.holding -= 1


@registry.workflow("hold", version="1")
async def hold(ctx: Context) -> None:
    """Run one step that waits."""
    await ctx.step(wait_for_release)


@registry.workflow("member", version="1")
async def member(ctx: Context, number: int) -> int:
    """Run one step, and return."""
    return await ctx.step(echo, number)


@registry.workflow("family", version="1")
async def family(ctx: Context, children: int) -> int:
    """Start children, and add up what they return."""
    frames = (ctx.child(member, number, key=str(number)) for number in range(children))
    return sum(await ctx.gather(*frames))


@registry.workflow("questions", version="1")
async def questions(ctx: Context, number: int) -> int:
    """Wait for messages on so many channels, and add up what they hold."""
    answers = await ctx.gather(*(ctx.receive(f"answer.{each}") for each in range(number)))
    return sum(answer.payload for answer in answers if answer is not None)


async def start(engine: Engine, workflow: str, executions: int) -> list[UUID]:
    """Start so many executions without arguments, and return their ids."""
    eids: list[UUID] = []
    while len(eids) < executions:
        count = min(BATCH, executions - len(eids))
        eids += await engine.start_many(workflow, [()] * count)
    return eids
