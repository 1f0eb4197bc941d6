"""How is a trouble told that lasts? Once: again only when it is another one, or has been over."""

from __future__ import annotations

import logging


class Trouble:
    """Tells what goes wrong again and again, without filling the log."""

    def __init__(self, log: logging.Logger, prefix: str = "") -> None:
        """Tell it to `log`, behind `prefix`."""
        self._log = log
        self._prefix = prefix
        self._told: str | None = None

    def tell(self, error: Exception) -> None:
        """Tell a trouble, unless it was the last thing told."""
        text = str(error)
        if text != self._told:
            self._told = text
            self._log.warning("%s%s", self._prefix, text)

    def over(self) -> None:
        """It works again."""
        self._told = None
