"""How does a function open a frame? It is given its id and started at the call.

Only the function and its branches may open one: what runs elsewhere could not be replayed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw

from perdure.errors import (
    Abandoned,
    ForeignAwait,
    ForeignFrame,
    InvalidName,
    NondeterminismError,
    PayloadUnreadable,
    PayloadUnwritable,
)
from perdure.model import codec
from perdure.model.ids import FRAME_KEY, FRAME_NAME, ROOT, check_name
from perdure.runtime import recorded
from perdure.runtime.attempt import CURRENT_STEP
from perdure.runtime.frames import Frame

if TYPE_CHECKING:
    from perdure.runtime.runner import Runner

T = TypeVar("T")

NO_ARGUMENTS = codec.digest("", [])
SHIELDED: ContextVar[bool] = ContextVar("perdure_shielded", default=False)


class Shield:
    """What ``ctx.shield()`` gives: frames that are opened inside know nothing of a cancel."""

    __slots__ = ("_token",)

    async def __aenter__(self) -> None:
        """Begin to shield; each branch for itself, and the branches that it begins."""
        self._token = SHIELDED.set(True)

    async def __aexit__(self, *raised: object) -> None:
        """Shield no more."""
        SHIELDED.reset(self._token)


class Opening:
    """The part of a context that names frames and opens them."""

    __slots__ = ("_counts", "_driver", "_patches", "_runner")

    def __init__(self, runner: Runner) -> None:
        """Make the context of one execution; the engine does that."""
        self._runner = runner
        self._driver = runner.driver
        self._counts: dict[str, int] = {}
        self._patches: dict[str, bool] = {}

    def _name(self, method: str, name: str, key: str | None) -> tuple[str, str]:
        """Check the call, and give the frame its id: the number is taken now."""
        self._check(method)
        if not isinstance(name, str) or FRAME_NAME.fullmatch(name) is None:
            what, hint = "frame name", "; give the frame another one with name="
            raise InvalidName(what, name, FRAME_NAME.pattern, hint)
        if key is not None:
            return f"{ROOT}/{name}:{check_name('frame key', key, FRAME_KEY)}", name
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        return f"{ROOT}/{name}#{number}", name

    def _start(self, frame: Frame[T]) -> Frame[T]:
        if self._driver.closed:
            return frame  # nothing comes of it, so whoever awaits it is let go
        frame.shielded = SHIELDED.get()
        live = self._runner.open(frame)
        self._driver.opened(frame)
        if live:
            self._runner.start(frame)
        return frame

    def _check(self, method: str) -> None:
        """Refuse a call from anywhere but the function and its branches."""
        driver = self._driver
        # First: an attempt may begin during a drive, when another one is abandoned in it.
        if CURRENT_STEP.get() is not None:
            raise ForeignFrame(method)
        if driver.driving:
            if driver.closed and driver.refuses():
                raise Abandoned
            return
        error = ForeignAwait(f"something that calls ctx.{method} outside the function")
        if not driver.closed:
            self._runner.block_from_outside(error)
        raise error

    def _recorded(self, fid: str) -> bool:
        """Whether the journal holds what a frame gives away: then nothing is given again."""
        return fid in self._runner.table.started

    def _encode_once(self, fid: str, value: Any) -> Raw:
        """Encode what a frame gives away."""
        return self._seal_once(fid, codec.encode(fid, value))

    def _seal_once(self, fid: str, encoded: Raw) -> Raw:
        """Seal what a frame gives away, unless it was given: then the limits of then count."""
        return encoded if self._recorded(fid) else self._seal(fid, encoded)

    def _seal(self, where: str, encoded: Raw) -> Raw:
        """Give what is stored of a value.

        Raises:
            PayloadTooLarge: if it is too large.
            PayloadUnwritable: if the codec raises. The execution is blocked then: that is no fact
                that a function could act on, as a replay may see another one.
        """
        try:
            return self._runner.values.seal(where, encoded)
        except PayloadUnwritable as unwritable:
            self._driver.stop(unwritable)
            raise

    def _derive(self, fid: str) -> bytes:
        return hashlib.sha256(self._runner.record.seed + fid.encode()).digest()

    def _inline(
        self,
        method: str,
        make: Callable[[str], Any],
        decode: codec.Decoder | None,
        *,
        gate: bool,
        key: str | None = None,
    ) -> Any:
        fid, name = self._name(method, method, key)
        frame: Frame[Any] = Frame(fid, "step", name, NO_ARGUMENTS)
        frame.shielded = True  # it gives a value at once, and never waits
        live = self._runner.open(frame)
        memo: Raw | None = self._runner.table.memos.get(fid)
        frame.done = True
        if memo is not None:
            frame.decoder = decode
            try:
                return recorded.decoded(frame, memo, self._runner.values)
            except (NondeterminismError, PayloadUnreadable) as misfit:
                self._driver.stop(misfit)
                raise Abandoned from misfit
        if not live:
            raise Abandoned  # the function is not driven any more, and there is no value to give
        value = make(fid)
        self._runner.record_inline(frame, value, gate=gate)
        return value
