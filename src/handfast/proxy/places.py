# SPDX-License-Identifier: Apache-2.0
"""Whether the addresses that Envoy is to listen on are free. Envoy binds them, later.

1. A port that is taken is told before anything starts: Envoy would say so only in its log.
2. It is looked at once. What takes it afterwards has Envoy reject the listener, which is told by `/ready` and tried again.
"""

from __future__ import annotations

from typing import Final

from handfast import errors
from handfast.rules.mesh import proxy_listening
from handfast.runtime import addresses

INBOUND: Final = "--inbound"
OUTBOUND: Final = "--outbound"
REDIRECTED: Final = proxy_listening.INBOUND
_HINTS: Final = {
    INBOUND: "give an address of this Pod with --pod-ip, and have the workload listen on 127.0.0.1 alone",
    OUTBOUND: "give another address, as in --outbound 127.0.0.1:14140",
    REDIRECTED: f"set another one in {REDIRECTED}, and redirect to it",
}


def require_free(address: addresses.Address, option: str) -> None:
    """Return if the address can be bound, else refuse; `option` is where it was named."""
    # 1. before anything starts
    try:
        addresses.listen(address, option).close()
    except errors.Refused as refused:
        raise errors.Refused(refused.message, reason=refused.reason, hint=_HINTS[option]) from refused
