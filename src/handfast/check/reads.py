# SPDX-License-Identifier: Apache-2.0
"""What is read of one API server for a diagnosis: a method for each fact. It reads only; what may not be read raises, and `look` takes that down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from handfast.api import jsonpath, kinds, objects, resources, signing_requests
from handfast.bootstrap import cluster_info, diagnosis
from handfast.bootstrap import discovery as discovery_rules
from handfast.client import (
    anonymous,
    api,
    connection,
    controller_reviews,
    machine_rollout,
    machines,
    mesh_check,
    node_overview,
    request_reviews,
    tokens,
    transport,
    webhook_probes,
)
from handfast.controllers import names
from handfast.rules import check, client_ca_bundle, controller_rights
from handfast.rules.diagnoses import control_plane as diagnosed
from handfast.rules.diagnoses import facts, members, one_node
from handfast.rules.machines import bootstrapper, listing
from handfast.rules.mesh import control_plane
from handfast.runtime import clock as clocks

_ROLE_BINDINGS: Final = kinds.row("rolebindings", "rbac.authorization.k8s.io")
# Each costs several questions. Those beyond are counted.
_EXPLAINED: Final = 25
_NOT_READY: Final = "ServerNotReady"


class Reads(msgspec.Struct, frozen=True):
    """The questions to one API server."""

    client: api.Client
    used: connection.Connection
    version: str
    mesh_namespace: str
    clock: clocks.Clock
    # Whose requests are explained first.
    node: str = ""

    async def ready(self) -> str:
        """What /readyz says, also where it is not ready."""
        try:
            return (await self.client.transport.request("GET", "/readyz", params={"verbose": ""})).decode(
                "utf-8", "replace"
            )
        except transport.UnexpectedAnswer as error:
            # Whatever else it says, it is not ready.
            return error.message if "[-]" in error.message else f"[-]readyz failed: {error.message}"

    async def lease(self) -> objects.Document | None:
        return await self.client.find(resources.LEASES, controller_rights.LEASE, namespace=controller_rights.NAMESPACE)

    async def rights(self) -> controller_reviews.Rights:
        """Of the controllers that a cluster of this kind has."""
        fleet = await self.client.find(resources.NAMESPACES, bootstrapper.NAMESPACE, metadata=True) is not None
        wanted = [name for name in controller_rights.RIGHTS if fleet or name not in names.MACHINES]
        return await controller_reviews.missing(self.client, wanted, own_server=diagnosed.OWN_SERVER in self.version)

    async def cluster_info(self) -> objects.Document | None:
        return await self.client.find(resources.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE)

    async def stranger(self) -> int | check.Unread:
        """The code of the answer to somebody without a credential."""
        url = self.used.server.rstrip("/") + discovery_rules.PATH
        try:
            answer = await anonymous.ask(url, anonymous.Trust(self.used.ca_pem))
        except anonymous.Troubled as troubled:
            return check.refused(diagnosis.explain(troubled.trouble, url, troubled.detail, None))
        error = diagnosis.answered(answer.code, answer.body, url)
        # Whoever is too busy to answer has not said whether strangers may read it.
        return check.refused(error) if error is not None and error.reason == _NOT_READY else answer.code

    async def tokens(self) -> Sequence[objects.Document]:
        return await tokens.listed(self.client)

    async def client_cas(self) -> objects.Document | None:
        return await self.client.find(
            resources.CONFIG_MAPS, client_ca_bundle.NAME, namespace=client_ca_bundle.NAMESPACE
        )

    async def webhooks(self) -> Sequence[facts.Hook]:
        return await webhook_probes.look(self.client, self.used.server)

    async def requests(self) -> facts.Requests:
        """Every request, and why the first of those that are open stand where they stand; those of the node that is asked for come first."""
        documents = await self.client.list(resources.SIGNING_REQUESTS)
        missing: list[str] = []
        review = request_reviews.Review(self.client, self.clock.now(), missing.append)
        explanations = {}
        waiting = [each for each in documents if members.is_open(each)]
        if self.node:
            waiting.sort(key=lambda each: not one_node.is_for(self.node, each))
        for document in waiting[:_EXPLAINED]:
            request = signing_requests.DECODER.decode(msgspec.json.encode(document))
            explanations[jsonpath.text(document, "metadata", "name")] = await review.explain(request)
        return facts.Requests(documents, explanations, tuple(dict.fromkeys(missing)))

    async def nodes(self) -> node_overview.Read:
        return await node_overview.read(self.client)

    async def bindings(self) -> Sequence[objects.Document]:
        cluster = await self.client.list(resources.CLUSTER_ROLE_BINDINGS)
        return [*cluster, *await self.client.list(_ROLE_BINDINGS)]

    async def machines(self) -> Sequence[facts.Machine] | None:
        """None: there is no such kind."""
        there = await machines.if_served(self.client)
        if not there.groups:
            return None
        nodes = {
            jsonpath.text(each, "metadata", "name") for each in await self.client.list(resources.NODES, metadata=True)
        }
        return [facts.Machine(each.title, listing.state(each, nodes)) for each in there.index]

    async def pools(self) -> Sequence[objects.Document] | None:
        """None: there is no such kind."""
        return (
            await self.client.list(machine_rollout.POOLS) if await self.client.serves(machine_rollout.POOLS) else None
        )

    async def bootstrap(self) -> Sequence[objects.Document]:
        """The ConfigMaps that hold CAs of bootstrap credentials."""
        stored = [
            await self.client.find(resources.CONFIG_MAPS, name, namespace=namespace)
            for namespace, name in bootstrapper.CONFIG_MAPS
        ]
        return [each for each in stored if each is not None]

    async def mesh(self) -> Sequence[check.Check] | None:
        """None: no mesh is installed."""
        config = await self.client.find(
            resources.CONFIG_MAPS, control_plane.CONFIG, namespace=self.mesh_namespace, metadata=True
        )
        if config is None:
            return None
        return await mesh_check.look(self.client, self.used.server, self.mesh_namespace, self.clock)
