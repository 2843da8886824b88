# SPDX-License-Identifier: Apache-2.0
"""A server that is a dictionary, and a machine-approver that follows what its watches tell of it."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterable
from typing import Any

import msgspec

from handfast.api import objects, signer_names, signing_requests
from handfast.client import api, cache, events, machine_inventory, partial, revoked
from handfast.controllers import node_leases, views
from handfast.controllers.certificates import living_nodes
from handfast.controllers.certificates import verdicts as verdicts_module
from handfast.controllers.machines import approver, client_requests, flood_guard, rivals, standing
from handfast.controllers.machines import settings as machine_settings
from handfast.pki import keys, names, requests
from handfast.rules.machines import approval, bootstrapper, inventory, pressure, settings
from handfast.rules.machines import standing as standing_rules
from handfast.rules.tokens import service_accounts
from tests.unit.controllers.csr_world import PLURAL
from tests.unit.controllers.csr_world import World as Base

GROUPS = (*bootstrapper.GROUPS, "system:authenticated")
MACHINES = api.Resource("machine.openshift.io", "v1beta1", "machines", True)
CONFIG = ("configmaps", settings.NAMESPACE, settings.NAME)


class Known(machine_inventory.Inventory):
    """An inventory that a test fills in."""

    refused: tuple[str, ...] = ()

    @property
    def refusals(self) -> tuple[str, ...]:
        return self.refused

    def resource(self, machine: inventory.Machine) -> api.Addressable:
        return MACHINES


class World(Base):
    """The approver, and what it follows."""

    def __init__(self, *, answered: bool = True) -> None:
        super().__init__()
        recorder = events.Recorder(self.client, self.clock, approver.NAME)
        self.known = Known(self.client)
        self.nodes = cache.Informer(client_requests.NODES)
        self.leases, self.revoked = cache.Informer(node_leases.SOURCE), cache.Informer(revoked.SOURCE)
        self.config = cache.Informer(machine_settings.SOURCE)
        self.settings = machine_settings.Followed(self.config)
        self.living = living_nodes.LivingNodes(self.client, self.clock, node_leases.NodeLeases(self.leases, self.clock))
        for each in (self.nodes, self.leases, self.revoked, *((self.config,) if answered else ())):
            each.end()
        verdicts = verdicts_module.Verdicts(
            self.client, self.clock, self.requests, recorder, approver.DECISIONS, revoked.Revoked(self.revoked)
        )
        self.places = {place: cache.Informer(standing.source(place)) for place in standing_rules.PLACES}
        self.credentials = standing.Standing(self.places)
        for place, informer in self.places.items():
            informer.end()
            self.credential(place)
        self.others = rivals.Rivals(self.requests, self.clock)
        self.judge = client_requests.ClientRequests(
            self.client, self.known, self.nodes, self.living, self.others, self.credentials
        )
        self.guard = flood_guard.Guard(self.clock, lambda: pressure.limit(len(self.known.index), len(self.nodes)))
        # The keys that are to be looked at again.
        self.looked: list[str] = []
        self.handler = approver.MachineApprover(
            self.requests,
            self.settings,
            verdicts,
            recorder,
            {signer_names.KUBELET_CLIENT: self.judge},
            self.guard,
            self.looked.append,
        )
        self.others.subscribe(lambda node: self.handler.of_node(node, approval.REQUEST))
        self.credentials.subscribe(lambda: self.handler.of_all(approval.CREDENTIAL))
        self.keeper = machine_settings.Keeper(self.client, self.settings, recorder)

    def credential(self, place: standing_rules.Place, *, after: float = -86_400, **meta: Any) -> None:
        """Have the watch tell that an object is there which makes a credential count, so many seconds after the beginning."""
        created = objects.timestamp(self.clock.now() + datetime.timedelta(seconds=after))
        about = {
            "name": place[2],
            "namespace": place[1],
            "resourceVersion": created,
            "creationTimestamp": created,
            "annotations": {service_accounts.ACCOUNT_NAME: bootstrapper.ACCOUNT},
            **meta,
        }
        self.places[place].put(msgspec.convert({"metadata": about}, standing.View))

    def ask(
        self,
        name: str = "x",
        *,
        node: str = "w1",
        key: keys.PrivateKey | None = None,
        groups: Iterable[str] = GROUPS,
        after: float = 0,
        **spec: Any,
    ) -> signing_requests.Request:
        """A machine asks; so many seconds after the beginning."""
        created = objects.timestamp(self.clock.now() + datetime.timedelta(seconds=after))
        if key is not None:
            subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
            spec["request"] = base64.b64encode(requests.build(subject, names.Sans(), key)).decode()
        return self.add(
            name,
            common_name=f"system:node:{node}",
            metadata={"creationTimestamp": created},
            **{"username": bootstrapper.USER, "groups": list(groups), **spec},
        )

    def machine(self, name: str = "w1", *dns: str, **status: Any) -> inventory.Machine:
        """A Machine on the server, and the watch tells of it."""
        rows = [{"type": "InternalDNS", "address": text} for text in dns or (name,)]
        meta = {"creationTimestamp": objects.timestamp(self.clock.now())}
        document = self.client.put("machines", name, "fleet", metadata=meta, status={"addresses": rows, **status})
        return self.watched(document)

    def watched(self, document: dict[str, Any]) -> inventory.Machine:
        machine = inventory.read({**document, "apiVersion": "machine.openshift.io/v1beta1"})
        self.known.index.put(machine)
        return machine

    def stored_machine(self, name: str = "w1") -> dict[str, Any]:
        return self.client.objects["machines", "fleet", name]

    def node(self, name: str, *, watched: bool = True) -> None:
        document = self.client.put("nodes", name)
        if watched:
            self.nodes.put(msgspec.convert(document, partial.Partial))

    def renew(self, node: str) -> None:
        """Have a node's Lease renewed, and the watch tell of it."""
        spec = {"renewTime": objects.micro_timestamp(self.clock.now()), "leaseDurationSeconds": 40}
        document = self.client.put("leases", node, "kube-node-lease", spec=spec)
        self.leases.put(msgspec.convert(document, node_leases.Lease))

    def configure(self, text: str) -> None:
        document = self.client.put(*CONFIG[::2], CONFIG[1], data={settings.KEY: text})
        self.config.put(msgspec.convert(document, views.ConfigMap))

    def revoke(self, name: str, **spec: Any) -> None:
        self.revoked.put(msgspec.convert({"metadata": {"name": name}, "spec": spec}, revoked.Revocation))

    def updates(self) -> list[tuple[str, str, str]]:
        return [call for call in self.client.calls if call[1] in {PLURAL, "machines"}]

    def said_of(self, kind: str) -> list[tuple[str, str]]:
        """The Events about objects of a kind."""
        rows = [document for (plural, _, _), document in self.client.objects.items() if plural == "events"]
        return [(row["reason"], row["message"]) for row in rows if row["involvedObject"]["kind"] == kind]
