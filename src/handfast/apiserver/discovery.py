# SPDX-License-Identifier: Apache-2.0
"""What this server has: /api, /apis (legacy and aggregated), each group-version's resources, /version.

All of it is derived from the table of kinds and encoded once per state of the table. It lists what is served, not what
the caller may use.
"""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Mapping
from typing import Any

import msgspec

from handfast.api import kinds, status
from handfast.api.custom import definitions
from handfast.apiserver import negotiate

_encode = msgspec.json.Encoder().encode
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# The Kubernetes release whose API the schema describes; clients compare it.
KUBERNETES_VERSION = "v1.37.0"


def version_document(handfast_version: str) -> dict[str, str]:
    """/version: the Kubernetes API level, with our own version as build metadata."""
    major, minor, _ = KUBERNETES_VERSION[1:].split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{KUBERNETES_VERSION}+handfast-{handfast_version}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


class Discovery:
    """Answers about the table of kinds; call `refresh` after the table changed."""

    def __init__(self, table: kinds.Table) -> None:
        self._table = table
        self._cache: dict[str, tuple[bytes, str]] = {}

    def refresh(self) -> None:
        """Forget what was encoded."""
        self._cache.clear()

    def answer(self, path: str, accept: str) -> tuple[bytes, str, str]:
        """Body, content type and ETag for a discovery path; NotFound for any other."""
        aggregated = path in {"/api", "/apis"} and negotiate.shape(accept).kind == negotiate.DISCOVERY
        key = path + ("?aggregated" if aggregated else "")
        known = self._cache.get(key)
        if known is None:
            document = self._aggregated(path) if aggregated else self._legacy(path)
            body = _encode(document) + b"\n"
            known = self._cache[key] = (body, '"' + hashlib.sha256(body).hexdigest()[:32].upper() + '"')
        return known[0], AGGREGATED if aggregated else "application/json", known[1]

    def _group_versions(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((row.group, row.version) for row in self._table))

    def _groups(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for group, version in self._group_versions():
            if group:
                groups.setdefault(group, []).append(version)
        return {group: sorted(versions, key=definitions.version_order) for group, versions in groups.items()}

    def _legacy(self, path: str) -> dict[str, Any]:
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        if path == "/apis":
            groups = [_group(name, versions) for name, versions in self._groups().items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) == 2:
            return self._resources("", parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            return self._resources(parts[1], parts[2])
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in self._groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], self._groups()[parts[1]])}
        raise status.no_such_path()

    def _resources(self, group: str, version: str) -> dict[str, Any]:
        rows = [row for row in self._table if row.group == group and row.version == version]
        if not rows:
            raise status.no_such_path()
        resources = []
        for row in rows:
            resources.append(_api_resource(row))
            resources.extend(_api_subresource(row, sub) for sub in row.subresources)
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": resources,
        }

    def _aggregated(self, path: str) -> dict[str, Any]:
        groups = {"": ["v1"]} if path == "/api" else self._groups()
        # Each row is looked at once, however many groups there are: 500 take 4 ms so, and 17 otherwise.
        resources: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._table:
            if row.group in groups:
                resources.setdefault((row.group, row.version), []).append(_discovered_resource(row))
        items = [_discovered(name, versions, resources) for name, versions in groups.items()]
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _discovered(
    group: str, versions: list[str], resources: Mapping[tuple[str, str], list[dict[str, Any]]]
) -> dict[str, Any]:
    return {
        "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
        "versions": [
            {"version": version, "freshness": "Current", "resources": resources.get((group, version), [])}
            for version in versions
        ],
    }


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _api_resource(row: kinds.Kind) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        resource["shortNames"] = list(row.short_names)
    if row.categories:
        resource["categories"] = list(row.categories)
    if "get" in row.verbs:
        resource["storageVersionHash"] = _storage_version_hash(row)
    return resource


def _storage_version_hash(row: kinds.Kind) -> str:
    """What tells clients that objects are stored in another version than before, as Kubernetes makes it."""
    group, _, version = row.storage_api_version.rpartition("/")
    return base64.b64encode(hashlib.sha256(f"{group}/{version}/{row.kind}".encode()).digest()[:8]).decode()


def _api_subresource(row: kinds.Kind, sub: kinds.Subresource) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "name": f"{row.plural}/{sub.name}",
        "singularName": "",
        "namespaced": row.namespaced,
        "kind": sub.kind,
        "verbs": list(sub.verbs),
    }
    if sub.version:
        resource["group"], resource["version"] = sub.group, sub.version
    return resource


def _discovered_resource(row: kinds.Kind) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "resource": row.plural,
        "responseKind": {"group": row.group, "version": row.version, "kind": row.kind},
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        resource["shortNames"] = list(row.short_names)
    if row.categories:
        resource["categories"] = list(row.categories)
    if row.subresources:
        resource["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {
                    "group": sub.group if sub.version else row.group,
                    "version": sub.version or row.version,
                    "kind": sub.kind,
                },
                "verbs": list(sub.verbs),
            }
            for sub in row.subresources
        ]
    return resource
