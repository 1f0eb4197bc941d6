"""How does the log of a worker read? One line for each record, on the standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.text import Text

from perdure.surfaces.cli.output import make_console
from perdure.surfaces.cli.wording import clock, printable

_STYLES = {"DEBUG": "dim", "INFO": "", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


class LineHandler(logging.Handler):
    """Writes ``2030-01-31 12:00:05.250Z  WARNING  perdure.worker  what happened``."""

    def __init__(self, *, debug: bool) -> None:
        """Write to the standard error; tracebacks only if `debug`."""
        super().__init__()
        self._debug = debug
        self._console = make_console(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            self._write(record)
        except Exception:  # noqa: BLE001 - a log must not end what it tells of
            self.handleError(record)

    def _write(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        message = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            message = f"{message}: {type(error).__name__}: {error}"
        line = Text()
        line.append(f"{at:%Y-%m-%d} {clock(at, fine=True)}  ", "dim")
        line.append(f"{record.levelname:<7}  ", _STYLES.get(record.levelname, ""))
        line.append(f"{record.name}  {printable(message)}")
        self._console.print(line, soft_wrap=True)
        if self._debug and record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            self._console.print(Text(printable(text, keep="\n")), soft_wrap=True)


@contextmanager
def logs_on_stderr(*, debug: bool) -> Iterator[None]:
    """Send what ``perdure`` logs to the standard error, from ``INFO`` on; ``DEBUG`` if `debug`."""
    logger = logging.getLogger("perdure")
    before = logger.level, logger.propagate
    handler = LineHandler(debug=debug)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
