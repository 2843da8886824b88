# SPDX-License-Identifier: Apache-2.0
"""The test world: a real API server on a real store (SQLite, or etcd), over real TLS, on a clock that tests move.

Certificates are made on the spot by the same code that `handfast up` uses. Verbs read like the story a test tells:
`await world.create("configmaps", name="a")`.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import pathlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec

from handfast.apiserver import identity
from handfast.apiserver import limits as limits_module
from handfast.apiserver.state import envelope
from handfast.apiserver.strategy import strategies
from handfast.assembly import apiserver
from handfast.assembly import guard as guard_module
from handfast.bootstrap import kubeconfig
from handfast.datadir import layout, preparation
from handfast.pki import authority, keys, names, pem, profiles
from handfast.runtime import addresses, tls
from handfast.runtime import clock as clocks
from handfast.store import protocol
from tests.world import etcds
from tests.world.clock import MovableClock

# Every world that names no store of its own is on a real etcd, as several servers may have it: docs/etcd.md.
ON_ETCD = os.environ.get("WORLDS_ON_ETCD", "") == "1"
# The stores that the running test gave to its worlds.
GIVEN: list[protocol.Store] = []


class Answer:
    """An HTTP answer, read whole."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def reason(self) -> str:
        return str(self.json().get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.json().get("message", ""))


class World:
    """One server and its administrator."""

    def __init__(self, server: apiserver.ApiServer, place: layout.Layout, clock: clocks.Clock) -> None:
        self.server = server
        self.place = place
        self.clock = clock
        self.base = f"https://127.0.0.1:{server.address[1]}"
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def movable(self) -> MovableClock:
        assert isinstance(self.clock, MovableClock)
        return self.clock

    def admin_context(self) -> ssl.SSLContext:
        parsed = kubeconfig.parse(self.place.admin_kubeconfig.read_text())
        assert parsed.user is not None
        return tls.client_context(
            parsed.cluster.certificate_authority_data, parsed.user.client_certificate_data, parsed.user.client_key_data
        )

    def anonymous_context(self) -> ssl.SSLContext:
        return tls.client_context(self.place.ca_certificate.read_bytes(), None, None)

    def context_for(
        self,
        common_name: str,
        *organizations: str,
        profile: profiles.Profile = profiles.CLIENT,
        ttl: datetime.timedelta | None = None,
    ) -> ssl.SSLContext:
        """TLS of somebody with a certificate of this cluster's CA."""
        ca = authority.Authority(
            pem.certificates_from_pem(self.place.ca_certificate.read_bytes())[0],
            keys.private_from_pem(self.place.ca_key.read_bytes()),
        )
        key = keys.generate()
        subject = names.Subject(common_name=common_name, organizations=organizations)
        issued = ca.issue(key.public, subject, names.Sans(), profile, self.clock.now(), ttl)
        return tls.client_context(self.place.ca_certificate.read_bytes(), issued.pem, key.to_pem())

    def session(self, context: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
        """The administrator's session, or one with another TLS context."""
        key = "admin" if context is None else str(id(context))
        if key not in self._sessions:
            connector = aiohttp.TCPConnector(ssl=context or self.admin_context(), limit=0)
            self._sessions[key] = aiohttp.ClientSession(self.base, connector=connector)
        return self._sessions[key]

    async def request(
        self, method: str, path: str, document: Any = None, *, context: ssl.SSLContext | None = None, **options: Any
    ) -> Answer:
        if document is not None:
            options["data"] = document if isinstance(document, bytes) else msgspec.json.encode(document)
            options.setdefault("headers", {}).setdefault("Content-Type", "application/json")
        async with self.session(context).request(method, path, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.request("GET", path, **options)

    async def pass_time_until(self, task: asyncio.Future[Any], step: float = 1.0) -> None:
        """Move the clock on, while the network goes at its own pace, until `task` is done."""
        while not task.done():
            await self.movable().advance(step)
            await asyncio.wait([task], timeout=0.01)

    async def create_config_map(self, name: str, namespace: str = "default", **data: str) -> Any:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        answer = await self.request("POST", path, {"metadata": {"name": name}, "data": data})
        assert answer.status == 201, answer.body
        return answer.json()

    async def ensure_service_account(self, namespace: str, name: str = "default") -> None:
        """What the controllers make in every namespace: Pods need it, and most worlds have no controllers."""
        kind = next(row for row in self.server.table if row.resource == ("", "serviceaccounts"))
        document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        strategies.prepare_create(kind, document, namespace, identity.User("test", ()), self.clock.now())
        with contextlib.suppress(protocol.Mismatch):
            await self.server.storage.create(kind, document)

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        await self.server.stop()


@contextlib.asynccontextmanager
async def world(
    directory: pathlib.Path,
    *,
    clock: clocks.Clock | None = None,
    limits: limits_module.Limits | None = None,
    store: protocol.Store | None = None,
    guard: guard_module.GuardOptions | None = None,
    audit: apiserver.AuditOptions | None = None,
    balancers: str = "none",
    shared: bool = False,
    forms: Mapping[int, envelope.Form] = envelope.FORMS,
) -> AsyncIterator[World]:
    """A served world in `directory`; an existing one is resumed. `shared` if others have the same store."""
    clock = clock or MovableClock()
    if store is not None:
        GIVEN.append(store)
    place = layout.Layout.at(directory)
    place.root.mkdir(exist_ok=True, mode=0o700)
    preparation.prepare(
        place, server=addresses.Address("127.0.0.1", 6443), advertise=(), store="store.db", now=clock.now()
    )
    options = apiserver.ApiServerOptions(
        directory=str(directory),
        listen=("127.0.0.1", 0),
        store=etcds.url_of(directory) if ON_ETCD and store is None else "",
        limits=limits or limits_module.Limits(lifted=True),
        guard=guard or guard_module.GuardOptions(bootstrap_tokens=True),
        audit=audit,
        proxy_protocol_from=balancers,
        forms=forms,
    )
    server = await apiserver.open_server(options, clock, store, shared=shared)
    if options.store:
        etcds.begin(directory)
    try:
        await server.start()
    except BaseException:
        await server.stop()
        raise
    if options.store:
        etcds.started(directory)
    made = World(server, place, clock)
    await made.ensure_service_account("default")
    try:
        yield made
    finally:
        await made.close()
