# SPDX-License-Identifier: Apache-2.0
"""Why there was no answer: the exceptions of sockets, TLS and the HTTP library, as the few troubles that a person is told.

What is said of each is in `bootstrap.diagnosis`. It opens no connection.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

import aiohttp

from handfast.bootstrap import diagnosis

# X509_V_ERR_*: the two for time, and the two for names.
_NOT_NOW: Final = frozenset({9, 10})
_OTHER_NAME: Final = frozenset({62, 64})
# The alerts of RFC 8446, 6.2, that are about a certificate.
_REFUSALS: Final = frozenset(
    {"UNKNOWN_CA", "BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED"}
) | {"CERTIFICATE_REVOKED", "CERTIFICATE_REQUIRED", "ACCESS_DENIED"}
# What OpenSSL says when the peer does not speak TLS.
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE"})


class Troubled(Exception):
    """There was no answer."""

    def __init__(self, trouble: diagnosis.Trouble, detail: str = "") -> None:
        super().__init__(detail)
        self.trouble = trouble
        self.detail = detail


def refusal(error: aiohttp.ClientError | OSError) -> str:
    """The TLS alert by which a server turned down this side's certificate, in plain words; empty where it was none."""
    for each in (error, error.__cause__, getattr(error, "os_error", None)):
        # aiohttp has errors that are an SSLError by their class alone.
        reason = (getattr(each, "reason", None) or "") if isinstance(each, ssl.SSLError) else ""
        _, found, alert = reason.partition("_ALERT_")
        if found and alert in _REFUSALS:
            return alert.replace("_", " ").lower()
    return ""


def of(error: aiohttp.ClientError | OSError | ValueError) -> Troubled:
    """Which of the troubles an exception of the HTTP library is."""
    trouble = diagnosis.Trouble
    if isinstance(error, TimeoutError):
        return Troubled(trouble.NO_ANSWER)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _distrusted(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Troubled(trouble.NAME_NOT_FOUND, error.os_error.strerror or str(error.os_error))
    if isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
        if isinstance(inner, ssl.SSLError):
            return _no_handshake(inner)
        if inner.errno == errno.ECONNREFUSED:
            return Troubled(trouble.CONNECTION_REFUSED)
        return Troubled(trouble.UNREACHABLE, inner.strerror or str(inner))
    # One of its kinds is a ValueError, too.
    if isinstance(error, ssl.SSLError):
        return _of_socket(error)
    if isinstance(error, UnicodeError):
        # Python's codec for names in DNS.
        return Troubled(trouble.NAME_NOT_FOUND, "no name in DNS has this form")
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return Troubled(trouble.NOT_HTTP, "its answer is not HTTP")
    return _of_socket(error)


def _of_socket(error: aiohttp.ClientError | OSError) -> Troubled:
    """Of those that no library has wrapped."""
    trouble = diagnosis.Trouble
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrusted(error)
    if isinstance(error, ssl.SSLError):
        return _no_handshake(error)
    if isinstance(error, socket.gaierror):
        return Troubled(trouble.NAME_NOT_FOUND, error.strerror or "there is no such name")
    if isinstance(error, ConnectionRefusedError):
        return Troubled(trouble.CONNECTION_REFUSED)
    return Troubled(trouble.UNREACHABLE, str(error) or type(error).__name__)


def _no_handshake(error: ssl.SSLError) -> Troubled:
    why = error.reason or "no handshake"
    return Troubled(diagnosis.Trouble.NOT_TLS if why in _NOT_TLS else diagnosis.Trouble.UNREACHABLE, why)


def _distrusted(error: Exception) -> Troubled:
    code = getattr(error, "verify_code", 0)
    why = getattr(error, "verify_message", "") or "it cannot be verified"
    if code in _NOT_NOW:
        return Troubled(diagnosis.Trouble.NOT_VALID_NOW, why)
    return Troubled(diagnosis.Trouble.WRONG_NAME if code in _OTHER_NAME else diagnosis.Trouble.UNTRUSTED, why)
