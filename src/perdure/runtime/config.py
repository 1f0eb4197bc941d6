"""What can be set about an engine? Few things, each with a default that fits one machine."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from perdure.errors import InvalidArgument
from perdure.runtime.values import MIB, PayloadCodec, Values


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The settings of an engine.

    Attributes:
        warm_executions: how many suspended executions a worker keeps in memory, so that they go on
            without a replay; 0 keeps none. Together they have at most 100,000 frames.
        session_ttl: seconds after which a worker that does not beat counts as dead; it beats every
            third of it.
        max_recoveries: how often an execution is recovered without an outcome in between before it
            is parked for an operator.
        drain: seconds that a stopping worker gives running attempts to finish; 0 stops at once.
        payload_warn: bytes of JSON above which a value is warned of, with what it belongs to;
            ``None`` never warns.
        payload_max: bytes of JSON above which a value is refused.
        codec: what encodes and decodes the bytes of arguments, values and messages on their way
            to the store and back, see `PayloadCodec`; ``None`` stores plain JSON.

    Raises:
        InvalidArgument: if a value is out of range.
    """

    session_ttl: float = 30.0
    warm_executions: int = 1_000
    max_recoveries: int = 10
    drain: float = 30.0
    payload_warn: int | None = MIB
    payload_max: int = 16 * MIB
    codec: PayloadCodec | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name in ("session_ttl", "drain"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                message = f"{name} is {value!r}; it is a number of seconds"
                raise InvalidArgument(message)
        if not 0 < self.session_ttl < float("inf"):
            message = f"session_ttl is {self.session_ttl!r}; it is a number of seconds above 0"
            raise InvalidArgument(message)
        for name in ("max_recoveries", "warm_executions"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                message = f"{name} is {value!r}; it is a whole number from 0"
                raise InvalidArgument(message)
        if not 0 <= self.drain < float("inf"):
            message = f"drain is {self.drain!r}; it is a number of seconds from 0"
            raise InvalidArgument(message)
        self._check_payloads()

    def _check_payloads(self) -> None:
        for name in ("payload_warn", "payload_max"):
            value = getattr(self, name)
            if value is None and name == "payload_warn":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                message = f"{name} is {value!r}; it is a whole number of bytes from 1"
                raise InvalidArgument(message)
        methods = [getattr(self.codec, name, None) for name in ("encode", "decode")]
        fits = all(callable(one) and not inspect.iscoroutinefunction(one) for one in methods)
        if self.codec is not None and (isinstance(self.codec, type) or not fits):
            message = (
                f"codec is {self.codec!r}; give an object whose methods encode and decode take "
                "bytes and return bytes, and are not async"
            )
            raise InvalidArgument(message)

    def values(self) -> Values:
        """Make what encodes and decodes values by these settings."""
        return Values(self.payload_warn, self.payload_max, self.codec)
