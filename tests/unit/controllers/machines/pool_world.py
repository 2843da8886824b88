# SPDX-License-Identifier: Apache-2.0
"""A server that is a dictionary, with pools, MachineConfigs and Nodes on it; watches tell what a test lets them tell."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from handfast.client import cache
from handfast.controllers import loop, views
from handfast.controllers.machines import pool_views
from handfast.rules.machine_config import names
from handfast.rules.machines import bootstrapper
from handfast.rules.tokens import service_accounts
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock


class Client(FakeClient):
    """… whose merge patches merge."""

    async def patch(self, resource: Any, name: str, patch: Any, *, namespace: str = "", **_: Any) -> dict[str, Any]:
        merged = dict(patch["metadata"])
        found = self._find("patch", resource, name, namespace)
        if "annotations" in merged:
            merged["annotations"] = {**(found["metadata"].get("annotations") or {}), **merged["annotations"]}
        answer = await super().patch(resource, name, {"metadata": merged}, namespace=namespace)
        for part in ("spec", "status"):
            if part in patch:
                found.setdefault(part, {}).update(patch[part])
        return answer


class World:
    """One process, in which a controller may be built."""

    def __init__(self) -> None:
        self.client = Client()
        self.clock = MovableClock()
        self.informers = cache.Informers(self.client, self.clock)
        self.context = loop.Context(client=self.client, informers=self.informers, clock=self.clock)
        self.pools = self.informers.get(pool_views.ALL_POOLS)
        self.nodes = self.informers.get(views.ALL_NODES)
        self.configs = self.informers.get(pool_views.ALL_CONFIGS)

    def tell(self, plural: str, name: str) -> None:
        """The watch tells of an object."""
        document = self.client.objects[plural, "", name]
        if plural == "nodes":
            self.nodes.put(msgspec.convert(document, views.Node))
        elif plural == "machineconfigpools":
            self.pools.put(msgspec.convert(document, pool_views.Pool))
        else:
            self.configs.put(msgspec.convert(document, pool_views.Config))

    def pool(self, name: str = "worker", target: str = "v1", told: bool = True, **spec: Any) -> None:
        labels = {"matchLabels": {f"role/{name}": ""}}
        body = {"nodeSelector": labels, "machineConfigSelector": labels, **spec}
        if target:
            body["configuration"] = {"name": target}
        self.client.put("machineconfigpools", name, spec=body)
        if told:
            self.tell("machineconfigpools", name)

    def node(self, name: str, current: str = "v0", desired: str = "v0", role: str = "worker", **more: str) -> None:
        annotations = {
            names.AGENT: "v1",
            names.CURRENT: current,
            names.DESIRED: desired,
            names.STATE: names.DONE if current == desired else names.WORKING,
            **more,
        }
        self.client.put("nodes", name, metadata={"labels": {f"role/{role}": ""}, "annotations": annotations})
        self.tell("nodes", name)

    def rendering(self, name: str, configuration: str = "", owner: str = "worker", told: bool = True) -> None:
        annotations = {names.CREDENTIAL: f"service-account {name}", names.CONFIGURATION: configuration or name}
        meta = {
            "annotations": annotations,
            "ownerReferences": [{"uid": f"uid-{owner}", "kind": "MachineConfigPool", "name": owner}],
        }
        self.client.put("machineconfigs", name, metadata=meta)
        if told:
            self.tell("machineconfigs", name)

    def token(self, text: str = "a.worker.token") -> None:
        meta = {"annotations": {service_accounts.ACCOUNT_NAME: bootstrapper.ACCOUNT}}
        data = {"token": base64.b64encode(text.encode()).decode()}
        self.client.put(
            "secrets",
            bootstrapper.TOKEN_SECRET,
            bootstrapper.NAMESPACE,
            metadata=meta,
            type=service_accounts.LEGACY_TYPE,
            data=data,
        )

    def desired(self, name: str) -> str:
        return str(self.client.objects["nodes", "", name]["metadata"]["annotations"].get(names.DESIRED, ""))

    def status(self, name: str = "worker") -> dict[str, Any]:
        found: dict[str, Any] = self.client.objects["machineconfigpools", "", name].get("status", {})
        return found

    def condition(self, kind: str, name: str = "worker") -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.status(name).get("conditions", [])
        return next(row for row in rows if row["type"] == kind)

    def written(self, plural: str) -> list[str]:
        return [name for _, of, name in self.client.calls if of == plural]

    def told_of(self) -> list[str]:
        return sorted(
            document["reason"] for (plural, _, _), document in self.client.objects.items() if plural == "events"
        )
