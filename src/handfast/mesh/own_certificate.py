# SPDX-License-Identifier: Apache-2.0
"""The certificate of a service of the control plane: got from the identity service in the name of its account, as workloads get theirs.

For destination, policy and the agents' channel. The identity service has its own (`identity.own_pair`), from itself. When it is
renewed, and when it is tried again, `client.keeping` says. The key is in memory only.

1. A fresh token of its own account, for the identity service alone and for ten minutes, is asked for at each attempt.
2. It goes to the identity service of the settings: on loopback in plaintext, elsewhere through TLS, to the identity service's own name
   under the trust anchors of the moment.
3. What comes back is used only if it is in its own name, and leads to those anchors (`wire.certifying`).
4. Other anchors, another trust domain or another name scheme mean another certificate, at once. Until it is there the one before is shown.

| who | holding | tries | stopped by | shown in tests/unit/mesh/test_own_certificate.py |
|---|---|---|---|---|
| a stranger | the address of the identity service | be told the token | 2 | test_the_token_goes_to_the_identity_service_alone |
| … | … | have the service show a certificate of his | 3 | test_a_certificate_that_peers_would_not_believe_is_not_used |
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.api import jsonpath, resources
from handfast.client import api, cache, keeping
from handfast.mesh import installed as installed_module
from handfast.pki import bundles, keys, pairs, pem, requests
from handfast.pki import names as pki_names
from handfast.rules.mesh import addresses as mesh_addresses
from handfast.rules.mesh import control_plane, issuer, names, settings
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from handfast.wire import certifying

_TOKEN_SECONDS: Final = 600
_CALL_SECONDS: Final = 10.0
# How often it is looked who everybody is: an account that is made anew is told by nothing that is followed here.
_LOOK_SECONDS: Final = 30.0
_NOBODY: Final = bundles.TrustBundle.of([])
_log = structlog.get_logger("handfast.mesh")


class Wanted(msgspec.Struct, frozen=True):
    """What the certificate is to say, and who is asked for it."""

    identity: str
    server: str
    address: str
    anchors: bundles.TrustBundle

    @property
    def subject(self) -> pki_names.Subject:
        return pki_names.Subject()

    @property
    def sans(self) -> pki_names.Sans:
        return pki_names.make_sans(dns=[self.identity])


class OwnCertificate:
    """The pair of the moment, and whom peers are believed by; None, and nobody, until they are there."""

    def __init__(
        self,
        client: api.Client,
        informers: cache.Informers,
        account: str,
        namespace: str,
        clock: clocks.Clock,
        chance: Callable[[], float] = randomness.random,
    ) -> None:
        self._client = client
        self._account = account
        self._namespace = namespace
        self._clock = clock
        self._changed = asyncio.Event()
        self._installed = installed_module.Installed(informers, namespace, self._changed.set)
        self._wanted: Wanted | None = None
        self._said = ""
        self._keeper = keeping.Keeper(
            account, _Memory(), self._obtain, lambda: self._wanted, clock=clock, chance=chance
        )

    def current(self) -> pairs.Pair | None:
        return self._keeper.current()

    def anchors(self) -> bundles.TrustBundle:
        """Whose certificates count: those of the mesh."""
        return _NOBODY if self._wanted is None else self._wanted.anchors

    def why_not(self) -> str | None:
        """Why there is none that can be used, for a readiness check; None where there is one."""
        if self._keeper.usable():
            return None
        last = self._keeper.last_error
        return self._said or ("there is no certificate" if last is None else last.message)

    async def run(self) -> None:
        """Keep it fresh, until cancelled."""
        await self._installed.wait_answered()
        async with tasks.Group("own-certificate") as group:
            group.start(self._keep(), name="own-certificate/keep")
            while True:
                self._changed.clear()
                await self._look()
                await tasks.wait_for_event(self._changed, self._clock, _LOOK_SECONDS)

    async def _keep(self) -> None:
        await self._keeper.run()

    async def _look(self) -> None:
        try:
            wanted = await self._wish()
        except (errors.Refused, errors.Unavailable) as error:
            if error.message != self._said:
                _log.warning("no certificate can be asked for", reason=error.reason, error=error.message)
            self._said = error.message
            return
        self._said = ""
        if wanted != self._wanted:
            # 4. another certificate, at once
            self._wanted = wanted
            self._keeper.renew_now()

    async def _wish(self) -> Wanted:
        chosen = settings.parse(self._installed.need(control_plane.CONFIG).data or {})
        anchors = self._installed.need(control_plane.TRUST_ANCHOR).data or {}
        mesh = chosen.mesh(self._namespace)
        return Wanted(
            identity=mesh.name(await self._who(mesh, self._account)),
            server=mesh.name(await self._who(mesh, control_plane.IDENTITY)),
            address=chosen.identity_address or mesh_addresses.service(control_plane.IDENTITY, self._namespace),
            anchors=issuer.read_anchors(anchors.get(control_plane.ANCHORS_KEY, "").encode()),
        )

    async def _who(self, mesh: names.Mesh, name: str) -> names.Account:
        if mesh.scheme is not names.Scheme.UID:
            return names.Account(namespace=self._namespace, name=name)
        document = await self._client.get(resources.SERVICE_ACCOUNTS, name, namespace=self._namespace)
        return names.Account(namespace=self._namespace, name=name, uid=jsonpath.text(document, "metadata", "uid"))

    async def _obtain(self, key: keys.PrivateKey, wanted: Wanted, seconds: float) -> bytes:
        csr = pem.one(requests.build(wanted.subject, wanted.sans, key), pem.CERTIFICATE_REQUEST)
        # 2. in plaintext on loopback only
        is_local = mesh_addresses.is_loopback(wanted.address)
        # 3. in its own name, and believed
        certified = await certifying.certify(
            certifying.Service(wanted.address, None if is_local else wanted.server),
            certifying.Request(wanted.identity, await self._token(), csr),
            wanted.anchors,
            clock=self._clock,
            pair=self._keeper.current() if self._keeper.usable() else None,
            seconds=min(seconds, _CALL_SECONDS),
        )
        return pem.certificates_to_pem(certified.chain)

    async def _token(self) -> bytes:
        # 1. fresh, for the identity service alone
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [control_plane.AUDIENCE], "expirationSeconds": _TOKEN_SECONDS},
        }
        answer = await self._client.create(
            resources.SERVICE_ACCOUNTS, body, namespace=self._namespace, name=self._account, subresource="token"
        )
        return jsonpath.text(answer, "status", "token").encode()


class _Memory:
    """A store of `client.issuance` that ends with the process."""

    def __init__(self) -> None:
        self._pair: pairs.Pair | None = None
        self._key: keys.PrivateKey | None = None

    def load(self) -> pairs.Pair | None:
        return self._pair

    def save(self, pair: pairs.Pair) -> None:
        self._pair, self._key = pair, None

    def pending_key(self) -> keys.PrivateKey:
        if self._key is None:
            self._key = keys.generate()
        return self._key

    def has_pending_key(self) -> bool:
        return self._key is not None

    def discard_pending(self) -> None:
        self._key = None

    def remove_leftovers(self) -> None:
        """Nothing survives a crash."""
