# SPDX-License-Identifier: Apache-2.0
"""One GET on a connection of its own, to a server that may not be trusted yet; without an answer, what the trouble was.

It follows no redirect, keeps no cookie, unpacks nothing, reads no proxy from the environment and sends no credential along, with one
exception: a bootstrap token, which goes over verified TLS only. It does not know what an answer means: see `discovery`.
"""

from __future__ import annotations

import errno
import json
import ssl
from dataclasses import dataclass, field
from typing import Final, Protocol

import aiohttp
import yarl

from handfast import errors
from handfast.bootstrap import diagnosis, discovery, tokens
from handfast.client import transport
from handfast.runtime import tls

_SECONDS: Final = 10.0
_MAX_BYTES: Final = 3 << 20
# The longest wait that somebody who may not be trusted can ask for.
_MAX_RETRY_AFTER: Final = 60
# X509_V_ERR_*: the two for time, and the two for names.
_NOT_NOW: Final = frozenset({9, 10})
_OTHER_NAME: Final = frozenset({62, 64})
# What OpenSSL says when the peer does not speak TLS.
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE"})


@dataclass(frozen=True, slots=True)
class Trust:
    """By what a server is judged: a CA bundle in PEM, or with None the roots of the system."""

    ca: bytes | None

    def context(self) -> ssl.SSLContext:
        made = tls.client_context(self.ca)
        # What is trusted need not be a root: a pin may be that of an intermediate CA.
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return made


class Unverified:
    """No judgement, for the first fetch only: what comes has to prove itself otherwise."""

    def context(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
        return made


UNVERIFIED: Final = Unverified()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said, and when by its own clock."""

    code: int
    body: bytes = field(repr=False)
    date: str = ""
    # What a 401 asks for, or says of the token (WWW-Authenticate).
    challenge: str = ""
    # After how many seconds a 429 is worth asking again; 0: it did not say.
    retry_after: int = 0


class Troubled(Exception):
    """There was no answer."""

    def __init__(self, trouble: diagnosis.Trouble, detail: str = "") -> None:
        super().__init__(detail)
        self.trouble = trouble
        self.detail = detail


class Ask(Protocol):
    """One GET. A token goes with `Trust` only."""

    async def __call__(self, url: str, trust: Trust | Unverified, token: tokens.Token | None = None) -> Answer: ...


async def ask(url: str, trust: Trust | Unverified, token: tokens.Token | None = None) -> Answer:
    """One GET on a connection of its own: nothing is followed, remembered, or sent along."""
    target = _target(url)
    headers = {"User-Agent": transport.USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"}
    if token is not None:
        if not isinstance(trust, Trust):
            raise errors.Misuse("a credential is not sent to a server that is not verified")
        if target.path.endswith(discovery.PATH):
            raise errors.Misuse("cluster-info is public: no credential is sent for it, whoever is asked")
        headers["Authorization"] = f"Bearer {token.text}"
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust.context()),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=_SECONDS),
        auto_decompress=False,
    )
    try:
        async with session, session.get(target, headers=headers, allow_redirects=False) as answer:
            body = await _body(answer.content)
            said = answer.headers
            wait = said.get("Retry-After", "")
            return Answer(
                answer.status,
                body,
                said.get("Date", ""),
                said.get("WWW-Authenticate", ""),
                min(int(wait[:9]), _MAX_RETRY_AFTER) if wait.isascii() and wait.isdecimal() else 0,
            )
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _troubled(error) from error


def _target(url: str) -> yarl.URL:
    try:
        target = yarl.URL(url, encoded=True)
        good = target.scheme == "https" and bool(target.host) and url.isprintable()
    except ValueError:
        good = False
    if not good:
        # Whatever follows the question mark may be a secret.
        raise errors.Refused(
            f"{json.dumps(url.partition('?')[0][:200])} is not an https URL",
            reason="BadEndpoint",
            hint="write it as in https://192.0.2.1:6443",
        )
    return target


async def _body(content: aiohttp.StreamReader) -> bytes:
    found = bytearray()
    while part := await content.readany():
        found += part
        if len(found) > _MAX_BYTES:
            raise Troubled(diagnosis.Trouble.NOT_HTTP, f"its answer is larger than {_MAX_BYTES} bytes")
    return bytes(found)


def _troubled(error: aiohttp.ClientError | OSError | ValueError) -> Troubled:
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
            why = inner.reason or "no handshake"
            return Troubled(trouble.NOT_TLS if why in _NOT_TLS else trouble.UNREACHABLE, why)
        if inner.errno == errno.ECONNREFUSED:
            return Troubled(trouble.CONNECTION_REFUSED)
        return Troubled(trouble.UNREACHABLE, inner.strerror or str(inner))
    if isinstance(error, UnicodeError):
        # Python's codec for names in DNS.
        return Troubled(trouble.NAME_NOT_FOUND, "no name in DNS has this form")
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return Troubled(trouble.NOT_HTTP, "its answer is not HTTP")
    return Troubled(trouble.UNREACHABLE, str(error) or type(error).__name__)


def _distrusted(error: Exception) -> Troubled:
    code = getattr(error, "verify_code", 0)
    why = getattr(error, "verify_message", "") or "it cannot be verified"
    if code in _NOT_NOW:
        return Troubled(diagnosis.Trouble.NOT_VALID_NOW, why)
    return Troubled(diagnosis.Trouble.WRONG_NAME if code in _OTHER_NAME else diagnosis.Trouble.UNTRUSTED, why)
