# SPDX-License-Identifier: Apache-2.0
"""Posts AdmissionReviews to webhooks over HTTPS and gives back what they answer, as bytes.

It does not read the answers, nor decide what a failure means: `rules.webhooks.answers` does. Every way in which a call can
go wrong ends in `CallFailed`.

1. Only https, and always verified: against the webhook's `caBundle` if it has one, else the system's roots. A webhook
   behind a Service has to show a certificate for `<name>.<namespace>.svc`, wherever its endpoints are.
2. Nothing is sent before the certificate is verified. No cookies, no proxies, nothing from the environment.
3. One deadline, the webhook's `timeoutSeconds`, for finding the address, connecting, sending and reading everything.
4. Redirects are not followed, bodies not decompressed, and read up to `MAX_ANSWER` bytes.

Addresses of Services are not routed here, so a Service is called at one of its ready endpoints. If one cannot be reached,
the next is tried; if an idle connection has ended, a new one is made.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_webhook_client.py |
|---|---|---|---|---|
| a man in the middle | a certificate of another CA | answer for the webhook, read Secrets on the way | 1, 2 | test_a_certificate_of_another_ca_is_refused |
| a man in the middle | a certificate of the same CA for another name | the same | 1 | test_a_certificate_for_another_name_is_refused |
| an editor of a namespace | EndpointSlices of the webhook's Service | have reviews sent to themselves | 1: they lack the name's key | test_endpoints_of_somebody_else_are_refused |
| a hostile webhook | its own server | never answer | 3 | test_a_silent_webhook_ends_at_its_deadline |
| a hostile webhook | its own server | answer byte by byte, without end | 3 | test_a_trickle_ends_at_the_deadline |
| a hostile webhook | its own server | fill the memory with an endless body | 4 | test_an_endless_body_is_cut_off |
| a hostile webhook | its own server | fill the memory with a compressed body | 4 | test_a_compressed_body_is_not_opened |
| a hostile webhook | its own server | have the API server call another address | 4 | test_redirects_are_not_followed |
| who may write configurations | a URL with a password | find it in errors and logs | errors show the URL without it | test_a_password_in_the_url_is_not_shown |
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Iterator

import aiohttp
import msgspec
import yarl

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.apiserver.state import replica as replica_module
from handfast.rules.webhooks import answers
from handfast.rules.webhooks import configurations as rules
from handfast.runtime import clock as clocks
from handfast.runtime import tasks, tls

MAX_ANSWER = 3 << 20
_TRIES = 3
_CONTEXTS = 128
_SERVICES = "core/services/"
_SLICES = "discovery.k8s.io/endpointslices/"
_SERVICE_NAME = "kubernetes.io/service-name"
# No compression: see 4.
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": "handfast-apiserver-admission",
}


class _Target(msgspec.Struct, frozen=True):
    """Where to connect, and for whom the other side must have a certificate; None: for the host connected to."""

    url: yarl.URL
    server_name: str | None
    host: str | None


class Client:
    """One session for the process. Make it, use it and close it on the same event loop."""

    def __init__(self, replica: replica_module.Replica, clock: clocks.Clock) -> None:
        self._replica = replica
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[bytes | None, ssl.SSLContext] = {}

    async def call(self, webhook: rules.Webhook, body: bytes) -> bytes:
        """The body of the webhook's answer; raises `CallFailed`."""
        if webhook.wrong:
            raise answers.CallFailed(f"failed to call webhook: {webhook.wrong}")
        shown = _shown(webhook)
        received: list[bytes] = []

        async def work() -> None:
            received.append(await self._exchange(webhook, body, shown))

        # 3. one deadline for everything
        try:
            in_time = await tasks.within(work(), self._clock, webhook.seconds)
        except _Broken as broken:
            raise _failed(shown, str(broken)) from None
        if not in_time:
            raise _failed(shown, "context deadline exceeded")
        return received[0]

    async def _exchange(self, webhook: rules.Webhook, body: bytes, shown: yarl.URL) -> bytes:
        context = self._context(webhook.ca_bundle)
        try:
            targets = list(self._targets(webhook, shown))
        except ValueError:
            raise _Broken("there is no address that can be called") from None
        why = ""
        for target in (targets * 2)[:_TRIES]:
            try:
                return await self._post(target, context, body)
            except aiohttp.ClientSSLError as error:
                raise _Broken(_tls_text(error)) from None
            except aiohttp.ClientConnectorError as error:
                why = f"dial tcp {target.url.host}:{target.url.port}: {error.strerror or 'connect failed'}"
            except aiohttp.ServerDisconnectedError:
                why = "EOF"
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise _Broken(f"the exchange failed ({type(error).__name__})") from None
        raise _Broken(why)

    async def _post(self, target: _Target, context: ssl.SSLContext, body: bytes) -> bytes:
        headers = _HEADERS if target.host is None else _HEADERS | {"Host": target.host}
        async with self._opened().post(
            target.url,
            data=body,
            headers=headers,
            ssl=context,
            server_hostname=target.server_name,
            # 4. redirects are not followed
            allow_redirects=False,
        ) as answer:
            if not 200 <= answer.status < 300:
                answer.close()
                raise _Broken(
                    f"the server responded with the status code {answer.status} but did not return more information"
                )
            return await _read(answer)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No limit: one webhook that hangs must not keep the others' connections.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    def _context(self, ca_bundle: bytes | None) -> ssl.SSLContext:
        context = self._contexts.get(ca_bundle)
        if context is None:
            try:
                context = tls.client_context(ca_bundle)
            except errors.Refused as error:
                raise _Broken(f"clientConfig.caBundle: {error.message}") from None
            if len(self._contexts) >= _CONTEXTS:
                # Bundles that were rotated out; whichever is still used is made again.
                self._contexts.clear()
            self._contexts[ca_bundle] = context
        return context

    # --- addresses

    def _targets(self, webhook: rules.Webhook, shown: yarl.URL) -> Iterator[_Target]:
        service = webhook.service
        if service is None:
            # 1. only https
            if shown.scheme != "https":
                raise _Broken("only https URLs are called")
            yield _Target(shown, None, None)
            return
        server_name = f"{service.name}.{service.namespace}.svc"
        addresses = self._addresses(service)
        random.shuffle(addresses)
        for address, port in addresses:
            url = shown.with_host(address).with_port(port)
            yield _Target(url, server_name, f"{server_name}:{service.port}")

    def _addresses(self, service: rules.Service) -> list[tuple[str, int]]:
        item = self._replica.collection(_SERVICES).get(service.namespace, service.name)
        if item is None:
            raise _Broken(f'service "{service.name}" not found')
        document = item.document()
        if jsonpath.text(document, "spec", "type") == "ExternalName":
            return [(jsonpath.text(document, "spec", "externalName"), service.port)]
        port_name = _port_name(service, document)
        slices = [
            item.document()
            for item in self._replica.collection(_SLICES).snapshot(service.namespace)
            if item.labels().get(_SERVICE_NAME) == service.name
        ]
        addresses = [where for slice_ in slices for where in _ready(slice_, port_name)]
        if not addresses:
            raise _Broken(f'no endpoints available for service "{service.name}"')
        return addresses

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            # aiohttp closes TLS transports on the next turn of the loop.
            await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop, not a wait
            self._session = None


class _Broken(Exception):
    """Why a call failed; it never leaves this module."""


def _failed(url: yarl.URL, why: str) -> answers.CallFailed:
    return answers.CallFailed(f'failed to call webhook: Post "{url}": {why}')


def _shown(webhook: rules.Webhook) -> yarl.URL:
    """The URL as configured, for errors too: whoever reads them knows Services, not addresses."""
    timeout = f"{webhook.seconds}s"
    service = webhook.service
    try:
        if service is None:
            # Validation refuses a password in the URL; what was stored before must not be shown either.
            return yarl.URL(webhook.url).with_user(None).with_query(timeout=timeout)
        host = f"{service.name}.{service.namespace}.svc"
        url = yarl.URL.build(scheme="https", host=host, port=service.port, path=service.path)
        return url.with_query(timeout=timeout)
    except ValueError:
        raise answers.CallFailed("failed to call webhook: clientConfig names no URL that can be called") from None


def _port_name(service: rules.Service, document: objects.Document) -> str:
    """By which name the endpoints know the Service's port."""
    for port in jsonpath.mappings(document, "spec", "ports"):
        if port.get("port") == service.port and port.get("protocol") in {None, "TCP"}:
            return jsonpath.text(port, "name")
    raise _Broken(f'no service port {service.port} found for service "{service.name}"')


def _ready(slice_: objects.Document, port_name: str) -> Iterator[tuple[str, int]]:
    ports = [
        jsonpath.number(port, "port")
        for port in jsonpath.mappings(slice_, "ports")
        if jsonpath.text(port, "name") == port_name and port.get("protocol") in {None, "TCP"}
    ]
    for endpoint in jsonpath.mappings(slice_, "endpoints"):
        # Unknown counts as ready.
        if jsonpath.at(endpoint, "conditions", "ready") is not False:
            for port in filter(None, ports):
                # All addresses of an endpoint are the same; the first is the one to use.
                yield from ((address, port) for address in jsonpath.texts(endpoint, "addresses")[:1])


def _tls_text(error: aiohttp.ClientSSLError) -> str:
    # The certificate's own words are the peer's: only OpenSSL's are shown.
    cause = error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: {cause.verify_message}"
    return f"tls: handshake failed: {getattr(cause, 'reason', None) or type(cause).__name__}"


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await answer.content.readany():
        size += len(part)
        if size > MAX_ANSWER:
            answer.close()
            raise _Broken(f"the answer is larger than {MAX_ANSWER} bytes")
        parts.append(part)
    return b"".join(parts)
