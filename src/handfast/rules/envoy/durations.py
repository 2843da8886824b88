# SPDX-License-Identifier: Apache-2.0
"""How long a connection of TLS lasts at most, by the lifetime of the certificate that made it. It ends none.

1. A tenth of the lifetime. A certificate is renewed from 70 to 90 % of it on, so that no connection outlives the one that made it.
2. A second at least: a connection that is made and ended at once serves nobody.
3. The longest that holds is kept while it is no more than a tenth, and more than half of one: each change replaces listeners and clusters, and
   so ends connections. Renewals alone change nothing.
"""

from __future__ import annotations

import datetime
from typing import Final

# Before there is a certificate.
FIRST: Final = 3600
_SHORTEST: Final = 1
_PARTS: Final = 10


def longest(lifetime: datetime.timedelta, before: int) -> int:
    """Seconds; `before` is what holds now."""
    # 1. a tenth; 2. a second at least
    tenth = max(_SHORTEST, int(lifetime.total_seconds() / _PARTS))
    # 3. kept while it will do
    return before if tenth < 2 * before <= 2 * tenth else tenth
