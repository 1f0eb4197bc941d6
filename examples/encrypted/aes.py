"""How are values encrypted? A `PayloadCodec` that uses AES-GCM, with keys that can be rotated.

What is stored begins with the name of the key, so that old values are read with the old key while
new ones are written with the new one. Lose a key, and what it has written is lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


class AesGcm:
    """Encrypts with the key that is current, and decrypts with whichever key was.

    Args:
        keys: keys of 16, 24 or 32 bytes by name; a name has at most 255 bytes.
        current: the name of the key that new values are encrypted with.
    """

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        """Take the keys."""
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}
        self._current = current.encode()
        self._cipher = self._ciphers[current]

    def encode(self, data: bytes) -> bytes:
        """Give name, nonce and ciphertext; the name is authenticated, too."""
        head = bytes([len(self._current)]) + self._current
        nonce = secrets.token_bytes(NONCE_BYTES)
        return head + nonce + self._cipher.encrypt(nonce, data, head)

    def decode(self, data: bytes) -> bytes:
        """Decrypt; raises if the key is not known, or the data was changed."""
        begin = 1 + data[0]
        head, nonce = data[:begin], data[begin : begin + NONCE_BYTES]
        cipher = self._ciphers[head[1:].decode()]
        return cipher.decrypt(nonce, data[begin + NONCE_BYTES :], head)
