"""A saga: a trip is booked part by part, and what was booked is given back if a part cannot be had.

The bookings are lines of a file, so that one sees what is left. Run it: nothing is left.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from functools import partial
from pathlib import Path

import perdure
from perdure import Context, ExecutionFailed, NonRetryableError, Registry
from perdure.patterns import saga

registry = Registry()


def book(file: str, what: str) -> str:
    """Book one part of the trip."""
    if what == "flight":
        message = "there is no seat left"
        raise NonRetryableError(message)
    path = Path(file)
    path.write_text(path.read_text() + f"{what}\n")
    print(f"booked the {what}")
    return what


def give_back(file: str, what: str) -> None:
    """Give a part of the trip back; doing so twice does no harm."""
    path = Path(file)
    left = [line for line in path.read_text().splitlines() if line != what]
    path.write_text("".join(f"{line}\n" for line in left))
    print(f"gave the {what} back")


@registry.workflow("trip", version="1")
async def trip(ctx: Context, file: str, parts: list[str]) -> list[str]:
    """Book every part, or none."""
    return await saga(
        ctx, [(partial(book, file, what), partial(give_back, file)) for what in parts]
    )


async def main(directory: Path) -> list[str]:
    """Book two trips; give what is booked at the end."""
    bookings = directory / "bookings.txt"
    bookings.write_text("")
    url = f"sqlite:///{directory / 'trip.db'}"
    async with perdure.open(url, registry) as engine, engine.worker():
        eid = await engine.start(trip, str(bookings), ["hotel", "car", "flight"])
        try:
            await engine.result(eid, timeout=10)
        except ExecutionFailed as failed:
            print(failed)
        eid = await engine.start(trip, str(bookings), ["tent", "bicycle"])
        print(await engine.result(eid, timeout=10))
    return bookings.read_text().split()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.exit(asyncio.run(main(Path(made))) != ["tent", "bicycle"])
