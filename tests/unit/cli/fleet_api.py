# SPDX-License-Identifier: Apache-2.0
"""An API with Machines behind whatever kubeconfig a command chooses: merge patches count, and kinds may be absent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handfast.api import status
from handfast.api.merging import patch as merging
from handfast.client import api
from tests.unit.cli import reaching
from tests.unit.controllers.fake_api import FakeClient


class FleetApi(reaching.Reached, FakeClient):
    """`defined`: the server has the kind of machine.openshift.io."""

    def __init__(self) -> None:
        super().__init__()
        self.defined = True

    @property
    def client(self) -> FleetApi:
        return self

    def machine(self, name: str) -> dict[str, Any]:
        return self.objects["machines", "openshift-machine-api", name]

    async def preferred(self, resource: api.Addressable, versions: Sequence[str]) -> api.Addressable | None:
        there = self.defined and resource.group == "machine.openshift.io"
        return api.Resource(resource.group, versions[0], resource.plural, True) if there else None

    async def list(self, resource: Any, scope: api.Scope = api.EVERYTHING, **_: Any) -> Sequence[dict[str, Any]]:
        self.before("list", resource.plural, "")
        if resource.plural == "machines" and not self.defined:
            raise status.not_found(resource.plural, resource.group, "")
        return [document for (plural, _, _), document in self.objects.items() if plural == resource.plural]

    async def create(self, resource: Any, document: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        document = {**document, "metadata": {**document["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z"}}
        return await super().create(resource, document, namespace=namespace, **more)

    async def patch(self, resource: Any, name: str, patch: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        found = self._find("patch", resource, name, namespace)
        if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise status.conflict(resource.plural, resource.group, name)
        if more.get("subresource") == "status":
            patch = {"status": patch["status"]}
        found.update(merging.merge(found, patch))
        return self._wrote(f"patch {more.get('subresource', '')}".strip(), resource, name, found)
