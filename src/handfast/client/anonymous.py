# SPDX-License-Identifier: Apache-2.0
"""One GET on a connection of its own, to a server that may not be trusted yet; without an answer, what the trouble was.

It follows no redirect, keeps no cookie, unpacks nothing, reads no proxy from the environment and sends no credential along, with one
exception: a bootstrap token, which goes over verified TLS only. It does not know what an answer means: see `discovery`.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from typing import Final, Protocol

import aiohttp
import msgspec
import yarl

from handfast import errors
from handfast.bootstrap import diagnosis, tokens
from handfast.bootstrap import discovery as discovery_rules
from handfast.client import transport, trouble
from handfast.runtime import tls

_SECONDS: Final = 10.0
_MAX_BYTES: Final = 3 << 20
# The longest wait that somebody who may not be trusted can ask for.
_MAX_RETRY_AFTER: Final = 60


class Trust(msgspec.Struct, frozen=True):
    """By what a server is judged: a CA bundle in PEM, or with None the roots of the system."""

    ca: bytes | None

    def context(self) -> ssl.SSLContext:
        context = tls.client_context(self.ca)
        # What is trusted need not be a root: a pin may be that of an intermediate CA.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context


class Unverified:
    """No judgement, for the first fetch only: what comes has to prove itself otherwise."""

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


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


# What is raised without an answer.
Troubled = trouble.Troubled


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
        if target.path.endswith(discovery_rules.PATH):
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
        raise trouble.of(error) from error


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
    body = bytearray()
    while part := await content.readany():
        body += part
        if len(body) > _MAX_BYTES:
            raise Troubled(diagnosis.Trouble.NOT_HTTP, f"its answer is larger than {_MAX_BYTES} bytes")
    return bytes(body)
