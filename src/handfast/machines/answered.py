# SPDX-License-Identifier: Apache-2.0
"""The bytes of answers, kept: a configuration is put together once, and not for each machine that asks.

1. An answer is kept by the rendering in its version, the credential, the CA and the version of Ignition. When one of them changes, no
   older answer is served.
2. A machine's own name is put in afterwards. An answer that is kept has a random text in its place, which nobody else can know, so that
   nothing else is replaced. Putting together 100 KB takes milliseconds, replacing a text in it a hundredth of that.
3. At most `MOST_BYTES` are kept, and the oldest goes first. The credential is among them, so answers never print.
4. That there is no answer is kept as well: finding it out takes as long as an answer, and whoever asks again and again for a version that
   cannot be served would hold up everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from handfast import errors

MOST_BYTES: Final = 64 << 20


class Kept:
    """Answers by what they are made of; `mark` is the text that stands for a machine's name."""

    def __init__(self, mark: str, most: int = MOST_BYTES) -> None:
        self.mark = mark
        self._most = most
        self._size = 0
        self._answers: dict[Hashable, bytes | errors.Refused] = {}

    def __repr__(self) -> str:
        return f"Kept({len(self._answers)} answers)"

    def get(self, key: Hashable, hostname: str, build: Callable[[str], bytes]) -> bytes:
        """The answer for a machine of this name; empty: without one. `build` is called with the name to put in, where it is new.

        errors.Refused: `build` says that there is none.
        """
        # 1. by everything that it is made of
        whole = (key, bool(hostname))
        data = self._answers.get(whole)
        if data is None:
            data = _tried(build, self.mark if hostname else "")
            self._keep(whole, data)
        # 4. there is none; a new error each time, since an error collects where it was raised
        if isinstance(data, errors.Refused):
            raise errors.Refused(data.message, reason=data.reason, hint=data.hint)
        # 2. the machine's own name
        return data.replace(self.mark.encode("ascii"), hostname.encode("ascii")) if hostname else data

    def _keep(self, key: Hashable, data: bytes | errors.Refused) -> None:
        # 3. the oldest first
        self._answers[key] = data
        self._size += _size(data)
        while self._size > self._most and len(self._answers) > 1:
            self._size -= _size(self._answers.pop(next(iter(self._answers))))


def _tried(build: Callable[[str], bytes], name: str) -> bytes | errors.Refused:
    try:
        return build(name)
    except errors.Refused as refused:
        return refused.with_traceback(None)


def _size(data: bytes | errors.Refused) -> int:
    return len(data.message if isinstance(data, errors.Refused) else data)
