# SPDX-License-Identifier: Apache-2.0
"""What a caller shows: the secret in a header, the chain that TLS let pass, and the hardware in the query. Whether to believe it is not decided here.

1. The secret is in `Authorization: Bearer`, and there is at most one such header.
2. A chain is verified by the client CAs as they are now. The result is kept while the chain is in force, since a node asks again and again
   and verifying takes a third of a millisecond. With new CAs every chain is verified anew.
3. `mac` and `serial` are there once at most, and are brought to the form of the inventory. Other parameters are ignored, as OpenShift's
   server does.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

from handfast import errors
from handfast.pki import bundles, chains
from handfast.rules.machine_config import requester
from handfast.rules.machines import declaration
from handfast.serving import peer as peer_module
from handfast.serving import service

BAD_QUERY: Final = "BadQuery"
_REMEMBERED: Final = 4096
_AUTHORIZATION: Final = "Authorization"


class Callers:
    """Reads requests; `trust` says whose certificates count."""

    def __init__(self) -> None:
        self._bundle: bundles.TrustBundle | None = None
        self._verified: dict[bytes, chains.Verified] = {}

    def trust(self, client_ca: bytes | None) -> None:
        """Believe certificates of these CAs from now on; None: no certificate (2)."""
        self._bundle = None if client_ca is None else bundles.TrustBundle.from_pem(client_ca)
        self._verified.clear()

    def read(self, http: service.Request, pool: str, now: datetime.datetime) -> requester.Request:
        """What was asked for and shown; errors.Refused where that cannot be read."""
        peer = service.peer_of(http)
        verified, refused = self._certificate(peer, now)
        # 3. once at most, and in the inventory's form
        mac, serial = _one(http, declaration.MAC), _one(http, declaration.SERIAL)
        return requester.Request(
            pool=pool,
            address=peer.address,
            of_balancer=peer.via == peer_module.BALANCER,
            secret=_secret(http),
            certificate=verified,
            refused=refused,
            mac=_hardware(declaration.mac, mac, declaration.MAC),
            serial=_hardware(declaration.word, serial, declaration.SERIAL),
        )

    def _certificate(self, peer: peer_module.Peer, now: datetime.datetime) -> tuple[chains.Verified | None, str]:
        """Whose certificate was shown, or why it is not believed."""
        if not peer.chain or self._bundle is None:
            return None, ""
        # 2. kept while it is in force
        known = self._verified.get(peer.chain_hash)
        if known is not None and known.valid_from <= now <= known.valid_until:
            return known, ""
        try:
            verified = chains.verify(peer.chain, self._bundle, chains.Client(), now)
        except errors.Refused as refused:
            return None, refused.message
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified[peer.chain_hash] = verified
        return verified, ""


def _secret(http: service.Request) -> str:
    # 1. one header at most, and a bearer's
    headers = http.headers.getall(_AUTHORIZATION, [])
    if not headers:
        return ""
    scheme, _, text = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not text.strip():
        raise errors.Refused("Authorization is to be `Bearer` and a secret, once", reason="BadAuthorization")
    return text.strip()


def _one(http: service.Request, name: str) -> str:
    values = http.query.getall(name, [])
    if len(values) > 1:
        raise errors.Refused(f"{name} is there {len(values)} times", reason=BAD_QUERY)
    return values[0] if values else ""


def _hardware(read: Callable[[str], str], text: str, name: str) -> str:
    try:
        return read(text) if text else ""
    except errors.Refused as refused:
        raise errors.Refused(f"{name}: {refused.message}", reason=BAD_QUERY) from None
