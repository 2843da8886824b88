# SPDX-License-Identifier: Apache-2.0
"""A client whose server is a dictionary: the verbs with their preconditions, and a place to make it fail."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec

from handfast import errors
from handfast.api import status
from handfast.client import api

T = TypeVar("T")


def failing(error: Exception, *, verb: str = "", plural: str = "") -> Callable[[str, str, str], None]:
    """For `FakeClient.before`: every call fails with this, or those of one verb or one resource."""

    def fail(called: str, of: str, _name: str) -> None:
        if verb in {"", called} and plural in {"", of}:
            raise error

    return fail


class FakeClient(api.Client):
    """Objects by resource, namespace and name. `calls` tells every write; `before(verb, plural, name)` may raise."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.calls: list[tuple[str, str, str]] = []
        # Which API groups of Machines there are.
        self.groups = {"machine.openshift.io"}
        self.before: Callable[[str, str, str], None] = lambda *_: None
        self._version = 0

    def put(self, plural: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
        """Have an object there."""
        self._version += 1
        meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version), **more.pop("metadata", {})}
        document = {"metadata": {**({"namespace": namespace} if namespace else {}), **meta}, **more}
        self.objects[plural, namespace, name] = document
        return copy.deepcopy(document)

    def _find(self, verb: str, resource: api.Addressable, name: str, namespace: str) -> dict[str, Any]:
        self.before(verb, resource.plural, name)
        found = self.objects.get((resource.plural, namespace if resource.namespaced else "", name))
        if found is None:
            raise status.not_found(resource.plural, resource.group, name)
        return found

    def _wrote(self, verb: str, resource: api.Addressable, name: str, document: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self.calls.append((verb, resource.plural, name))
        return copy.deepcopy(document)

    async def get(self, resource: Any, name: str, *, namespace: str = "", **_: Any) -> dict[str, Any]:
        return copy.deepcopy(self._find("get", resource, name, namespace))

    async def view(self, resource: Any, name: str, decoder: Any, *, namespace: str = "", **_: Any) -> Any:
        found = self._find("get", resource, name, namespace)
        try:
            return decoder.decode(msgspec.json.encode(found))
        except msgspec.DecodeError as error:
            raise errors.Unavailable(f"{name} cannot be decoded: {error}", reason="BadAnswer") from error

    async def pages(self, resource: Any, scope: api.Scope, decoder: Any, **_: Any) -> AsyncIterator[Any]:
        self.before("list", resource.plural, "")
        items = [
            document
            for (plural, namespace, _name), document in self.objects.items()
            if plural == resource.plural and scope.namespace in {"", namespace}
        ]
        yield decoder.decode(msgspec.json.encode({"metadata": {}, "items": items}))

    async def preferred(self, resource: Any, versions: Any) -> Any:
        """The first version of the groups in `groups`."""
        if resource.group not in self.groups:
            return None
        return api.Resource(resource.group, versions[0], resource.plural, resource.namespaced)

    async def create(self, resource: Any, document: Any, *, namespace: str = "", **_: Any) -> dict[str, Any]:
        document = copy.deepcopy(document)
        name = document["metadata"]["name"]
        self.before("create", resource.plural, name)
        if (resource.plural, namespace, name) in self.objects:
            raise status.already_exists(resource.plural, resource.group, name)
        document["metadata"].setdefault("uid", f"uid-{name}")
        self.objects[resource.plural, namespace, name] = document
        return self._wrote("create", resource, name, document)

    async def update(self, resource: Any, document: Any, *, subresource: str = "") -> dict[str, Any]:
        meta = document["metadata"]
        namespace = meta.get("namespace", "")
        found = self._find("update", resource, meta["name"], namespace)
        if meta.get("resourceVersion") not in {None, found["metadata"]["resourceVersion"]}:
            raise status.conflict(resource.plural, resource.group, meta["name"])
        document = copy.deepcopy(document)
        self.objects[resource.plural, namespace if resource.namespaced else "", meta["name"]] = document
        return self._wrote(f"update {subresource}".strip(), resource, meta["name"], document)

    async def replace(self, resource: Any, name: str, item: Any, decoder: Any, **more: Any) -> Any:
        document = msgspec.to_builtins(item)
        assert document["metadata"]["name"] == name
        return decoder.decode(msgspec.json.encode(await self.update(resource, document, **more)))

    async def patch(self, resource: Any, name: str, patch: Any, *, namespace: str = "", **_: Any) -> dict[str, Any]:
        found = self._find("patch", resource, name, namespace)
        wanted = patch["metadata"].get("resourceVersion")
        if wanted not in {None, found["metadata"]["resourceVersion"]}:
            raise status.conflict(resource.plural, resource.group, name)
        for key, value in patch["metadata"].items():
            found["metadata"][key] = value
        return self._wrote("patch", resource, name, found)

    async def delete(self, resource: Any, name: str, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        meta = self._find("delete", resource, name, namespace)["metadata"]
        if more.get("uid") not in {None, meta["uid"]} or more.get("resource_version") not in {
            None,
            meta["resourceVersion"],
        }:
            raise status.conflict(resource.plural, resource.group, name)
        verb = f"delete {more.get('propagation', '')}".strip()
        self.calls.append((verb, resource.plural, name))
        return self.objects.pop((resource.plural, namespace if resource.namespaced else "", name))

    async def delete_collection(self, resource: Any, scope: api.Scope, **_: Any) -> dict[str, Any]:
        self.before("deletecollection", resource.plural, "")
        self.calls.append(("deletecollection", resource.plural, scope.namespace))
        for key, document in list(self.objects.items()):
            if key[:2] == (resource.plural, scope.namespace) and not document["metadata"].get("finalizers"):
                del self.objects[key]
        return {}
