# SPDX-License-Identifier: Apache-2.0
"""A refused client certificate is told to the client: the TLS alert goes out before the connection ends.

Both event loops end a connection in the moment in which its handshake fails, with the alert still in the buffer. So the
first failure is taken for "more is needed", upon which they send what is in the buffer; whatever comes next, at the
latest the deadline of the handshake, ends it with the failure itself. It decides nothing: OpenSSL has.

An attacker wins nothing by it: whoever has a bad certificate can hold a slot until the deadline, as those can who say nothing.
"""

from __future__ import annotations

import contextvars
import ssl
from typing import Final

# The loops call back in the context of the task that began the connection, which is how a handshake knows its connection.
_refused: Final = contextvars.ContextVar[list[ssl.SSLCertVerificationError]]("refused")


def follow() -> list[ssl.SSLCertVerificationError]:
    """Where the refusal of the connection that this task begins next will be, if there is one."""
    refusals: list[ssl.SSLCertVerificationError] = []
    _refused.set(refusals)
    return refusals


class Handshake(ssl.SSLObject):
    """One side of a connection, for `SSLContext.sslobject_class`."""

    _failure: ssl.SSLCertVerificationError | None = None

    def do_handshake(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as failure:
            # Its traceback holds this frame, and so this object: a cycle that only the garbage collector frees.
            self._failure = failure.with_traceback(None)
            _refused.get([]).append(failure)
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the alert is sent first") from None
