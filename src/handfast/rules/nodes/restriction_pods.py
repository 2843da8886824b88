# SPDX-License-Identifier: Apache-2.0
"""What a node may do to Pods: create mirror Pods, report on its own, delete and evict its own. It may not bind any.

The authorizer decides what nodes may read.

1. Creating: only mirror Pods that are bound to the node itself. Their one owner is the node's own Node, under its present
   UID, as a controller that blocks nothing. The spec names no other API object, because the authorizer lets a node read
   whatever its Pods name.
2. Deleting and evicting: only Pods bound to the node.
3. Status: only of Pods bound to the node, without a change of labels (they select Services' backends) or of what the
   Pod holds of resource claims (that is the scheduler's word).
4. Anything else: no.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.rules import decision
from handfast.rules.nodes import pod_references, references, restricted_write

Refusal = decision.Deny | None

_ITSELF = "with spec.nodeName set to itself"
# The parts of a Pod's status that are not the node's to write, and what Kubernetes calls them.
_CLAIM_STATUSES = (
    ("resourceClaimStatuses", "resource claim statues"),
    ("extendedResourceClaimStatus", "extended resource claim status"),
    ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
)


def judge(node: str, write: restricted_write.Write, known: restricted_write.Known) -> Refusal:
    """Why a node may not do this to a Pod, if it may not (1 to 4)."""
    # 4. no other subresource
    row = _SUBRESOURCES.get(write.subresource)
    if row is None:
        subresource = restricted_write.quoted(write.subresource)
        return restricted_write.refuse(
            "UnexpectedSubresource",
            f"unexpected pod subresource {subresource}, only 'status' and 'eviction' are allowed",
        )
    return row(node, write, known)


def _pod(node: str, write: restricted_write.Write, known: restricted_write.Known) -> Refusal:
    if write.operation == restricted_write.CREATE:
        return _create(node, write.document or {}, known.find)
    if write.operation == restricted_write.DELETE:
        return _bound(node, write.name, write, known.find, f"node {restricted_write.quoted(node)} can only delete pods")
    # 4. nothing else
    operation = restricted_write.quoted(write.operation)
    return restricted_write.refuse(
        "UnexpectedOperation",
        f"unexpected operation {operation}, node {restricted_write.quoted(node)} can only create and delete mirror pods",
    )


def _create(node: str, pod: objects.Document, find: restricted_write.Find) -> Refusal:
    # 1. only mirror Pods of its own
    me = restricted_write.quoted(node)
    if not pod_references.is_mirror(pod):
        return restricted_write.refuse(
            "NotMirrorPod",
            f"pod does not have {restricted_write.quoted(references.MIRROR)} annotation, "
            f"node {me} can only create mirror pods",
        )
    if jsonpath.text(pod, "spec", "nodeName") != node:
        return restricted_write.refuse("OtherNode", f"node {me} can only create pods {_ITSELF}")
    refusal = _owned(node, jsonpath.sequence(pod, "metadata", "ownerReferences"), find)
    return refusal if refusal is not None else _alone(node, jsonpath.mapping(pod, "spec"))


def _owned(node: str, owners: list[Any], find: restricted_write.Find) -> Refusal:
    # 1. with the node's own Node as the one owner
    me = restricted_write.quoted(node)
    owner = owners[0] if owners else {}
    for wrong, sentence in (
        (len(owners) > 1, f"node {me} can only create pods with a single owner reference set to itself"),
        (
            (jsonpath.text(owner, "apiVersion"), jsonpath.text(owner, "kind"), jsonpath.text(owner, "name"))
            != ("v1", "Node", node),
            f"node {me} can only create pods with an owner reference set to itself",
        ),
        (
            jsonpath.at(owner, "controller") is not True,
            f"node {me} can only create pods with a controller owner reference set to itself",
        ),
        (
            bool(jsonpath.at(owner, "blockOwnerDeletion")),
            f"node {me} must not set blockOwnerDeletion on an owner reference",
        ),
    ):
        if wrong:
            return restricted_write.refuse("OwnerReference", sentence)
    own = find("core/nodes/", "", node)
    if own is None:
        return restricted_write.missing("node", node)
    claimed, actual = jsonpath.text(owner, "uid"), jsonpath.text(own, "metadata", "uid")
    if claimed != actual:
        return restricted_write.refuse("OwnerUid", f"node {node} UID mismatch: expected {claimed} got {actual}")
    return None


def _alone(node: str, spec: Mapping[str, Any]) -> Refusal:
    # 1. which name no other object
    try:
        named = pod_references.api_object(spec)
    except errors.Refused as refused:
        return restricted_write.refuse(
            refused.reason, f"error checking mirror pod for API references: {refused.message}"
        )
    if named is None:
        return None
    return restricted_write.refuse(
        "ReferencesApiObject", f"node {restricted_write.quoted(node)} can not create pods that reference {named}"
    )


def _bound(node: str, name: str, write: restricted_write.Write, find: restricted_write.Find, only: str) -> Refusal:
    # 2. only Pods bound to the node
    pod = write.old or find("core/pods/", write.namespace, name)
    if pod is None:
        return restricted_write.missing("pod", name)
    if jsonpath.text(pod, "spec", "nodeName") != node:
        return restricted_write.refuse("OtherNode", f"{only} {_ITSELF}")
    return None


def _status(node: str, write: restricted_write.Write, _known: restricted_write.Known) -> Refusal:
    # 4. nothing else
    if write.operation != restricted_write.UPDATE:
        return restricted_write.refuse(
            "UnexpectedOperation", f"unexpected operation {restricted_write.quoted(write.operation)}"
        )
    # 3. only the status of its own, without labels and claims
    me = restricted_write.quoted(node)
    old, new = write.old or {}, write.document or {}
    if jsonpath.text(old, "spec", "nodeName") != node:
        return restricted_write.refuse("OtherNode", f"node {me} can only update pod status for pods {_ITSELF}")
    if jsonpath.mapping(old, "metadata", "labels") != jsonpath.mapping(new, "metadata", "labels"):
        return restricted_write.refuse("PodLabels", f"node {me} cannot update labels through pod status")
    for field, called in _CLAIM_STATUSES:
        if (jsonpath.at(old, "status", field) or None) != (jsonpath.at(new, "status", field) or None):
            return restricted_write.refuse("ResourceClaims", f"node {me} cannot update {called}")
    return None


def _eviction(node: str, write: restricted_write.Write, known: restricted_write.Known) -> Refusal:
    # 4. nothing else
    if write.operation != restricted_write.CREATE:
        return restricted_write.refuse("UnexpectedOperation", f"unexpected operation {write.operation}")
    # 2. only Pods bound to the node; the URL says which, and the document only where the URL does not
    name = write.name or jsonpath.text(write.document, "metadata", "name")
    if not name:
        return restricted_write.refuse("NoPodNamed", "could not determine pod from request data")
    return _bound(node, name, write, known.find, f"node {node} can only evict pods")


_SUBRESOURCES: Mapping[str, Callable[[str, restricted_write.Write, restricted_write.Known], Refusal]] = {
    "": _pod,
    "status": _status,
    "eviction": _eviction,
}
