"""How does a command fail? With one sentence on the standard error and an exit code.

0 is done. 1: the world refuses, or the thing was not found. 2: what was typed cannot be meant.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from perdure.errors import InvalidArgument, PerdureError, UnknownWorkflow
from perdure.surfaces.cli.output import note

DONE, REFUSED, USAGE = 0, 1, 2


@contextmanager
def failures(*, debug: bool) -> Iterator[None]:
    """Turn what a command raises into its complaint and its exit code.

    Args:
        debug: whether the traceback is shown, too.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has what it wanted. What is still buffered must not complain at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(DONE) from None
    except PerdureError as error:
        typed = isinstance(error, InvalidArgument) and not isinstance(error, UnknownWorkflow)
        fail(str(error), USAGE if typed else REFUSED, debug=debug)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        fail(f"{place}{error.strerror or error}; nothing else was done", REFUSED, debug=debug)
    except (typer.TyperException, typer.Exit, typer.Abort):
        raise
    except Exception as error:  # noqa: BLE001 - a fault of perdure itself is told like any other
        sentence = f"an unexpected {type(error).__name__}: {error}; see where with --debug"
        fail(sentence, REFUSED, debug=debug)


def fail(sentence: str, code: int, *, debug: bool = False) -> NoReturn:
    """Complain in one sentence and end the command.

    Args:
        sentence: what happened and what to do.
        code: the exit code.
        debug: whether the traceback of the error that is being handled is shown, too.
    """
    if debug:
        traceback.print_exc()
    note(f"perdure: {' '.join(sentence.split())}")
    raise typer.Exit(code)


class Commands(TyperGroup):
    """The group of all commands; it states a wrong use in one sentence, too."""

    def main(self, args: Sequence[str] | None = None, **options: Any) -> NoReturn:  # type: ignore[override]
        """Run, and exit the process with the code of the command."""
        try:
            code = super().main(args, **{**options, "standalone_mode": False})
        except typer.TyperException as error:
            context = getattr(error, "ctx", None)
            path = context.command_path if context is not None else "perdure"
            sentence = " ".join(error.format_message().split()).rstrip(".")
            hint = "" if sentence.endswith("?") else f"; see {path} --help"
            note(f"perdure: {sentence}{hint}")
            code = error.exit_code
        except typer.Abort:
            code = REFUSED
        sys.exit(code if isinstance(code, int) else DONE)
