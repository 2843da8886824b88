# SPDX-License-Identifier: Apache-2.0
"""Looks up what `rules.mesh.check` judges of a mesh. It reads only, works on any API server, and judges nothing.

1. What may not be read, or is not answered, is handed over as that, with the words of the server. Everything else is read all the same.
2. The rights of the mesh's accounts are asked for as the server decides them, by SubjectAccessReviews, beside the roles as they are written.
3. A door is connected to where it is said to be outside the cluster. Addresses of Pods are not tried, since nobody need reach them from here; nor is
   loopback, unless the API server is there, too.
4. The clock is that of the API server's answers, beside the one here.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib import parse as urls

from handfast import errors
from handfast.api import handfast_kinds, jsonpath, kinds, objects, resources
from handfast.api.printing import ages
from handfast.client import api, discovery
from handfast.rules import check, user_names
from handfast.rules.mesh import addresses as mesh_addresses
from handfast.rules.mesh import (
    check_facts,
    check_trust,
    check_workloads,
    control_plane,
    installation,
    services,
    webhook,
)
from handfast.runtime import addresses, tasks
from handfast.runtime import clock as clocks

_T = TypeVar("_T")
_REVIEWS: Final = kinds.row("subjectaccessreviews", "authorization.k8s.io")
_WEBHOOKS: Final = kinds.row(webhook.PLURAL, webhook.GROUP)
_CONNECT_SECONDS: Final = 3.0
_READING: Final = ("get", "list", "watch")
# Conditions come from the Node's own clock.
_READY: Final = "Ready"


async def look(client: api.Client, server: str, namespace: str, clock: clocks.Clock) -> tuple[check.Check, ...]:
    """Every check of the mesh in a namespace, on the API server at this URL."""
    look_up = _Look(client, namespace, clock)
    facts = await look_up.facts(server)
    return (*check_trust.checks(facts), *check_workloads.checks(facts))


class _Look:
    """The questions to one API server."""

    def __init__(self, client: api.Client, namespace: str, clock: clocks.Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock

    async def facts(self, server: str) -> check_facts.Facts:
        """What is there."""
        config = await self._find(resources.CONFIG_MAPS, control_plane.CONFIG)
        access = installation.access(self._namespace, ())
        return check_facts.Facts(
            namespace=self._namespace,
            now=self._clock.now(),
            config=config,
            anchors=await self._find(resources.CONFIG_MAPS, control_plane.TRUST_ANCHOR),
            signing=await self._find(resources.SECRETS, control_plane.SIGNING),
            webhook=await self._find(_WEBHOOKS, webhook.NAME, namespace=""),
            injector_pair=await self._find(resources.SECRETS, webhook.PAIR),
            missing_kinds=[row.kind for row in installation.KINDS if not await self._client.serves(row)],
            access=[(row, await self._find(row, row.name, namespace=row.namespace)) for row in access],
            readers=await self._readers(),
            doors=await self._doors(config, server),
            ahead=await self._ahead(server),
            heartbeats=await self._read(self._heartbeats),
            namespaces=await self._list(resources.NAMESPACES),
            accounts=await self._list(resources.SERVICE_ACCOUNTS, metadata=True),
            pods=await self._list(resources.PODS),
            workloads=await self._list(handfast_kinds.MESH_WORKLOAD),
        )

    async def _read(self, work: Callable[[], Awaitable[_T]]) -> _T | check.Unread:
        try:
            return await work()
        except (errors.Refused, errors.Unavailable) as error:
            # 1. as the server says it
            return check.refused(error)

    async def _find(self, resource: api.Addressable, name: str, *, namespace: str | None = None) -> check.Stored:
        space = self._namespace if namespace is None else namespace

        async def work() -> objects.Document | None:
            return await self._client.find(resource, name, namespace=space)

        return await self._read(work)

    async def _list(
        self, resource: api.Addressable, *, metadata: bool = False
    ) -> Sequence[objects.Document] | check.Unread:
        async def work() -> Sequence[objects.Document]:
            return await self._client.list(resource, metadata=metadata)

        return await self._read(work)

    async def _readers(self) -> Sequence[str] | check.Unread:
        """The accounts that read every Secret (2)."""

        async def work() -> Sequence[str]:
            return [account for account in control_plane.ACCOUNTS if await self._may_read_all(account)]

        return await self._read(work)

    async def _may_read_all(self, account: str) -> bool:
        spec: dict[str, Any] = {
            "user": user_names.service_account_user(self._namespace, account),
            "groups": [*user_names.service_account_groups(self._namespace), "system:authenticated"],
        }
        for verb in _READING:
            body = {**spec, "resourceAttributes": {"verb": verb, "resource": "secrets"}}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": body}
            if jsonpath.at(await self._client.create(_REVIEWS, review), "status", "allowed") is True:
                return True
        return False

    async def _heartbeats(self) -> Sequence[check_facts.Heartbeat]:
        beats = []
        for node in await self._client.list(resources.NODES):
            for row in jsonpath.mappings(node, "status", "conditions"):
                # Nodes write it themselves.
                at = ages.instant(row.get("lastHeartbeatTime"))
                if row.get("type") == _READY and row.get("status") == "True" and at is not None:
                    beats.append(check_facts.Heartbeat(jsonpath.text(node, "metadata", "name"), at))
        return beats

    async def _ahead(self, server: str) -> datetime.timedelta | check.Unread:
        # 4. by the API server's answers
        ours = await discovery.Discovery(self._clock).skew(server)
        return check.Unread("the API server does not say what time it is") if ours is None else -ours

    async def _doors(self, config: check.Stored, server: str) -> Mapping[str, check_facts.Door] | check.Unread:
        slices = await self._read(
            lambda: self._client.list(resources.ENDPOINT_SLICES, api.Scope(namespace=self._namespace))
        )
        if isinstance(slices, check.Unread):
            return slices
        data = jsonpath.mapping(config, "data") if isinstance(config, dict) else {}
        return {name: await self._door(name, data, slices, server) for name in services.DOORS}

    async def _door(
        self, name: str, data: Mapping[str, Any], slices: Sequence[objects.Document], server: str
    ) -> check_facts.Door:
        ready, outside = services.endpoints_of(name, slices)
        address = str(data.get(f"{name}.address") or outside)
        return check_facts.Door(address, ready, await self._connects(address, server) if address else None)

    async def _connects(self, address: str, server: str) -> bool | None:
        # 3. loopback is another machine's, unless the API server is here
        host = urls.urlsplit(server).hostname or ""
        if mesh_addresses.is_loopback(address) and not addresses.is_loopback(host):
            return None
        try:
            return await tasks.within(_connect(addresses.parse(address)), self._clock, _CONNECT_SECONDS)
        except (OSError, ValueError, errors.HandfastError):
            return False


async def _connect(address: addresses.Address) -> None:
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.close()
