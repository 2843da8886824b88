# SPDX-License-Identifier: Apache-2.0
"""Whether the API server is there, for the readiness of those who follow it. It decides nothing.

A server that hangs leaves its connections open, and a quiet watch may be quiet for minutes. So the server is also asked
for nothing but an answer, from time to time. One that does not know who asks answers, and is of no use.
"""

from __future__ import annotations

from handfast import errors
from handfast.api import status
from handfast.client import transport
from handfast.runtime import clock as clocks

# How often the API server is asked whether it is there, and how long an answer may take: after both together at the
# latest, one that is silent is known to be.
_ASK_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_UNAUTHORIZED = 401


async def keep_asking(link: transport.Transport, clock: clocks.Clock) -> None:
    """Never returns. Whatever the answer is, the transport remembers that there was one, or why not."""
    while True:
        await clock.sleep(_ASK_SECONDS)
        try:
            await link.request("GET", "/livez", seconds=_ANSWER_SECONDS)
        except (errors.Refused, errors.Unavailable) as error:
            link.is_stranger = isinstance(error, status.StatusError) and error.code == _UNAUTHORIZED
        else:
            link.is_stranger = False


def unheard(link: transport.Transport) -> str | None:
    """Why the API server cannot be reached now, in words for a readiness check."""
    if link.is_stranger:
        return "the API server does not know the credentials"
    return None if link.unheard is None else f"the API server does not answer: {link.unheard}"
