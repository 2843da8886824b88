# SPDX-License-Identifier: Apache-2.0
"""What nodes may do, on two nodes with two Pods each. The names of the table in `rules/nodes/authorizer.py` are here.

The rows are those of Kubernetes' own test of its Node authorizer, with the selector gates on, and with the reasons.
"""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import access, decision
from handfast.rules.nodes import authorizer, references
from handfast.rules.nodes import graph as node_graph

ALLOWED = None
NOTHING_SAID = ""
UNRELATED = "no relationship found between node 'node0' and this object"
ONLY_GET = "can only get individual resources of this type"
LEASE_VERBS = "can only get, create, update, patch, or delete a node lease"
LEASE_NAMESPACE = 'can only access leases in the "kube-node-lease" system namespace'
LEASE_NAME = "can only access node lease with the same name as the requesting node"
CSINODE_VERBS = "can only get, create, update, patch, or delete a CSINode"
CSINODE_NAME = "can only access CSINode with the same name as the requesting node"
TOKENS = "can only create tokens for individual service accounts"
ALL_NODES = "node 'node0' cannot read all nodes, only its own Node object"
OTHER_NODE = "node 'node0' cannot read 'node1', only its own Node object"
SELECTOR = "can only list/watch pods with spec.nodeName field selector"

LEASES = "leases.coordination.k8s.io"
CSINODES = "csinodes.storage.k8s.io"
ATTACHMENTS = "volumeattachments.storage.k8s.io"
RESOURCE_CLAIMS = "resourceclaims.resource.k8s.io"
CSRS = "certificatesigningrequests.certificates.k8s.io"

Row = tuple[str, str, str | None]

# Case, `verb resource[.group][/subresource] namespace name [field=value]` with - for none, and what is said.
TABLE: list[Row] = [
    ("allowed configmap", "get configmaps ns0 configmap0-pod0-node0", ALLOWED),
    ("list allowed configmap", "list configmaps ns0 configmap0-pod0-node0", ALLOWED),
    ("watch allowed configmap", "watch configmaps ns0 configmap0-pod0-node0", ALLOWED),
    ("allowed secret via pod", "get secrets ns0 secret0-pod0-node0", ALLOWED),
    ("list allowed secret via pod", "list secrets ns0 secret0-pod0-node0", ALLOWED),
    ("watch allowed secret via pod", "watch secrets ns0 secret0-pod0-node0", ALLOWED),
    ("disallowed list many secrets", "list secrets ns0 -", "No Object name found"),
    ("disallowed watch many secrets", "watch secrets ns0 -", "No Object name found"),
    ("disallowed get without a name", "get secrets ns0 -", "No Object name found"),
    (
        "disallowed list secrets from all namespaces with name",
        "list secrets - secret0-pod0-node0",
        "can only read namespaced object of this type",
    ),
    ("disallowed list all secrets", "list secrets - -", "can only read namespaced object of this type"),
    ("disallowed secret subresource", "get secrets/status ns0 secret0-pod0-node0", "cannot read subresource"),
    ("disallowed secret in another namespace", "get secrets ns1 secret0-pod0-node0", UNRELATED),
    ("disallowed create secret", "create secrets ns0 -", "can only read resources of this type"),
    ("disallowed update own secret", "update secrets ns0 secret0-pod0-node0", "can only read resources of this type"),
    ("disallowed delete own secret", "delete secrets ns0 secret0-pod0-node0", "can only read resources of this type"),
    ("disallowed delete all secrets", "deletecollection secrets ns0 -", "can only read resources of this type"),
    (
        "disallowed patch configmap",
        "patch configmaps ns0 configmap0-pod0-node0",
        "can only read resources of this type",
    ),
    ("allowed shared secret via pod", "get secrets ns0 secret0-shared", ALLOWED),
    ("allowed shared secret via pvc", "get secrets ns0 secret-pv0-pod0-node0-ns0", ALLOWED),
    ("list allowed shared secret via pvc", "list secrets ns0 secret-pv0-pod0-node0-ns0", ALLOWED),
    ("allowed pvc", "get persistentvolumeclaims ns0 pvc0-pod0-node0", ALLOWED),
    ("allowed update pvc status", "update persistentvolumeclaims/status ns0 pvc0-pod0-node0", ALLOWED),
    ("allowed patch pvc status", "patch persistentvolumeclaims/status ns0 pvc0-pod0-node0", ALLOWED),
    (
        "disallowed get pvc status",
        "get persistentvolumeclaims/status ns0 pvc0-pod0-node0",
        "can only get/update/patch this type",
    ),
    ("disallowed unrelated pvc status", "update persistentvolumeclaims/status ns0 pvc0-pod0-node1", UNRELATED),
    ("disallowed update pvc", "update persistentvolumeclaims ns0 pvc0-pod0-node0", ONLY_GET),
    ("disallowed list pvcs", "list persistentvolumeclaims ns0 -", ONLY_GET),
    ("disallowed list pvc by name", "list persistentvolumeclaims ns0 pvc0-pod0-node0", ONLY_GET),
    ("disallowed pvc scale", "get persistentvolumeclaims/scale ns0 pvc0-pod0-node0", "cannot get subresource"),
    ("allowed resource claim", f"get {RESOURCE_CLAIMS} ns0 claim0-pod0-node0-ns0", ALLOWED),
    ("allowed resource claim with template", f"get {RESOURCE_CLAIMS} ns0 generated-pod0-node0-ns0", ALLOWED),
    ("disallowed resource claim, other node", f"get {RESOURCE_CLAIMS} ns0 claim0-pod0-node1-ns0", UNRELATED),
    ("disallowed resource claim by template", f"get {RESOURCE_CLAIMS} ns0 template0-pod0-node0", UNRELATED),
    ("disallowed list resource claims", f"list {RESOURCE_CLAIMS} ns0 -", ONLY_GET),
    ("allowed pv", "get persistentvolumes - pv0-pod0-node0-ns0", ALLOWED),
    ("disallowed list pvs", "list persistentvolumes - -", ONLY_GET),
    ("disallowed watch pv", "watch persistentvolumes - pv0-pod0-node0-ns0", ONLY_GET),
    ("disallowed update pv", "update persistentvolumes - pv0-pod0-node0-ns0", ONLY_GET),
    ("disallowed pv status", "get persistentvolumes/status - pv0-pod0-node0-ns0", "cannot get subresource"),
    ("disallowed configmap", "get configmaps ns0 configmap0-pod0-node1", UNRELATED),
    ("disallowed secret via pod", "get secrets ns0 secret0-pod0-node1", UNRELATED),
    ("disallowed list secret via pod", "list secrets ns0 secret0-pod0-node1", UNRELATED),
    ("disallowed watch secret via pod", "watch secrets ns0 secret0-pod0-node1", UNRELATED),
    ("disallowed shared secret via pvc", "get secrets ns0 secret-pv0-pod0-node1-ns0", UNRELATED),
    ("disallowed controller's secret of a pv", "get secrets ns0 controller-pv0-pod0-node0-ns0", UNRELATED),
    ("disallowed pvc", "get persistentvolumeclaims ns0 pvc0-pod0-node1", UNRELATED),
    ("disallowed pv", "get persistentvolumes - pv0-pod0-node1-ns0", UNRELATED),
    ("allowed attachment", f"get {ATTACHMENTS} - attachment0-node0", ALLOWED),
    ("disallowed attachment - no relationship", f"get {ATTACHMENTS} - attachment0-node1", UNRELATED),
    ("disallowed attachment - wrong verb", f"list {ATTACHMENTS} - -", ONLY_GET),
    ("disallowed attachment - no name", f"get {ATTACHMENTS} - -", "No Object name found"),
    ("disallowed attachment - subresource", f"get {ATTACHMENTS}/status - attachment0-node0", "cannot get subresource"),
    ("allowed svcacct", "get serviceaccounts ns0 svcacct0-node0", ALLOWED),
    ("disallowed svcacct", "get serviceaccounts ns0 svcacct0-node1", UNRELATED),
    ("disallowed get svcacct without name", "get serviceaccounts ns0 -", "No Object name found"),
    ("disallowed list svcaccts", "list serviceaccounts ns0 -", TOKENS),
    ("disallowed delete svcacct", "delete serviceaccounts ns0 svcacct0-node0", TOKENS),
    ("allowed svcacct token create", "create serviceaccounts/token ns0 svcacct0-node0", ALLOWED),
    (
        "disallowed svcacct token create - serviceaccount not attached to node",
        "create serviceaccounts/token ns0 svcacct0-node1",
        UNRELATED,
    ),
    (
        "disallowed svcacct token create - no subresource",
        "create serviceaccounts ns0 svcacct0-node0",
        "can only create token subresource of serviceaccount",
    ),
    ("disallowed svcacct token create - non create", "update serviceaccounts/token ns0 svcacct0-node0", TOKENS),
    ("disallowed svcacct token get", "get serviceaccounts/token ns0 svcacct0-node0", TOKENS),
    ("disallowed svcacct token without name", "create serviceaccounts/token ns0 -", TOKENS),
    *[
        (
            f"disallowed {verb} lease in namespace other than kube-node-lease",
            f"{verb} {LEASES} foo node0",
            LEASE_NAMESPACE,
        )
        for verb in ("get", "create", "update", "patch", "delete")
    ],
    *[
        (f"disallowed {verb} another node's lease", f"{verb} {LEASES} kube-node-lease node1", LEASE_NAME)
        for verb in ("get", "update", "patch", "delete")
    ],
    ("disallowed list node leases", f"list {LEASES} kube-node-lease -", LEASE_VERBS),
    ("disallowed watch node leases", f"watch {LEASES} kube-node-lease -", LEASE_VERBS),
    ("disallowed list of its own node lease", f"list {LEASES} kube-node-lease node0", LEASE_VERBS),
    *[
        (f"allowed {verb} node lease", f"{verb} {LEASES} kube-node-lease node0", ALLOWED)
        for verb in ("get", "create", "update", "patch", "delete")
    ],
    ("allowed create of an unnamed node lease", f"create {LEASES} kube-node-lease -", ALLOWED),
    (
        "disallowed CSINode with subresource",
        f"get {CSINODES}/csiDrivers - node0",
        "cannot authorize CSINode subresources",
    ),
    *[
        (f"disallowed {verb} another node's CSINode", f"{verb} {CSINODES} - node1", CSINODE_NAME)
        for verb in ("get", "update", "patch", "delete")
    ],
    ("disallowed list CSINodes", f"list {CSINODES} - -", CSINODE_VERBS),
    ("disallowed watch CSINodes", f"watch {CSINODES} - -", CSINODE_VERBS),
    *[
        (f"allowed {verb} CSINode", f"{verb} {CSINODES} - node0", ALLOWED)
        for verb in ("get", "create", "update", "patch", "delete")
    ],
    ("get related pod", "get pods ns0 pod0-node0", ALLOWED),
    ("get unrelated pod", "get pods ns0 pod0-node1", UNRELATED),
    ("get pod without name", "get pods ns0 -", "No Object name found"),
    ("list related pods", "list pods - - spec.nodeName=node0", ALLOWED),
    ("list related pods of a namespace", "list pods ns0 - spec.nodeName=node0", ALLOWED),
    ("list single related pod", "list pods ns0 pod0-node0", ALLOWED),
    ("list single unrelated pod", "list pods ns0 pod0-node1", UNRELATED),
    ("list single pod of all namespaces", "list pods - pod0-node0", UNRELATED),
    ("list unrelated pods", "list pods - -", SELECTOR),
    ("list pods of another node", "list pods - - spec.nodeName=node1", SELECTOR),
    ("list pods of no node", "list pods - - spec.nodeName=", SELECTOR),
    ("list pods by another field", "list pods - - metadata.namespace=node0", SELECTOR),
    ("watch related pods", "watch pods - - spec.nodeName=node0", ALLOWED),
    ("watch single related pod", "watch pods ns0 pod0-node0", ALLOWED),
    ("watch unrelated pods", "watch pods - -", SELECTOR),
    ("watch pods of another node", "watch pods - - spec.nodeName=node1", SELECTOR),
    ("create unnamed pod", "create pods ns0 -", ALLOWED),
    ("create pod proxy subresource forbidden", "create pods/proxy ns0 -", NOTHING_SAID),
    ("delete related pod", "delete pods ns0 pod0-node0", ALLOWED),
    ("delete unrelated pod", "delete pods ns0 pod0-node1", ALLOWED),
    ("delete pod proxy subresource forbidden", "delete pods/proxy ns0 pod0-node0", NOTHING_SAID),
    ("deletecollection of pods", "deletecollection pods ns0 - spec.nodeName=node0", NOTHING_SAID),
    ("update related pod", "update pods ns0 pod0-node0", NOTHING_SAID),
    ("patch related pod", "patch pods ns0 pod0-node0", NOTHING_SAID),
    ("update related pod status", "update pods/status ns0 pod0-node0", ALLOWED),
    ("update unrelated pod status", "update pods/status ns0 pod0-node1", ALLOWED),
    ("patch related pod status", "patch pods/status ns0 pod0-node0", ALLOWED),
    ("patch unrelated pod status", "patch pods/status ns0 pod0-node1", ALLOWED),
    ("get pod status", "get pods/status ns0 pod0-node0", NOTHING_SAID),
    ("create related pod eviction", "create pods/eviction ns0 pod0-node0", ALLOWED),
    ("create unrelated pod eviction", "create pods/eviction ns0 pod0-node1", ALLOWED),
    ("get pod eviction", "get pods/eviction ns0 pod0-node0", NOTHING_SAID),
    ("bind a pod", "create pods/binding ns0 pod0-node0", NOTHING_SAID),
    ("exec into a related pod", "create pods/exec ns0 pod0-node0", NOTHING_SAID),
    ("log of a related pod", "get pods/log ns0 pod0-node0", NOTHING_SAID),
    ("ephemeral containers", "patch pods/ephemeralcontainers ns0 pod0-node0", NOTHING_SAID),
    ("get related node", "get nodes - node0", ALLOWED),
    ("get unrelated node", "get nodes - node1", OTHER_NODE),
    ("list single related node", "list nodes - node0", ALLOWED),
    ("list single unrelated node", "list nodes - node1", OTHER_NODE),
    ("list all nodes", "list nodes - -", ALL_NODES),
    ("watch single related node", "watch nodes - node0", ALLOWED),
    ("watch single unrelated node", "watch nodes - node1", OTHER_NODE),
    ("watch all nodes", "watch nodes - -", ALL_NODES),
    ("create node", "create nodes - -", ALLOWED),
    ("update related node", "update nodes - node0", ALLOWED),
    ("update unrelated node", "update nodes - node1", ALLOWED),
    ("patch related node", "patch nodes - node0", ALLOWED),
    ("patch unrelated node", "patch nodes - node1", ALLOWED),
    ("delete own node", "delete nodes - node0", NOTHING_SAID),
    ("update related node status", "update nodes/status - node0", ALLOWED),
    ("update unrelated node status", "update nodes/status - node1", ALLOWED),
    ("patch related node status", "patch nodes/status - node0", ALLOWED),
    ("patch unrelated node status", "patch nodes/status - node1", ALLOWED),
    ("get node status", "get nodes/status - node0", NOTHING_SAID),
    ("create node status", "create nodes/status - node0", NOTHING_SAID),
    ("node proxy", "get nodes/proxy - node0", NOTHING_SAID),
    ("list services", "list services - -", ALLOWED),
    ("create service", "create services ns0 -", NOTHING_SAID),
    ("service status", "get services/status ns0 x", NOTHING_SAID),
    ("get endpoints", "get endpoints ns0 x", ALLOWED),
    ("list endpoints", "list endpoints ns0 -", NOTHING_SAID),
    ("create event", "create events ns0 -", ALLOWED),
    ("list events", "list events ns0 -", NOTHING_SAID),
    ("create csr", f"create {CSRS} - -", ALLOWED),
    ("watch csr", f"watch {CSRS} - node-csr-x", ALLOWED),
    ("approve csr", f"update {CSRS}/approval - node-csr-x", NOTHING_SAID),
    ("update csr", f"update {CSRS} - node-csr-x", NOTHING_SAID),
    ("token review", "create tokenreviews.authentication.k8s.io - -", ALLOWED),
    ("subject access review", "create subjectaccessreviews.authorization.k8s.io - -", ALLOWED),
    ("local subject access review", "create localsubjectaccessreviews.authorization.k8s.io ns0 -", ALLOWED),
    ("self subject access review", "create selfsubjectaccessreviews.authorization.k8s.io - -", NOTHING_SAID),
    ("list csidrivers", "list csidrivers.storage.k8s.io - -", ALLOWED),
    ("list runtimeclasses", "list runtimeclasses.node.k8s.io - -", ALLOWED),
    ("read trust bundles", "watch clustertrustbundles.certificates.k8s.io - -", ALLOWED),
    ("write trust bundles", "create clustertrustbundles.certificates.k8s.io - -", NOTHING_SAID),
    ("namespaces", "list namespaces - -", NOTHING_SAID),
    ("role bindings", "create clusterrolebindings.rbac.authorization.k8s.io - -", NOTHING_SAID),
]


def pod(node: str, number: int) -> references.Pod:
    """A Pod of everything a Pod can refer to, in the namespace of its number."""
    name, namespace = f"pod{number}-{node}", f"ns{number}"
    document: dict[str, Any] = {
        "spec": {
            "nodeName": node,
            "serviceAccountName": f"svcacct{number}-{node}",
            "volumes": [
                {"name": "own", "secret": {"secretName": f"secret0-{name}"}},
                {"name": "shared", "secret": {"secretName": "secret0-shared"}},
                {"name": "config", "configMap": {"name": f"configmap0-{name}"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": f"pvc0-{name}"}},
            ],
            "resourceClaims": [
                {"name": "named", "resourceClaimName": f"claim0-{name}-{namespace}"},
                {"name": "made", "resourceClaimTemplateName": f"template0-{name}"},
            ],
        },
        "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": f"generated-{name}-{namespace}"}]},
    }
    return references.pod(namespace, name, document)


def volume(node: str, number: int) -> references.Volume:
    name, namespace = f"pv0-pod{number}-{node}-ns{number}", f"ns{number}"
    csi = {
        "nodePublishSecretRef": {"namespace": namespace, "name": f"secret-{name}"},
        "controllerPublishSecretRef": {"namespace": namespace, "name": f"controller-{name}"},
    }
    claim = {"namespace": namespace, "name": f"pvc0-pod{number}-{node}"}
    return references.volume(name, {"spec": {"csi": csi, "claimRef": claim}})


def two_nodes() -> node_graph.NodeGraph:
    graph = node_graph.NodeGraph()
    for node in ("node0", "node1"):
        for number in range(2):
            graph.set_pod(pod(node, number))
            graph.set_pv(volume(node, number))
        graph.set_attachment(f"attachment0-{node}", node)
    return graph


GRAPH = two_nodes()


def attributes(line: str, user: str = "system:node:node0", groups: tuple[str, ...] = ("system:nodes",)) -> Any:
    verb, resource, *rest = line.split()
    resource, _, subresource = resource.partition("/")
    plural, _, group = resource.partition(".")
    namespace, name = ("" if part == "-" else part for part in rest[:2])
    return access.Attributes(
        user=user,
        groups=(*groups, "system:authenticated"),
        verb=verb,
        is_resource=True,
        group=group,
        version="v1",
        plural=plural,
        subresource=subresource,
        namespace=namespace,
        name=name,
        fields=tuple((text.split("=")[0], text.split("=")[1]) for text in rest[2:]),
    )


def said(verdict: decision.Decision) -> str | None:
    """None for allowed, else the sentence."""
    assert verdict.rule == "node"
    if isinstance(verdict, decision.Approve):
        return ALLOWED
    assert isinstance(verdict, decision.NotMine)
    return verdict.sentence


def ask(line: str, graph: node_graph.NodeGraph = GRAPH, **who: Any) -> str | None:
    return said(authorizer.NodeAuthorizer(graph).decide(attributes(line, **who)))


@pytest.mark.parametrize(("line", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_table_of_kubernetes(line: str, expected: str | None) -> None:
    assert ask(line) == expected


def test_the_table_has_every_row_once() -> None:
    assert len({row[0] for row in TABLE}) == len({row[1] for row in TABLE}) == len(TABLE) > 120


def test_an_unregistered_node_looks_for_itself() -> None:
    who: dict[str, Any] = {"user": "system:node:nodeunregistered"}
    assert ask("get nodes - nodeunregistered", **who) is ALLOWED
    assert ask("get secrets ns0 secret0-shared", **who) is not ALLOWED


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        ("system:node:node0", ()),
        ("system:node:node0", ("system:node",)),
        ("system:node:node0", ("System:Nodes",)),
        ("system:node:node0", ("system:nodes ",)),
        ("system:node:node0", ("system:bootstrappers", "system:nodes:node0")),
        ("node0", ("system:nodes",)),
        ("System:node:node0", ("system:nodes",)),
        (" system:node:node0", ("system:nodes",)),
        ("system:nodes:node0", ("system:nodes",)),
        ("system:node", ("system:nodes",)),
        ("system:serviceaccount:system:node:node0", ("system:nodes",)),
        ("", ("system:nodes",)),
    ],
)
def test_half_an_identity_is_none(user: str, groups: tuple[str, ...]) -> None:
    for _, line, _ in TABLE:
        assert ask(line, user=user, groups=groups) == NOTHING_SAID


def test_a_node_needs_a_name() -> None:
    for _, line, _ in TABLE:
        assert ask(line, user="system:node:") == 'unknown node for user "system:node:"'


def test_unknown_and_foreign_sound_the_same() -> None:
    """Else names of Secrets could be found out by asking."""
    for there, missing in (
        ("get secrets ns0 secret0-pod0-node1", "get secrets ns0 missing"),
        ("get persistentvolumes - pv0-pod0-node1-ns0", "get persistentvolumes - missing"),
        ("create serviceaccounts/token ns0 svcacct0-node1", "create serviceaccounts/token nowhere missing"),
    ):
        assert ask(there) == ask(missing) == UNRELATED


@pytest.mark.parametrize(
    "line",
    [
        "get secrets.example.com ns0 secret0-pod0-node0",
        "get Secrets ns0 secret0-pod0-node0",
        "get * ns0 secret0-pod0-node0",
        "get *.* - -",
        "* * - -",
        "* services - -",
        "get services.example.com - -",
        "list pods.metrics.k8s.io - - spec.nodeName=node0",
        "get nodes.metrics.k8s.io - node0",
        "get leases kube-node-lease node0",
        "get volumeattachments - attachment0-node0",
        "create events.events.k8s.io ns0 -",
    ],
)
def test_rows_are_exact(line: str) -> None:
    assert ask(line) == NOTHING_SAID


@pytest.mark.parametrize("verb", ["*", "GET", "impersonate", "bind", "escalate", ""])
def test_no_row_takes_a_strange_verb(verb: str) -> None:
    for _, line, _ in TABLE:
        asked = attributes(line)
        asked = access.Attributes(
            **{field: getattr(asked, field) for field in asked.__struct_fields__} | {"verb": verb}
        )
        assert isinstance(authorizer.NodeAuthorizer(GRAPH).decide(asked), decision.NotMine)


@pytest.mark.parametrize("path", ["/metrics", "/api", "/healthz", "/"])
def test_paths_are_not_decided_here(path: str) -> None:
    asked = access.Attributes("system:node:node0", ("system:nodes",), "get", is_resource=False, path=path)
    assert said(authorizer.NodeAuthorizer(GRAPH).decide(asked)) == NOTHING_SAID


def test_a_path_is_not_taken_for_its_resource() -> None:
    asked = access.Attributes("system:node:node0", ("system:nodes",), "get", is_resource=False, plural="services")
    assert said(authorizer.NodeAuthorizer(GRAPH).decide(asked)) == NOTHING_SAID


def test_mirror_pods_grant_nothing() -> None:
    graph = node_graph.NodeGraph()
    document = {
        "metadata": {"annotations": {references.MIRROR: ""}},
        "spec": {
            "nodeName": "node0",
            "serviceAccountName": "default",
            "volumes": [{"name": "x", "secret": {"secretName": "wanted"}}],
        },
    }
    graph.set_pod(references.pod("ns0", "mirror", document))
    assert ask("get pods ns0 mirror", graph) is ALLOWED
    assert ask("get secrets ns0 wanted", graph) == UNRELATED
    assert ask("create serviceaccounts/token ns0 default", graph) == UNRELATED


def test_access_ends_with_the_pod() -> None:
    graph = two_nodes()
    lines = [line for _, line, expected in TABLE if expected is ALLOWED]
    graph.remove_pod("ns0", "pod0-node0")
    gone = [line for line in lines if ask(line, graph) == UNRELATED]
    assert {line.split()[1] for line in gone} >= {
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "persistentvolumes",
        "serviceaccounts",
        "serviceaccounts/token",
        "pods",
        RESOURCE_CLAIMS,
    }
    who: dict[str, Any] = {"user": "system:node:node1"}
    assert ask("get secrets ns0 secret0-shared", graph, **who) is ALLOWED
    assert ask("get secrets ns0 secret0-shared", graph) == UNRELATED
    assert ask("get secrets ns1 secret0-shared", graph) is ALLOWED


def test_a_selector_of_several_fields() -> None:
    asked = attributes("list pods - - status.phase=Running spec.nodeName=node0")
    assert said(authorizer.NodeAuthorizer(GRAPH).decide(asked)) is ALLOWED
