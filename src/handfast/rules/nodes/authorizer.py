# SPDX-License-Identifier: Apache-2.0
"""What a kubelet may ask of the API: its own objects, and those its Pods need. The Node authorizer of Kubernetes.

It decides by names only and never sees the object: what a node may write *into* an object it may write to is decided
at admission (`nodes.restriction`). It denies nothing: whatever it does not allow, another authorizer may. Where none does,
`apiserver.access.authz` refuses with 403.

1. The caller is a node: its name begins with `system:node:` **and** it is in the group `system:nodes`. Either alone
   says nothing. What follows the prefix is the node's name, and must not be empty.
2. Resources of `_RULES` are decided by their row alone, each with its own reason for not allowing:
   a. Secrets, ConfigMaps: get, list and watch of one named object that leads to the node (`nodes.graph`);
   b. PersistentVolumeClaims, PersistentVolumes, VolumeAttachments, ResourceClaims: get of one that leads to the node,
      and update and patch of the status of such a claim;
   c. ServiceAccounts: get of one, and tokens for one, that leads to the node;
   d. Leases of `kube-node-lease` and CSINodes of the node's own name (a new one has its name checked at admission);
   e. Nodes: read its own; write any, as admission restricts that to its own;
   f. Pods: read those of the node; create, delete, evict and report on any, as admission restricts that as well.
3. Everything else: the same fixed list for every node, `STATIC`.

| who | holding | tries | stopped by | shown in tests/unit/rules/nodes/test_authorizer.py |
|---|---|---|---|---|
| a user | the name `system:node:a`, or the group, not both | be taken for a node | 1 | test_half_an_identity_is_none |
| a node | the name `system:node:` | be every node or none | 1 | test_a_node_needs_a_name |
| a node taken over | its certificate | read the Secrets or ConfigMaps of other nodes' Pods | 2a | test_the_table_of_kubernetes |
| a node taken over | its certificate | list Secrets, and pick | 2a: one name, one namespace | test_the_table_of_kubernetes |
| a node taken over | its certificate | guess at names to learn which exist | one answer for both | test_unknown_and_foreign_sound_the_same |
| a node taken over | its certificate | tokens for any service account | 2c | test_the_table_of_kubernetes |
| a node taken over | its certificate | keep another node alive, or kill it, by its Lease | 2d | test_the_table_of_kubernetes |
| a node taken over | its certificate | name a Secret in a mirror Pod of its own making | no edges | test_mirror_pods_grant_nothing |
| a node taken over | its certificate | watch all Pods with a selector naming another node | 2f | test_the_table_of_kubernetes |
| a node taken over | its certificate | reach a resource by another group or `*` | rows are exact | test_rows_are_exact |
| a node after its Pod is gone | its certificate | read on what the Pod could | edges go with Pods | test_access_ends_with_the_pod |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from handfast.rules import access, decision, user_names
from handfast.rules.nodes import graph as node_graph
from handfast.rules.nodes import references

RULE = "node"
LEASE_NAMESPACE = "kube-node-lease"

_READ = frozenset({"get", "list", "watch"})
_CHANGE = frozenset({"update", "patch"})
_OWN = frozenset({"get", "create", "update", "patch", "delete"})

# What every node may do, whatever its name: (group, resource) and verbs. Nothing here names or holds a secret.
STATIC: Mapping[tuple[str, str], frozenset[str]] = {
    ("", "services"): _READ,
    ("", "endpoints"): frozenset({"get"}),
    ("", "events"): frozenset({"create", "update", "patch"}),
    ("authentication.k8s.io", "tokenreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "subjectaccessreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "localsubjectaccessreviews"): frozenset({"create"}),
    ("certificates.k8s.io", "certificatesigningrequests"): frozenset({"create", "get", "list", "watch"}),
    ("certificates.k8s.io", "clustertrustbundles"): _READ,
    ("node.k8s.io", "runtimeclasses"): _READ,
    ("storage.k8s.io", "csidrivers"): _READ,
}

Verdict = decision.Approve | decision.NotMine


def _no(reason: str, sentence: str) -> decision.NotMine:
    return decision.NotMine(reason, sentence, RULE)


_RELATED = decision.Approve("NodeRelated", "the object belongs to a pod or volume of the node", RULE)
_OWN_OBJECT = decision.Approve("NodeOwnObject", "the object is the node's own", RULE)
_OWN_PODS = decision.Approve("NodeOwnPods", "only pods of the node are selected", RULE)
_ADMISSION = decision.Approve("NodeRestricted", "admission restricts it to the node's own objects", RULE)
_EVERY_NODE = decision.Approve("NodeStatic", "every node may", RULE)

# Sentences are joined into a refusal's message: those of callers that are no nodes must stay empty.
_NOT_A_NODE = _no("NotANode", "")
_NO_RULE = _no("NoRuleAllows", "")
_ONLY_READ = _no("NodeOnlyReads", "can only read resources of this type")
_NO_SUBRESOURCE_READ = _no("NodeNoSubresource", "cannot read subresource")
_ONLY_NAMESPACED = _no("NodeOnlyNamespaced", "can only read namespaced object of this type")
_NO_NAME = _no("NodeNoName", "No Object name found")
_ONLY_GET = _no("NodeOnlyGets", "can only get individual resources of this type")
_NO_SUBRESOURCE_GET = _no("NodeNoSubresource", "cannot get subresource")
_ONLY_STATUS = _no("NodeOnlyStatus", "can only get/update/patch this type")
_ONLY_TOKENS = _no("NodeOnlyTokens", "can only create tokens for individual service accounts")
_ONLY_TOKEN_SUBRESOURCE = _no("NodeOnlyTokens", "can only create token subresource of serviceaccount")
_LEASE_VERB = _no("NodeLeaseVerb", "can only get, create, update, patch, or delete a node lease")
_LEASE_NAMESPACE = _no("NodeLeaseNamespace", f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
_LEASE_NAME = _no("NodeLeaseName", "can only access node lease with the same name as the requesting node")
_CSINODE_VERB = _no("NodeCSINodeVerb", "can only get, create, update, patch, or delete a CSINode")
_CSINODE_SUBRESOURCE = _no("NodeNoSubresource", "cannot authorize CSINode subresources")
_CSINODE_NAME = _no("NodeCSINodeName", "can only access CSINode with the same name as the requesting node")
_POD_SELECTOR = _no("NodePodSelector", "can only list/watch pods with spec.nodeName field selector")


class NodeAuthorizer:
    """Decides by the graph it is given, as that is at the moment of the question."""

    def __init__(self, graph: node_graph.NodeGraph) -> None:
        self._graph = graph

    def decide(self, attributes: access.Attributes) -> Verdict:
        """Allow, or no opinion with the words of Kubernetes."""
        # 1. a node, with a name
        node = user_names.node(attributes.user, attributes.groups)
        if node is None:
            return _NOT_A_NODE
        if not node:
            return _no("UnknownNode", f'unknown node for user "{attributes.user}"')
        if not attributes.is_resource:
            return _NO_RULE
        # 2. its row alone decides
        row = _RULES.get((attributes.group, attributes.plural))
        if row is not None:
            return row(self, node, attributes)
        # 3. what every node may
        if not attributes.subresource and attributes.verb in STATIC.get((attributes.group, attributes.plural), ()):
            return _EVERY_NODE
        return _NO_RULE

    def _related(self, node: str, attributes: access.Attributes) -> Verdict:
        if not attributes.name:
            return _NO_NAME
        if self._graph.reaches(attributes.plural, attributes.namespace, attributes.name, node):
            return _RELATED
        return _no("NodeUnrelated", f"no relationship found between node '{node}' and this object")

    # 2a. Secrets and ConfigMaps
    def _read(self, node: str, attributes: access.Attributes) -> Verdict:
        if attributes.verb not in _READ:
            return _ONLY_READ
        if attributes.subresource:
            return _NO_SUBRESOURCE_READ
        if not attributes.namespace:
            return _ONLY_NAMESPACED
        return self._related(node, attributes)

    # 2b. claims, volumes and their attachments
    def _get(self, node: str, attributes: access.Attributes) -> Verdict:
        if attributes.verb != "get":
            return _ONLY_GET
        if attributes.subresource:
            return _NO_SUBRESOURCE_GET
        return self._related(node, attributes)

    def _claim(self, node: str, attributes: access.Attributes) -> Verdict:
        if attributes.subresource != "status":
            return self._get(node, attributes)
        if attributes.verb not in _CHANGE:
            return _ONLY_STATUS
        return self._related(node, attributes)

    # 2c. ServiceAccounts, and tokens for them
    def _service_account(self, node: str, attributes: access.Attributes) -> Verdict:
        if attributes.verb == "get" and not attributes.subresource:
            return self._get(node, attributes)
        if attributes.verb != "create" or not attributes.name:
            return _ONLY_TOKENS
        if attributes.subresource != "token":
            return _ONLY_TOKEN_SUBRESOURCE
        return self._related(node, attributes)

    # 2d. its own Lease and CSINode
    def _lease(self, node: str, attributes: access.Attributes) -> Verdict:
        if attributes.verb not in _OWN:
            return _LEASE_VERB
        if attributes.namespace != LEASE_NAMESPACE:
            return _LEASE_NAMESPACE
        if attributes.verb == "create":
            return _ADMISSION
        return _OWN_OBJECT if attributes.name == node else _LEASE_NAME

    def _csinode(self, node: str, attributes: access.Attributes) -> Verdict:
        if attributes.verb not in _OWN:
            return _CSINODE_VERB
        if attributes.subresource:
            return _CSINODE_SUBRESOURCE
        if attributes.verb == "create":
            return _ADMISSION
        return _OWN_OBJECT if attributes.name == node else _CSINODE_NAME

    # 2e. Nodes
    def _node(self, node: str, attributes: access.Attributes) -> Verdict:
        if attributes.verb in _CHANGE and attributes.subresource in {"", "status"}:
            return _ADMISSION
        if attributes.subresource:
            return _NO_RULE
        if attributes.verb == "create":
            return _ADMISSION
        if attributes.verb not in _READ:
            return _NO_RULE
        # By name, not by the graph: a kubelet looks for its Node before it has made one.
        if attributes.name == node:
            return _OWN_OBJECT
        which = f"'{attributes.name}'" if attributes.name else "all nodes"
        return _no("NodeForeignNode", f"node '{node}' cannot read {which}, only its own Node object")

    # 2f. Pods
    def _pod(self, node: str, attributes: access.Attributes) -> Verdict:
        if attributes.verb in _POD_WRITES.get(attributes.subresource, ()):
            return _ADMISSION
        if attributes.subresource or attributes.verb not in _READ:
            return _NO_RULE
        if attributes.verb == "get":
            return self._related(node, attributes)
        # Requirements of a selector all hold at once, so one that names the node is enough.
        if ("spec.nodeName", node) in attributes.fields:
            return _OWN_PODS
        return self._related(node, attributes) if attributes.name else _POD_SELECTOR


_POD_WRITES: Mapping[str, frozenset[str]] = {
    "": frozenset({"create", "delete"}),
    "status": _CHANGE,
    "eviction": frozenset({"create"}),
}

_RULES: Mapping[tuple[str, str], Callable[[NodeAuthorizer, str, access.Attributes], Verdict]] = {
    ("", references.SECRETS): NodeAuthorizer._read,
    ("", references.CONFIG_MAPS): NodeAuthorizer._read,
    ("", references.CLAIMS): NodeAuthorizer._claim,
    ("", references.VOLUMES): NodeAuthorizer._get,
    ("storage.k8s.io", references.ATTACHMENTS): NodeAuthorizer._get,
    ("resource.k8s.io", references.RESOURCE_CLAIMS): NodeAuthorizer._get,
    ("", references.SERVICE_ACCOUNTS): NodeAuthorizer._service_account,
    ("coordination.k8s.io", "leases"): NodeAuthorizer._lease,
    ("storage.k8s.io", "csinodes"): NodeAuthorizer._csinode,
    ("", "nodes"): NodeAuthorizer._node,
    ("", references.PODS): NodeAuthorizer._pod,
}
