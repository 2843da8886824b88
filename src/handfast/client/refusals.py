# SPDX-License-Identifier: Apache-2.0
"""When somebody who waits for a certificate believes that it is refused. It asks for nothing: see `keeping`.

1. A final refusal is believed at once. Where there are several ways to ask, every one of them must have been refused.
2. Any other may be a proxy's, or that of a server that has just started and does not know all roles and tokens. It is
   believed when nothing else was heard for `BELIEVED_SECONDS`.
3. Whatever is no refusal begins the time anew.
"""

from __future__ import annotations

import math
from typing import Final

from handfast import errors
from handfast.client import issuance

# As long as discovery waits for a token.
BELIEVED_SECONDS: Final = 30.0


class Refusals:
    """The attempts that were refused, as long as nothing else comes between.

    There are two `ways` to ask where a pair has expired: with that pair, and with another credential.
    """

    def __init__(self, *, ways: int) -> None:
        self._ways = ways
        self._since = 0.0
        self._all: list[tuple[errors.Refused, bool]] = []

    def note(self, outlook: issuance.Outlook, now: float) -> None:
        """What the last attempt came to."""
        # 3. the time begins anew
        if outlook.refusal is None:
            self._all.clear()
            return
        if not self._all:
            self._since = now
        self._all.append((outlook.refusal, outlook.final))

    def believed(self, now: float) -> errors.Refused | None:
        """The refusal to believe; None: the next attempt may end otherwise."""
        recent = self._all[-self._ways :]
        final = [refusal for refusal, is_final in recent if is_final]
        # 1. every way was refused for good
        if len(final) == self._ways:
            return final[0]
        # 2. nothing else was heard for long enough
        if recent and self.left(now) <= 0:
            return final[0] if final else recent[0][0]
        return None

    def left(self, now: float) -> float:
        """For how many seconds a refusal that is not final is not believed; for ever while there is none."""
        return self._since + BELIEVED_SECONDS - now if self._all else math.inf

    def last(self) -> errors.Refused | None:
        return self._all[-1][0] if self._all else None
