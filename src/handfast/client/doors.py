# SPDX-License-Identifier: Apache-2.0
"""Looks up every door to a node's certificate, over any API. `rules.machines.doors` says what is one. It changes nothing.

What may not be read is named in `unread`: a list with a gap must not look whole.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects, resources, status
from handfast.bootstrap import token_views
from handfast.client import api
from handfast.client import ignition_secrets as client_secrets
from handfast.client import machine_tokens as client_tokens
from handfast.client import tokens as bootstrap_tokens
from handfast.pki import bundles, pem
from handfast.rules import client_ca_bundle
from handfast.rules.machines import (
    bootstrapper,
    client_ca_sources,
    credential_end,
    doors,
    machine_tokens,
)


class Look(msgspec.Struct):
    """The doors of one cluster, and what could not be read."""

    client: api.Client
    seen: list[doors.Door | None] = msgspec.field(default_factory=list)
    unread: list[str] = msgspec.field(default_factory=list)

    async def everything(self) -> tuple[doors.Door, ...]:
        """Every door that may be seen."""
        for ask in (self._tokens, self._authorities, self._accounts, self._configurations, self._bindings):
            await self._try(ask)
        return doors.ordered(self.seen)

    async def _try(self, ask: Callable[[], Awaitable[Iterable[doors.Door | None]]]) -> None:
        try:
            self.seen += await ask()
        except status.StatusError as error:
            if error.reason != "Forbidden":
                raise
            self.unread.append(error.message)

    async def _tokens(self) -> list[doors.Door | None]:
        found: list[doors.Door | None] = []
        for secret in await bootstrap_tokens.listed(self.client):
            try:
                found.append(doors.of_token(token_views.view(secret)))
            except errors.Refused as refused:
                # A Secret that is no token lets nobody in.
                self.unread.append(refused.message)
        return found

    async def _authorities(self) -> list[doors.Door]:
        document = await self.client.find(
            resources.CONFIG_MAPS, client_ca_bundle.NAME, namespace=client_ca_bundle.NAMESPACE
        )
        ends = await self._ends()
        return [
            doors.of_authority(anchor, scoped=scoped, end=ends.get(anchor.fingerprint) if scoped else None)
            for key, scoped in ((client_ca_bundle.KEY, False), (client_ca_bundle.SCOPED_KEY, True))
            for anchor in _anchors(jsonpath.text(document, "data", key)).anchors
        ]

    async def _ends(self) -> dict[str, datetime.datetime]:
        """When CAs of bootstrap credentials stop counting, by SHA-256."""
        documents = [
            await self.client.find(resources.CONFIG_MAPS, name, namespace=namespace)
            for namespace, name in bootstrapper.CONFIG_MAPS
        ]
        return credential_end.by_authority(
            (client_ca_sources.read(each).fingerprints, credential_end.of(each))
            for each in documents
            if each is not None
        )

    async def _accounts(self) -> list[doors.Door]:
        shared, own = await client_tokens.shared_secrets(self.client), await client_tokens.own_secrets(self.client)
        return [
            *(doors.of_secret(objects.metadata(each)) for each in shared),
            *(doors.of_secret(objects.metadata(each), machine=_machine(each)) for each in own),
        ]

    async def _configurations(self) -> list[doors.Door]:
        entries = await client_secrets.entries(self.client)
        return [doors.of_configuration(each.secret, each.pool, each.machine, each.until) for each in entries]

    async def _bindings(self) -> Iterator[doors.Door | None]:
        roles: dict[str, Any] = {
            jsonpath.text(role, "metadata", "name"): role for role in await self.client.list(resources.CLUSTER_ROLES)
        }
        bindings = await self.client.list(resources.CLUSTER_ROLE_BINDINGS)
        return (
            doors.of_binding(binding, roles[name])
            for binding in bindings
            if (name := jsonpath.text(binding, "roleRef", "name")) in roles
        )


def _anchors(text: str) -> bundles.TrustBundle:
    try:
        ders = pem.certificates_from_pem(text.encode("utf-8", "replace")) if text else []
    except errors.Refused:
        ders = []
    return bundles.TrustBundle.readable(ders)[0]


def _machine(secret: objects.Document) -> str:
    """The Machine that a Secret is for, as it says."""
    machine = jsonpath.mapping(secret, "metadata", "annotations").get(machine_tokens.MACHINE)
    return str(machine or "unknown")
