"""How does one begin? Writes a small project that runs, and overwrites nothing."""

from __future__ import annotations

import os
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from perdure.errors import Conflict
from perdure.surfaces.cli.failures import failures
from perdure.surfaces.cli.output import Output
from perdure.surfaces.cli.typed import DebugOption

NAMES = ("app.py", "README.md")
WORKER = ("perdure worker --app app:registry",)
OPERATOR = (
    "eid=$(perdure start hello ada --app app:registry)",
    "perdure status $eid --frames",
    "perdure signal $eid answer yes",
    "perdure result $eid",
)


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where; it is made if need be.")
    ] = Path(),
    *,
    debug: DebugOption = False,
) -> None:
    """Write a small workflow that runs, with the commands to run it."""
    with failures(debug=debug):
        write_sample(directory)
        out = Output()
        for name in NAMES:
            out.text(("wrote ", "dim"), str(directory / name))
        go = [] if directory == Path() else [f"cd {shlex.quote(str(directory))}"]
        for where, commands in (
            ("Run a worker in one terminal:", WORKER),
            ("Start an execution in another one, answer it, and see how it ends:", OPERATOR),
        ):
            out.text("")
            out.text(where)
            for command in (*go, *commands):
                out.text("  ", (command, "bold"))


def write_sample(directory: Path) -> None:
    """Write the files of the sample into a directory, all or none.

    Raises:
        Conflict: if one of them exists.
        OSError: if the directory cannot be made or written.
    """
    template = files("perdure.surfaces.cli.template")
    directory.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        if os.path.lexists(directory / name):
            message = f"{directory / name} exists, and nothing was written; give another directory"
            raise Conflict(message)
    written: list[Path] = []
    try:
        for name in NAMES:
            text = (template / name).read_text(encoding="utf-8")
            with (directory / name).open("x", encoding="utf-8") as file:
                written.append(directory / name)
                file.write(text)
    except OSError:
        for path in written:
            path.unlink()
        raise
