# SPDX-License-Identifier: Apache-2.0
"""What a node may write, after the authorizer has let it write at all: its own Node, Lease, CSINode, Pods, certificates.

The authorizer decides what nodes may read, and which resources they may touch. Users who are not nodes are not judged
here.

1. A caller in the group `system:nodes` is called `system:node:<name>`, or may write nothing: it would else be a node
   that nothing below restricts. (Kubernetes restricts only those who have the name too.)
2. Pods: see `nodes.restriction_pods`. ServiceAccounts' tokens: see `nodes.restriction_tokens`.
3. Nodes: only the node's own, and never a deletion (it would come back without its taints and labels); no new
   configSource; on update no change of taints or owners; on create no finalizers and on update no change of them, since
   they would keep the Node from being deleted (Kubernetes lets nodes set them); only such labels as `_KUBELET_LABELS`
   and `_KUBELET_DOMAINS` say, and no others under kubernetes.io and k8s.io, in particular none under
   node-restriction.kubernetes.io.
4. PersistentVolumeClaims: only their status, and of that only what growing a file system changes.
5. Leases: only in kube-node-lease, only that of the node's own name. CSINodes: only that of the node's own name.
6. CertificateSigningRequests to the two kubelet signers: the common name is the node's own user name.

| who | holding | tries | stopped by | shown in tests/unit/rules/nodes/test_restriction*.py |
|---|---|---|---|---|
| a node, taken over | its certificate | a certificate for another node | 6 | test_certificate_requests |
| … | … | the same, in a request only others can parse | 6 refuses it | test_unreadable_requests |
| … | … | look alive, or dead, for another node | 3, 5 | test_leases_and_csi_nodes |
| … | … | attract Pods: change its labels | 3 | test_a_node_sets_only_the_labels_that_kubelets_set |
| … | … | attract Pods: drop its taints | 3 | test_a_node_writes_only_its_own_node_and_not_all_of_it |
| … | … | the same by deleting its Node and registering anew | 3 | test_a_node_writes_only_its_own_node_and_not_all_of_it |
| … | … | keep its Node from being deleted: finalizers | 3 | test_a_node_writes_only_its_own_node_and_not_all_of_it |
| … | … | read a Secret by creating a Pod that names it | 2 | test_mirror_pods_stand_alone |
| … | … | have a Pod collected with, or keep, another's Node | 2 | test_a_mirror_pod_is_owned_by_its_own_node_alone |
| … | … | stop or evict Pods of another node | 2 | test_a_node_touches_only_mirror_pods_and_pods_bound_to_it |
| … | … | become a Service's backend by labelling a Pod | 2 | test_pod_status |
| … | … | a token of a Pod elsewhere, or of one gone | 2 | test_a_token_is_bound_to_a_pod_of_the_node |
| … | … | a token for an audience the Pod has no use for | 2 | test_an_audience_is_one_that_the_volumes_of_the_pod_ask_for |
| … | … | move a claim to another volume | 4 | test_of_a_claim_a_node_changes_only_what_growing_changes |
| a holder of O=system:nodes | a certificate without a node's name | write unrestricted | 1 | test_who_is_a_node |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handfast import errors
from handfast.api import jsonpath, objects, signer_names
from handfast.rules import decision, user_names
from handfast.rules.certificates import admission
from handfast.rules.nodes import restricted_write, restriction_pods, restriction_tokens

LEASES = "kube-node-lease"

_RESTRICTED = "node-restriction.kubernetes.io"
_KUBERNETES = ("kubernetes.io", "k8s.io")
_KUBELET_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBELET_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
# What of its Node a node does not change, and the reason of the refusal.
_NODE_FIXED = (
    (("spec", "taints"), "Taints"),
    (("metadata", "ownerReferences"), "OwnerReferences"),
    (("metadata", "finalizers"), "Finalizers"),
)
# What of a claim a node changes when it has grown the file system; managedFields tell who did, and follow.
_CLAIM_STATUS = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")
_CLAIM_METADATA = ("resourceVersion", "managedFields")

_NOT_A_NODE = decision.NotMine("NotANode", "the user is not a node", restricted_write.RULE)
_ALLOWED = decision.Approve("WithinItsOwn", "the node writes what is its own", restricted_write.RULE)

Refusal = decision.Deny | None


def concerns(groups: tuple[str, ...]) -> bool:
    """Whether the caller may be a node: cheap, since it is asked of every write."""
    return user_names.NODES in groups


def decide(write: restricted_write.Write, known: restricted_write.Known) -> decision.Decision:
    """Whether a caller in the group of nodes may write this (1 to 6)."""
    if not concerns(write.groups):
        return _NOT_A_NODE
    # 1. it is called as a node
    node = user_names.node_named(write.user)
    if not node:
        return restricted_write.refuse(
            "UnknownNode", f"could not determine node from user {restricted_write.quoted(write.user)}"
        )
    # 2. to 6. the row of the resource
    row = _ROWS.get(write.resource)
    refusal = None if row is None else row(node, write, known)
    return _ALLOWED if refusal is None else refusal


def _node(node: str, write: restricted_write.Write, _known: restricted_write.Known) -> Refusal:
    # 3. only its own Node, and of that not everything
    me = restricted_write.quoted(node)
    name = write.object_name
    if name != node:
        return restricted_write.refuse(
            "OtherNode", f"node {me} is not allowed to modify node {restricted_write.quoted(name)}"
        )
    if write.operation == restricted_write.DELETE:
        return restricted_write.refuse("DeletesItself", f"node {me} is not allowed to delete its own node")
    new = write.document or {}
    config = jsonpath.at(new, "spec", "configSource")
    if write.operation == restricted_write.CREATE:
        if config is not None:
            sentence = f"node {me} is not allowed to create pods with a non-nil configSource"
            return restricted_write.refuse("ConfigSource", sentence)
        if jsonpath.at(new, "metadata", "finalizers"):
            return restricted_write.refuse("Finalizers", f"node {me} is not allowed to set finalizers")
        found = _forbidden(modified_labels(_labels(new), {}))
        sentence = f"node {me} is not allowed to set the following labels: {', '.join(found)}"
        return restricted_write.refuse("Labels", sentence) if found else None
    return _node_update(me, new, write.old or {})


def _node_update(me: str, new: objects.Document, old: objects.Document) -> Refusal:
    # 3. no change of what is not the node's to say
    config, before = jsonpath.at(new, "spec", "configSource"), jsonpath.at(old, "spec", "configSource")
    if config is not None and (before is None or _meaning(config) != _meaning(before)):
        sentence = f"node {me} is not allowed to update configSource to a new non-nil configSource"
        return restricted_write.refuse("ConfigSource", sentence)
    for path, reason in _NODE_FIXED:
        if _meaning(jsonpath.at(new, *path)) != _meaning(jsonpath.at(old, *path)):
            return restricted_write.refuse(reason, f"node {me} is not allowed to modify {path[-1]}")
    found = _forbidden(modified_labels(_labels(new), _labels(old)))
    return restricted_write.refuse("Labels", f"is not allowed to modify labels: {', '.join(found)}") if found else None


def _labels(document: objects.Document) -> Mapping[str, Any]:
    return jsonpath.mapping(document, "metadata", "labels")


def modified_labels(new: Mapping[str, Any], old: Mapping[str, Any]) -> set[str]:
    """The keys that are in only one of them, or have another value."""
    return {key for key in {*new, *old} if key not in new or key not in old or new[key] != old[key]}


def _forbidden(keys: set[str]) -> list[str]:
    return sorted(key for key in keys if not may_label(key))


def may_label(key: str) -> bool:
    """Whether a node may set or remove this label on its own Node."""
    domain, slash, _ = key.partition("/")
    if not slash or not _within(domain, _KUBERNETES):
        return True
    if _within(domain, (_RESTRICTED,)):
        return False
    return key in _KUBELET_LABELS or _within(domain, _KUBELET_DOMAINS)


def _within(domain: str, roots: tuple[str, ...]) -> bool:
    return any(domain == root or domain.endswith("." + root) for root in roots)


def _claim(node: str, write: restricted_write.Write, _known: restricted_write.Known) -> Refusal:
    # 4. only the status, and what growing changes
    if write.subresource != "status":
        return restricted_write.refuse("NotStatus", "may only update PVC status")
    if write.operation != restricted_write.UPDATE:
        return restricted_write.refuse(
            "UnexpectedOperation", f"unexpected operation {restricted_write.quoted(write.operation)}"
        )
    changed = _differences(_claim_remainder(write.old or {}), _claim_remainder(write.document or {}), "")
    if not changed:
        return None
    return restricted_write.refuse(
        "ClaimFields",
        f"node {restricted_write.quoted(node)} is not allowed to update fields other than status.quantity and "
        f"status.conditions: {', '.join(changed)}",
    )


def _claim_remainder(claim: objects.Document) -> Any:
    parts = {"status": _CLAIM_STATUS, "metadata": _CLAIM_METADATA}
    kept = {
        part: {key: value for key, value in jsonpath.mapping(claim, part).items() if key not in free}
        for part, free in parts.items()
    }
    return _meaning({**claim, **kept}) or {}


def _differences(old: Any, new: Any, path: str) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = ((key, _differences(old.get(key), new.get(key), key)) for key in sorted({*old, *new}))
        return [f"{path}.{place}" if path else place for _, places in found for place in places]
    return [] if old == new else [path]


def _meaning(value: Any) -> Any:
    """Without what is empty: Kubernetes does not tell an empty field from one that is not there."""
    if isinstance(value, dict):
        kept = {key: _meaning(content) for key, content in value.items()}
        return {key: content for key, content in kept.items() if content is not None} or None
    if isinstance(value, list):
        return [_meaning(element) for element in value] or None
    return None if value == "" else value


def _lease(node: str, write: restricted_write.Write, _known: restricted_write.Known) -> Refusal:
    # 5. only its own Lease
    if write.namespace != LEASES:
        return restricted_write.refuse(
            "OtherNamespace", f"can only access leases in the {restricted_write.quoted(LEASES)} system namespace"
        )
    if write.object_name != node:
        return restricted_write.refuse(
            "OtherNode", "can only access node lease with the same name as the requesting node"
        )
    return None


def _csi_node(node: str, write: restricted_write.Write, _known: restricted_write.Known) -> Refusal:
    # 5. only its own CSINode
    if write.object_name != node:
        return restricted_write.refuse("OtherNode", "can only access CSINode with the same name as the requesting node")
    return None


def _certificate_request(node: str, write: restricted_write.Write, _known: restricted_write.Known) -> Refusal:
    # 6. only a certificate of its own
    signer = jsonpath.text(write.document, "spec", "signerName")
    kubelets = {signer_names.KUBELET_CLIENT, signer_names.KUBELET_SERVING}
    if write.operation != restricted_write.CREATE or signer not in kubelets:
        return None
    try:
        subject = admission.parse(write.document).subject
    except errors.Refused as refused:
        return restricted_write.refuse(refused.reason, f"unable to parse csr: {refused.message}")
    if subject.common_name != user_names.node_user(node):
        return restricted_write.refuse("OtherNode", f"can only create a node CSR with CN={user_names.node_user(node)}")
    return None


_ROWS: Mapping[tuple[str, str], Callable[[str, restricted_write.Write, restricted_write.Known], Refusal]] = {
    ("", "pods"): restriction_pods.judge,
    ("", "nodes"): _node,
    ("", "persistentvolumeclaims"): _claim,
    ("", "serviceaccounts"): restriction_tokens.judge,
    ("coordination.k8s.io", "leases"): _lease,
    ("storage.k8s.io", "csinodes"): _csi_node,
    ("certificates.k8s.io", "certificatesigningrequests"): _certificate_request,
}
