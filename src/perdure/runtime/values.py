"""How large may a value be, and what is stored of it? Its JSON, or what a codec makes of that.

What a codec makes stands in an envelope, so what is stored is JSON in any case, and a reader
without the codec sees that there is something. Digests are of the plain values.
"""

from __future__ import annotations

import base64
import logging
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from perdure.errors import PayloadTooLarge, PayloadUnreadable
from perdure.model import codec
from perdure.model.codec import Decoder
from perdure.model.execution import ExecutionRow

ENVELOPE = "perdure:encoded"
MIB = 1024 * 1024

_HEAD = f'{{"{ENVELOPE}":"'.encode()

log = logging.getLogger("perdure.values")


class PayloadCodec(Protocol):
    """What stands between values and the store: it encrypts or compresses, for example.

    It sees arguments, values and messages as bytes of JSON. Whatever it raises in `decode` blocks
    the execution that is read, for an operator.
    """

    def encode(self, data: bytes) -> bytes:
        """Give what is stored."""

    def decode(self, data: bytes) -> bytes:
        """Give back what `encode` was given."""


class Values:
    """Encodes and decodes the values of one engine.

    Attributes:
        checked_above: a value of at most so many bytes needs no look at all.
    """

    def __init__(
        self, payload_warn: int | None, payload_max: int, payload_codec: PayloadCodec | None
    ) -> None:
        """Take the settings; see ``EngineConfig``."""
        self._warn = payload_max if payload_warn is None else payload_warn
        self._max = payload_max
        self._codec = payload_codec
        self.checked_above = -1 if payload_codec else min(self._warn, payload_max)

    def encode(self, where: str, value: Any) -> Raw:
        """Encode a value as it is stored.

        Raises:
            NotSerializable: if it is no JSON.
            PayloadTooLarge: if it is too large.
        """
        return self.seal(where, codec.encode(where, value))

    def seal(self, where: str, encoded: Raw) -> Raw:
        """Give what is stored of a value whose JSON this is.

        Raises:
            PayloadTooLarge: if it is too large.
        """
        if len(encoded) <= self.checked_above:
            return encoded
        self.check(where, encoded)
        if self._codec is None:
            return encoded
        sealed = base64.b64encode(self._codec.encode(bytes(encoded)))
        return Raw(_HEAD + sealed + b'"}')

    def check(self, where: str, encoded: Raw) -> None:
        """Refuse what is too large, and warn of what is large."""
        size = len(encoded)
        if size > self._max:
            raise PayloadTooLarge(where, size, self._max)
        if size > self._warn:
            words = "%s is %.1f MiB of JSON; keep large data elsewhere, and pass a reference"
            log.warning(words, where, size / MIB)

    def open(self, where: str, stored: bytes | Raw) -> bytes | Raw:
        """Give the JSON of a value that was stored.

        Raises:
            PayloadUnreadable: if it is in an envelope that cannot be opened.
        """
        if bytes(memoryview(stored)[: len(_HEAD)]) != _HEAD:
            return stored
        if self._codec is None:
            why = "no codec is configured here"
            raise PayloadUnreadable(where, why)
        try:
            sealed = msgspec.json.decode(stored, type=dict[str, str])[ENVELOPE]
            return self._codec.decode(base64.b64decode(sealed, validate=True))
        except Exception as error:  # a codec may raise anything
            raise PayloadUnreadable(where, f"{type(error).__name__}: {error}") from error

    def decode(self, where: str, stored: bytes | Raw, decoder: Decoder | None = None) -> Any:
        """Decode a value that was stored.

        Raises:
            PayloadUnreadable: if it is in an envelope that cannot be opened.
        """
        return (decoder or codec.decode)(self.open(where, stored))

    def shown(self, where: str, value: Any) -> Any:
        """Give a decoded value with its envelopes opened, for a caller who needs it.

        Raises:
            PayloadUnreadable: if it is in an envelope that cannot be opened.
        """
        found = self.show(value)
        if isinstance(found, dict) and found.keys() == {ENVELOPE}:
            self.open(where, codec.encode(where, found))
        return found

    def row(self, row: ExecutionRow) -> ExecutionRow:
        """Give an execution with its arguments and its result as a reader wants them."""
        if self._codec is None:
            return row
        args, result = self.show(row.args), self.show(row.result)
        return msgspec.structs.replace(row, args=args, result=result)

    def show(self, value: Any) -> Any:
        """Give a decoded value with its envelopes opened, but for those that cannot be."""
        if self._codec is None:
            return value
        if isinstance(value, dict):
            sealed = value.get(ENVELOPE)
            if len(value) == 1 and isinstance(sealed, str):
                try:
                    return codec.decode(self._codec.decode(base64.b64decode(sealed, validate=True)))
                except Exception:  # noqa: BLE001 - a codec may raise anything, and this only shows
                    return value
            return {name: self.show(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.show(part) for part in value]
        return value
