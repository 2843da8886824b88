# SPDX-License-Identifier: Apache-2.0
"""The small cluster that the tables of NodeRestriction are about: one node, another one, and Pods. Nothing is tested here."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from handfast.api import objects
from handfast.rules import access, decision
from handfast.rules.nodes import restricted_write, restriction

MIRROR = "kubernetes.io/config.mirror"
CREATE, UPDATE, DELETE = restricted_write.CREATE, restricted_write.UPDATE, restricted_write.DELETE
PODS, NODES = ("", "pods"), ("", "nodes")

Objects = dict[tuple[str, str, str], objects.Document]


def owner(node: str = "mynode", **changes: Any) -> objects.Document:
    found = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": f"{node}-uid", "controller": True, **changes}
    return {key: value for key, value in found.items() if value is not None}


def pod(name: str, node: str, *, mirror: bool = False, status: Any = None, **spec: Any) -> objects.Document:
    metadata: objects.Document = {"namespace": "ns", "name": name, "uid": "pod-uid"}
    if mirror:
        metadata["annotations"] = {MIRROR: "true"}
        metadata["ownerReferences"] = [owner(node)]
    found: objects.Document = {"metadata": metadata, "spec": {**({"nodeName": node} if node else {}), **spec}}
    return found if status is None else {**found, "status": status}


def labelled(document: objects.Document, labels: Mapping[str, str] | None) -> objects.Document:
    found = copy.deepcopy(document)
    found["metadata"]["labels"] = None if labels is None else dict(labels)
    return found


EXISTING: tuple[objects.Document, ...] = tuple(
    pod(f"{whose}{what}pod", node, mirror=what == "mirror")
    for whose, node in (("my", "mynode"), ("other", "othernode"), ("unbound", ""))
    for what in ("mirror", "")
)


def cluster(*pods: objects.Document, more: Objects | None = None) -> Objects:
    """The Node `mynode`, the Pods of every kind, and what is given."""
    found: Objects = {("core/nodes/", "", "mynode"): {"metadata": {"name": "mynode", "uid": "mynode-uid"}}}
    for document in (*EXISTING, *pods):
        found["core/pods/", "ns", document["metadata"]["name"]] = document
    return {**found, **(more or {})}


def write(operation: str, resource: tuple[str, str], **facts: Any) -> restricted_write.Write:
    given = {"user": "system:node:mynode", "groups": ("system:nodes", "system:authenticated"), **facts}
    return restricted_write.Write(operation=operation, resource=resource, **given)


def never(attributes: access.Attributes) -> decision.Decision:
    raise AssertionError(f"the authorizer was asked: {attributes}")


def decide(write: restricted_write.Write, found: Objects | None = None, ask: access.Ask = never) -> decision.Decision:
    existing = cluster() if found is None else found
    return restriction.decide(write, restricted_write.Known(lambda *place: existing.get(place), ask))


def said(verdict: decision.Decision) -> str:
    """The sentence of a refusal; empty for anything else."""
    return verdict.sentence if isinstance(verdict, decision.Deny) else ""
