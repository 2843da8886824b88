# SPDX-License-Identifier: Apache-2.0
"""UIDs of new objects: random UUIDs (version 4), made from a pool of random bytes.

The pool exists because asking the kernel releases the interpreter lock: beside the store's busy writer thread, getting it
back can cost a hundred times what the bytes do. It makes no names; see `strategies`.
"""

from __future__ import annotations

import secrets

_POOL = 4096


class Uids:
    """An endless supply."""

    def __init__(self) -> None:
        self._bytes = b""
        self._at = 0

    def new(self) -> str:
        if self._at + 16 > len(self._bytes):
            self._bytes = secrets.token_bytes(_POOL)
            self._at = 0
        value = bytearray(self._bytes[self._at : self._at + 16])
        self._at += 16
        # Version and variant, RFC 9562 section 5.4.
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        text = value.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_shared = Uids()
new = _shared.new
