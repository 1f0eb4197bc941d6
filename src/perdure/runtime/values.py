"""How large may a value be, and what is stored of it? Its JSON, or what a codec makes of that.

What a codec makes stands in an envelope, so what is stored is JSON in any case, and a reader
without the codec sees that there is something. Digests are of the plain values. A value without an
envelope is plain, also where there is a codec: it was stored before the codec was there.
"""

from __future__ import annotations

import base64
import logging
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from perdure.errors import PayloadTooLarge, PayloadUnreadable, PayloadUnwritable
from perdure.model import codec
from perdure.model.codec import ENVELOPE, ENVELOPE_HEAD, Decoder
from perdure.model.execution import ExecutionRow

MIB = 1024 * 1024

_HEAD_BYTES = len(ENVELOPE_HEAD)
_TAIL = b'"}'

_read_json = msgspec.json.Decoder(Raw).decode

log = logging.getLogger("perdure.values")


class PayloadCodec(Protocol):
    """What stands between values and the store: it encrypts or compresses, for example.

    It sees arguments, values and messages as bytes of JSON. Both methods are called on the event
    loop and in threads of steps, so they are quick and may run at the same time. Whatever they
    raise blocks the execution whose value it is, for an operator; of a call from outside it is
    raised as `PayloadUnwritable` or `PayloadUnreadable`.

    Example:
        An object whose methods call ``zlib.compress(data)`` and ``zlib.decompress(data)`` is one.
    """

    def encode(self, data: bytes, /) -> bytes:
        """Give what is stored. It may differ each time."""

    def decode(self, data: bytes, /) -> bytes:
        """Give back what `encode` was given; raise if that cannot be done."""


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
        self.checked_above = -1 if payload_codec is not None else min(self._warn, payload_max)

    # -- to the store ------------------------------------------------------------------------

    def encode(self, where: str, value: Any) -> Raw:
        """Encode a value as it is stored.

        Args:
            where: what it belongs to, for errors and warnings.
            value: any JSON value.

        Raises:
            NotSerializable: if it is no JSON.
            PayloadTooLarge: if it is too large.
            PayloadUnwritable: if the codec raises.
        """
        return self.seal(where, codec.encode(where, value))

    def seal(self, where: str, encoded: Raw) -> Raw:
        """Give what is stored of a value whose JSON this is.

        Raises:
            PayloadTooLarge: if it is too large.
            PayloadUnwritable: if the codec raises.
        """
        if len(encoded) <= self.checked_above:
            return encoded
        self.check(where, encoded)
        if self._codec is None:
            return encoded
        try:
            sealed = base64.b64encode(self._codec.encode(bytes(encoded)))
        except Exception as error:  # a codec may raise anything
            raise PayloadUnwritable(where, _describe(error)) from error
        return Raw(ENVELOPE_HEAD + sealed + _TAIL)

    def check(self, where: str, encoded: Raw) -> None:
        """Refuse what is too large, and warn of what is large.

        Raises:
            PayloadTooLarge: if it is too large.
        """
        size = len(encoded)
        if size > self._max:
            raise PayloadTooLarge(where, size, self._max)
        if size > self._warn:
            words = "%s: %s bytes of JSON are more than the %s of payload_warn; keep large data "
            words += "elsewhere, and pass a reference"
            log.warning(words, where, f"{size:,}", f"{self._warn:,}")

    # -- from the store, for whoever needs the value -----------------------------------------

    def open(self, where: str, stored: bytes | Raw) -> bytes | Raw:
        """Give the JSON of a value that was stored.

        Args:
            where: what it belongs to, for the error.
            stored: what was stored.

        Raises:
            PayloadUnreadable: if it is in an envelope that cannot be opened.
        """
        view = memoryview(stored)
        if view[:_HEAD_BYTES] != ENVELOPE_HEAD:
            return stored
        return self._unseal(where, bytes(view[_HEAD_BYTES : -len(_TAIL)]))

    def decode(self, where: str, stored: bytes | Raw, decoder: Decoder | None = None) -> Any:
        """Decode a value that was stored.

        Raises:
            PayloadUnreadable: if it is in an envelope that cannot be opened.
        """
        return (decoder or codec.decode)(self.open(where, stored))

    def plain(self, where: str, value: Any) -> Any:
        """Give a value whose JSON was decoded as it was stored.

        Raises:
            PayloadUnreadable: if it is in an envelope that cannot be opened.
        """
        sealed = _sealed(value)
        return value if sealed is None else codec.decode(self._unseal(where, sealed))

    def _unseal(self, where: str, sealed: bytes | str) -> bytes:
        if self._codec is None:
            why = "this engine has none"
            raise PayloadUnreadable(where, why)
        try:
            opened = bytes(self._codec.decode(base64.b64decode(sealed, validate=True)))
            _read_json(opened)  # a codec that is not the right one may give anything
        except Exception as error:  # a codec may raise anything
            raise PayloadUnreadable(where, _describe(error)) from error
        return opened

    # -- from the store, for whoever only shows it -------------------------------------------

    def row(self, row: ExecutionRow) -> ExecutionRow:
        """Give an execution with its arguments and its result as a reader wants them."""
        if self._codec is None:
            return row
        args, result = self.show(row.args), self.show(row.result)
        return msgspec.structs.replace(row, args=args, result=result)

    def show(self, value: Any) -> Any:
        """Give a decoded value with the envelopes in it opened, but for those that cannot be.

        What was in an envelope is given as it is: what looks like one in there is a user's.
        """
        if self._codec is None:
            return value
        sealed = _sealed(value)
        if sealed is not None:
            try:
                return codec.decode(self._unseal("", sealed))
            except PayloadUnreadable:
                return value
        if isinstance(value, dict):
            return {name: self.show(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.show(part) for part in value]
        return value


def _sealed(value: Any) -> str | None:
    """Give what is in an envelope whose JSON was decoded; ``None`` if it is none."""
    if isinstance(value, dict) and len(value) == 1:
        sealed = value.get(ENVELOPE)
        return sealed if isinstance(sealed, str) else None
    return None


def _describe(error: Exception) -> str:
    """Name an error, and say what it says, if it says anything."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")
