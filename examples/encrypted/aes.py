"""How are values encrypted? A `PayloadCodec` that uses AES-GCM, with keys that can be rotated.

What is stored begins with the name of the key, so that old values are read with the old key while
new ones are written with the new one. Lose a key, and what it has written is lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NAME_BYTES_MAX = 255
NONCE_BYTES = 12


class AesGcm:
    """Encrypts with the key that is current, and decrypts with whichever key was."""

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        """Take keys of 16, 24 or 32 bytes by name; new values get the one named `current`."""
        if current not in keys or len(current.encode()) > NAME_BYTES_MAX:
            message = f"current is {current!r}; it names one of the keys, in at most 255 bytes"
            raise ValueError(message)
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}
        self._current = current

    @staticmethod
    def new_key() -> bytes:
        """Make a key of 32 bytes."""
        return AESGCM.generate_key(256)

    def encode(self, data: bytes) -> bytes:
        """Give name, nonce and ciphertext; the name is authenticated, too."""
        name = self._current.encode()
        head, nonce = bytes([len(name)]) + name, secrets.token_bytes(NONCE_BYTES)
        return head + nonce + self._ciphers[self._current].encrypt(nonce, data, head)

    def decode(self, data: bytes) -> bytes:
        """Decrypt; raises if the key is not known, or the data was changed."""
        end = 1 + data[0]
        begin = end + NONCE_BYTES
        head, nonce, sealed = data[:end], data[end:begin], data[begin:]
        return self._ciphers[head[1:].decode()].decrypt(nonce, sealed, head)
