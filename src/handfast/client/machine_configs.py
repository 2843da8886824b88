# SPDX-License-Identifier: Apache-2.0
"""One GET of a configuration from a machine-config server, as Ignition does it. If there is no answer, it says why.

It follows no redirect, keeps no cookie, unpacks nothing and reads no proxy from the environment. It does not know what a configuration
means: see `rules.machine_config.applying`.

1. The server is verified by the CA that the caller names before a certificate or a header with a secret is sent.
2. If its certificate is of another CA, the error names both. To name the other one, a second connection looks at the certificate, and sends
   nothing.
3. An answer has at most `MAX_BYTES`.
4. What may pass by itself is `Unavailable`, with the wait that the server asks for. What somebody has to put right is `Refused`, with the
   server's own reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import yarl

from handfast import errors
from handfast.bootstrap import diagnosis
from handfast.client import transport, trouble
from handfast.pki import certificates, pem, pins
from handfast.rules.machine_config import names
from handfast.runtime import tls

ACCEPT: Final = "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1"
MAX_BYTES: Final = 128 << 20
OTHER_CA: Final = "OtherCA"
_SECONDS: Final = 60.0
# Why one is turned away, by what one has shown.
_WRONG_POINTER: Final = (
    "the secret in the pointer is of another pool or machine, was replaced, or its machine has joined: `handfast machine ignition` makes a "
    "new pointer"
)
_WRONG_CERTIFICATE: Final = (
    "its certificate is that of a revoked node or of another cluster, or its Node is not in that pool"
)
_LOOK_SECONDS: Final = 5.0
_MAX_RETRY_AFTER: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, the CA to verify it by, and how this side proves who it is. Secrets stay out of its repr."""

    url: str
    ca_pem: bytes
    cert_pem: bytes | None = field(default=None, repr=False)
    key_pem: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Whose CA it is, in words.
    trusted_by: str = "the kubeconfig"


class NotReady(errors.Unavailable):
    """The server has no answer yet; `retry_after` are the seconds it asks for, 0 where it does not."""

    reason = "ServerNotReady"
    retry_after: float = 0.0


async def fetch(target: Target) -> bytes:
    """The body of the answer."""
    url = _url(target.url)
    context = tls.client_context(target.ca_pem, target.cert_pem, target.key_pem)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=_SECONDS),
        auto_decompress=False,
    )
    headers = {
        "User-Agent": transport.USER_AGENT,
        "Accept": ACCEPT,
        "Accept-Encoding": "identity",
        **target.headers,
    }
    try:
        async with session, session.get(url, headers=headers, allow_redirects=False) as answer:
            if answer.status != 200:
                raise _refusal(answer, target)
            return await _body(answer.content, target.url)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if isinstance(error, aiohttp.ClientError | OSError) and (alert := trouble.refusal(error)):
            raise errors.Refused(
                f"{_where(target.url)} does not take this machine's certificate: {alert}",
                reason="CertificateRefused",
                hint="have both trust the same client CA; `handfast node status` shows the certificate",
            ) from error
        raise await _explained(trouble.of(error), target) from error


def _url(text: str) -> yarl.URL:
    with contextlib.suppress(ValueError):
        url = yarl.URL(text)
        if url.scheme == "https" and url.host and text.isprintable():
            return url
    raise errors.Refused(
        f"{_where(text)[:200]!r} is not an https URL of a machine-config server",
        reason="BadEndpoint",
        hint="write it as in https://192.0.2.1:22623",
    )


def _where(url: str) -> str:
    # Whatever follows the question mark may be a secret.
    return url.partition("?")[0]


async def _body(content: aiohttp.StreamReader, url: str) -> bytes:
    body = bytearray()
    while part := await content.readany():
        body += part
        # 3. not more than this
        if len(body) > MAX_BYTES:
            raise errors.Refused(f"{_where(url)} answers with more than {MAX_BYTES:,} bytes", reason="TooLarge")
    return bytes(body)


def _refusal(answer: aiohttp.ClientResponse, target: Target) -> errors.HandfastError:
    # 4. what may pass by itself, and what may not
    # Only a server of ours says why: bodies are empty, as OpenShift's are.
    word = answer.headers.get(names.REASON_HEADER, "")
    reason = word.partition(":")[0].strip() if word.isprintable() else ""
    said = f"{_where(target.url)} answered {answer.status}{f' ({word[:200]})' if reason else ''}"
    if answer.status in {401, 403}:
        return errors.Refused(
            f"{said}: this machine may not have that configuration",
            reason=reason or ("Unauthorized" if answer.status == 401 else "Forbidden"),
            hint=f"{_WRONG_POINTER if target.headers else _WRONG_CERTIFICATE}; the server's log says more",
        )
    if answer.status >= 500 or answer.status == 429:
        wait = answer.headers.get("Retry-After", "")
        refused = NotReady(said, reason=reason or None, hint="it is asked again")
        refused.retry_after = (
            float(min(int(wait[:6]), _MAX_RETRY_AFTER)) if wait.isascii() and wait.isdecimal() else 0.0
        )
        return refused
    return errors.Refused(
        said,
        reason=reason or "BadAnswer",
        hint="name the machine-config server itself, as in --machine-config-server https://192.0.2.1:22623",
    )


async def _explained(met: trouble.Troubled, target: Target) -> errors.HandfastError:
    where = _where(target.url)
    if met.trouble is diagnosis.Trouble.UNTRUSTED:
        return await _other_ca(target)
    error = diagnosis.explain(met.trouble, where, met.detail, None)
    message = error.message.replace("an API server", "a machine-config server")
    reason, hint = error.reason.replace("NotAnAPIServer", "NotAMachineConfigServer"), error.hint
    if isinstance(error, errors.Unavailable) or reason != error.reason:
        hint = "start `handfast serve machine-config` there, or name another with --machine-config-server"
    return type(error)(message, reason=reason, hint=hint)


async def _other_ca(target: Target) -> errors.Refused:
    # 2. the names of both
    wanted = [
        f"{certificates.read(der).subject} ({pins.of_certificate(der)})"
        for der in pem.certificates_from_pem(target.ca_pem)
    ]
    return errors.Refused(
        f"{_where(target.url)} presents a certificate of another CA, {await _presented(target.url)}; {target.trusted_by} trusts "
        f"{', '.join(wanted)}",
        reason=OTHER_CA,
        hint="name the right server, or have its certificate signed by that CA; nothing was sent to it",
    )


async def _presented(url: str) -> str:
    """The issuer that a server's certificate names."""
    target = yarl.URL(url)
    context = tls.unsafe_unverified_context()
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            _, writer = await asyncio.open_connection(
                target.host, target.port, ssl=context, server_hostname=target.host
            )
            try:
                chain = tls.presented_chain(writer.transport)
            finally:
                writer.close()
        return str(certificates.read(chain[-1]).issuer)
    except (OSError, errors.Refused, IndexError):
        return "which cannot be read"
