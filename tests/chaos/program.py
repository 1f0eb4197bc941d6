"""What runs in the processes of these tests? A worker that is steered by lines and signals.

``python -m tests.chaos.program URL FOLDER TTL DRAIN EXECUTIONS`` works on a store until SIGTERM.
Steps say on standard output what they do, one line each, and wait for bytes on standard input;
effects are lines of an append-only file in the folder, which no kill takes back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from uuid import UUID

import perdure
from perdure import Context, EngineConfig, Registry, StartOptions, step_info

registry = Registry()
folder = Path()


def say(*words: object) -> None:
    """Write one line to standard output, whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def effect(what: str) -> str:
    """Append one line to the file of effects, durably, and give what only this run of it knows."""
    info = step_info()
    token = os.urandom(8).hex()
    line = f"{info.eid} {info.fid} {info.attempt} {os.getpid()} {what} {token}\n"
    file = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.fsync(file)
    os.close(file)
    say("effect", info.fid)
    return token


def held() -> str:
    """Say that it runs, and wait for a byte on standard input."""
    token = effect("held")
    say("held")
    os.read(0, 1)
    return token


@registry.workflow("held", version="1")
async def hold(ctx: Context) -> list[str]:
    return [await ctx.step(held), await ctx.step(effect, "after")]


@registry.workflow("waiting", version="1")
async def wait(ctx: Context) -> object:
    await ctx.step(effect, "before")
    message = await ctx.receive("x")
    return message.payload if message else None


@registry.workflow("short", version="1")
async def short(ctx: Context, number: int) -> list[str]:
    first = await ctx.step(effect, f"first-{number}")
    pair = await ctx.gather(ctx.step(effect, "left"), ctx.step(effect, "right"))
    if number % 10 == 0:
        await ctx.sleep(0.05)
    return [first, *pair, await ctx.step(effect, "last")]


@registry.workflow("leaf", version="1")
async def leaf(ctx: Context, number: int) -> int:
    await ctx.step(effect, f"leaf-{number}")
    if number % 7 == 0:
        await ctx.sleep(0.05)
    await ctx.step(effect, "last")
    return number


@registry.workflow("branch", version="1")
async def branch(ctx: Context, number: int, leaves: int) -> int:
    await ctx.step(effect, f"branch-{number}")
    await ctx.send("grown", number, to=ctx.baggage["root"])
    return sum(await ctx.gather(*(ctx.child(leaf, n, key=str(n)) for n in range(leaves))))


@registry.workflow("tree", version="1")
async def tree(ctx: Context, branches: int, leaves: int) -> list[object]:
    options = StartOptions(baggage={"root": str(ctx.eid)})
    frames = [
        ctx.child(branch, number, leaves, key=str(number), options=options)
        for number in range(branches)
    ]
    grown = await ctx.gather(*(ctx.receive("grown") for _ in range(branches)))
    return [await ctx.gather(*frames), sorted(m.payload for m in grown if m is not None)]


async def work(url: str, ttl: float, drain: float, executions: int) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    config = EngineConfig(session_ttl=ttl, drain=drain, max_recoveries=100)
    async with (
        perdure.open(url, registry, config=config) as engine,
        engine.worker(max_executions=executions),
    ):
        say("ready", os.getpid())
        await stop.wait()
        say("draining")
    say("drained")


def effects(path: Path) -> dict[tuple[UUID, str], list[str]]:
    """Read the file of effects: the tokens of each step of each execution."""
    found: dict[tuple[UUID, str], list[str]] = {}
    for line in (path / "effects").read_text().splitlines():
        eid, fid, *_, token = line.split()
        found.setdefault((UUID(eid), fid), []).append(token)
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    asyncio.run(work(sys.argv[1], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])))
