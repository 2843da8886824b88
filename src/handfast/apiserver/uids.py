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
        self._drawn: list[bytes] = []

    def new(self) -> str:
        # One step, whatever another thread does at this moment: nothing is handed out twice.
        try:
            value = bytearray(self._drawn.pop())
        except IndexError:
            drawn = secrets.token_bytes(_POOL)
            mine = [drawn[at : at + 16] for at in range(0, _POOL, 16)]
            value = bytearray(mine.pop())
            self._drawn.extend(mine)
        # Version and variant, RFC 9562 section 5.4.
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        text = value.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_shared = Uids()
new = _shared.new
