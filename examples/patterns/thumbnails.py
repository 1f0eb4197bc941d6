"""A fan-out: a child for each picture of an album, four at a time, on two workers."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import perdure
from perdure import Context, Registry
from perdure.patterns import fan_out

PICTURES = 30

registry = Registry()


def shrink(picture: str) -> str:
    """Make a small picture of a large one."""
    return f"small-{picture}"


@registry.workflow("thumbnail", version="1")
async def thumbnail(ctx: Context, picture: str) -> str:
    """Shrink one picture; it has a journal of its own, and is retried by itself."""
    return await ctx.step(shrink, picture, retry=perdure.RetryPolicy(max_attempts=3))


@registry.workflow("album", version="1")
async def album(ctx: Context, pictures: list[str]) -> list[str]:
    """Shrink all pictures."""
    return await fan_out(ctx, thumbnail, pictures, limit=4)


async def main(directory: Path) -> list[str]:
    """Make an album; give its pictures."""
    url = f"sqlite:///{directory / 'album.db'}"
    async with perdure.open(url, registry) as engine, engine.worker(), engine.worker():
        eid = await engine.start(album, [f"{n:02}.jpg" for n in range(PICTURES)])
        made: list[str] = await engine.result(eid, timeout=30)
    print(f"{len(made)} pictures, from {made[0]} to {made[-1]}")
    return made


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made_for:
        pictures = asyncio.run(main(Path(made_for)))
        sys.exit(pictures != [f"small-{n:02}.jpg" for n in range(PICTURES)])
