# SPDX-License-Identifier: Apache-2.0
"""An API without a server that says who is asking and what they may do; nothing here is under test."""

from __future__ import annotations

import json
from typing import Any, cast

from handfast.api import status
from tests.unit.cli import reaching
from tests.unit.controllers.fake_api import FakeClient


class _Transport:
    """Of which only the version of the server is asked for."""

    def __init__(self, version: str) -> None:
        self.version = version

    async def request(self, method: str, path: str) -> bytes:
        assert (method, path) == ("GET", "/version")
        return json.dumps({"gitVersion": self.version}).encode()


class MeshApi(reaching.Reached, FakeClient):
    """`forbidden` are (verb, plural) pairs; `user` is empty where the server has no such review."""

    def __init__(self, user: str = "jane", *, own_kinds: bool = True, version: str = "v1.36.3+handfast-0.1.0") -> None:
        super().__init__()
        self.transport = cast("Any", _Transport(version))
        self.user = user
        self.own_kinds = own_kinds
        self.forbidden: set[tuple[str, str]] = set()
        self.reviewed: list[dict[str, Any]] = []

    @property
    def client(self) -> MeshApi:
        return self

    async def serves(self, resource: Any) -> bool:
        return self.own_kinds

    async def create(self, resource: Any, document: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        if resource.plural == "selfsubjectreviews":
            if not self.user:
                raise status.not_found(resource.plural, resource.group, "")
            return {"status": {"userInfo": {"username": self.user}}}
        if resource.plural == "selfsubjectaccessreviews":
            attributes = document["spec"]["resourceAttributes"]
            self.reviewed.append(attributes)
            return {"status": {"allowed": (attributes["verb"], attributes["resource"]) not in self.forbidden}}
        return await super().create(resource, document, namespace=namespace, **more)
