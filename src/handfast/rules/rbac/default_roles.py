# SPDX-License-Identifier: Apache-2.0
"""The rules of the roles that every cluster starts with, under Kubernetes' names. Who is bound to them: `rbac.defaults`.

A namespace's three roles for people (`view`, `edit`, `admin`) gather their rules from every ClusterRole with their
label; what Kubernetes itself puts in is in the roles `system:aggregate-to-…`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handfast.api import handfast_kinds, machine_config_kinds, signer_names, signing_requests
from handfast.rules.rbac import policy_rules

APPS, BATCH, POLICY = "apps", "batch", "policy"
AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
AUTOSCALING, NETWORKING, DISCOVERY = "autoscaling", "networking.k8s.io", "discovery.k8s.io"
CERTIFICATES, COORDINATION = signing_requests.GROUP, "coordination.k8s.io"
EVENTS, STORAGE, NODE = "events.k8s.io", "storage.k8s.io", "node.k8s.io"
HANDFAST = handfast_kinds.GROUP
_LOGS = handfast_kinds.ISSUANCE_LOG.plural

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
READ_WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

_HEALTH = ("/healthz", "/livez", "/readyz")
_VERSION = ("/version", "/version/")


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def on(group: str, resources: str, verbs: tuple[str, ...] | str, *names: str) -> policy_rules.PolicyRule:
    """Verbs on resources of one group; names limit it to these objects."""
    return policy_rules.PolicyRule(words(verbs) if isinstance(verbs, str) else verbs, (group,), words(resources), names)


def paths(*urls: str) -> policy_rules.PolicyRule:
    return policy_rules.PolicyRule(("get",), non_resource_urls=urls)


_SCALABLE = "deployments/scale replicasets/scale statefulsets/scale"
_VIEW = (
    on(
        "",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
        "replicationcontrollers/scale serviceaccounts services services/status",
        READ,
    ),
    on(
        "",
        "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
        "resourcequotas resourcequotas/status",
        READ,
    ),
    on("", "namespaces", READ),
    on(DISCOVERY, "endpointslices", READ),
    on(
        APPS,
        "controllerrevisions daemonsets daemonsets/status deployments deployments/status replicasets "
        f"replicasets/status statefulsets statefulsets/status {_SCALABLE}",
        READ,
    ),
    on(AUTOSCALING, "horizontalpodautoscalers horizontalpodautoscalers/status", READ),
    on(BATCH, "cronjobs cronjobs/status jobs jobs/status", READ),
    on(POLICY, "poddisruptionbudgets poddisruptionbudgets/status", READ),
    on(NETWORKING, "ingresses ingresses/status networkpolicies", READ),
    on(HANDFAST, _LOGS, READ),
)
_EDIT = (
    on("", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", READ),
    on("", "serviceaccounts", "impersonate"),
    on("", "pods pods/attach pods/exec pods/portforward pods/proxy", WRITE),
    on("", "pods/eviction", "create"),
    on(
        "",
        "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
        "serviceaccounts services services/proxy",
        WRITE,
    ),
    on("", "serviceaccounts/token", "create"),
    on(APPS, f"daemonsets deployments deployments/rollback replicasets statefulsets {_SCALABLE}", WRITE),
    on(AUTOSCALING, "horizontalpodautoscalers", WRITE),
    on(BATCH, "cronjobs jobs", WRITE),
    on(POLICY, "poddisruptionbudgets", WRITE),
    on(NETWORKING, "ingresses networkpolicies", WRITE),
    on(COORDINATION, "leases", READ_WRITE),
)
_ADMIN = (
    on(AUTHORIZATION, "localsubjectaccessreviews", "create"),
    on(policy_rules.GROUP, "roles rolebindings", READ_WRITE),
)

_NODE_CLIENT = (on(CERTIFICATES, "certificatesigningrequests/nodeclient", "create"),)
_SELF_NODE_CLIENT = (on(CERTIFICATES, "certificatesigningrequests/selfnodeclient", "create"),)
# Nobody is bound to this: it opens the approval of serving certificates by what nodes say of themselves.
_SELF_NODE_SERVER = (on(CERTIFICATES, "certificatesigningrequests/selfnodeserver", "create"),)

# For lists of rights only: nodes are authorised one by one, and nobody is bound to this.
_SYSTEM_NODE = (
    on(AUTHENTICATION, "tokenreviews", "create"),
    on(AUTHORIZATION, "localsubjectaccessreviews subjectaccessreviews", "create"),
    on("", "services", READ),
    on("", "nodes", "create get list patch update watch"),
    on("", "nodes/status", "patch update"),
    on("", "events", "create patch update"),
    on("", "pods", "create delete get list watch"),
    on("", "pods/status", "patch update"),
    on("", "pods/eviction", "create"),
    on("", "configmaps secrets", READ),
    on("", "endpoints persistentvolumeclaims persistentvolumes serviceaccounts", "get"),
    on("", "persistentvolumeclaims/status", "get patch update"),
    on("", "serviceaccounts/token", "create"),
    on(CERTIFICATES, "certificatesigningrequests", "create get list watch"),
    on(COORDINATION, "leases", "create delete get patch update"),
    on(STORAGE, "volumeattachments", "get"),
    on(STORAGE, "csidrivers", READ),
    on(STORAGE, "csinodes", "create delete get patch update"),
    on(NODE, "runtimeclasses", READ),
)

# The credential of all controllers of this program. The garbage collector and the namespace controller have to follow,
# patch and delete objects of any kind, so no list of kinds can be given for these verbs; what is created is named.
_CONTROLLERS = (
    policy_rules.PolicyRule((*READ, "patch", "update", "delete", "deletecollection"), ("*",), ("*",)),
    on("", "configmaps endpoints events serviceaccounts", "create"),
    on(DISCOVERY, "endpointslices", "create"),
    on(HANDFAST, _LOGS, "create"),
    # Renderings of pools. Whoever may update every MachineConfig can do no more with it.
    on(machine_config_kinds.GROUP, machine_config_kinds.MACHINE_CONFIG.plural, "create"),
    on(AUTHENTICATION, "tokenreviews", "create"),
    on(AUTHORIZATION, "subjectaccessreviews", "create"),
    # Aggregation writes rules that the controllers do not hold.
    on(policy_rules.GROUP, "clusterroles", "escalate"),
    on(CERTIFICATES, "signers", "approve sign", "kubernetes.io/*"),
)


def _approvers() -> Iterator[tuple[str, tuple[policy_rules.PolicyRule, ...]]]:
    """For each signer, the role of those who may approve requests to it."""
    for signer in signer_names.SIGNERS:
        word = signer.partition("/")[2]
        yield f"system:{CERTIFICATES}:{word}-approver", (on(CERTIFICATES, "signers", "approve", signer),)


CLUSTER_ROLES: Mapping[str, tuple[policy_rules.PolicyRule, ...]] = {
    "cluster-admin": policy_rules.FULL,
    "system:aggregate-to-admin": _ADMIN,
    "system:aggregate-to-edit": _EDIT,
    "system:aggregate-to-view": _VIEW,
    "system:auth-delegator": (
        on(AUTHENTICATION, "tokenreviews", "create"),
        on(AUTHORIZATION, "subjectaccessreviews", "create"),
    ),
    "system:basic-user": (
        on(AUTHORIZATION, "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
        on(AUTHENTICATION, "selfsubjectreviews", "create"),
    ),
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": _NODE_CLIENT,
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": _SELF_NODE_CLIENT,
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeserver": _SELF_NODE_SERVER,
    # The name that older guides bind bootstrap tokens to.
    "system:csr-approver:approve-node-client-csr": _NODE_CLIENT,
    **dict(_approvers()),
    # Whether a node that recovers gets its certificate without anybody being asked.
    "handfast:node-recovery": _NODE_CLIENT,
    "system:discovery": (paths("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH, *_VERSION),),
    "system:kube-controller-manager": _CONTROLLERS,
    "system:kubelet-api-admin": (
        on("", "nodes", READ),
        on("", "nodes", "proxy"),
        on(
            "",
            "nodes/checkpoint nodes/configz nodes/healthz nodes/log nodes/metrics nodes/pods nodes/proxy nodes/stats",
            "*",
        ),
    ),
    "system:monitoring": (paths("/metrics", "/metrics/slis", *_HEALTH, *(f"{path}/*" for path in _HEALTH)),),
    "system:node": _SYSTEM_NODE,
    "system:node-bootstrapper": (on(CERTIFICATES, "certificatesigningrequests", "create get list watch"),),
    "system:node-proxier": (
        on("", "endpoints services", "list watch"),
        on("", "nodes", READ),
        on("", "events", "create patch update"),
        on(EVENTS, "events", "create patch update"),
        on(DISCOVERY, "endpointslices", "list watch"),
    ),
    "system:public-info-viewer": (paths(*_HEALTH, *_VERSION),),
    "system:service-account-issuer-discovery": (
        paths(
            "/.well-known/openid-configuration",
            "/.well-known/openid-configuration/",
            "/openid/v1/jwks",
            "/openid/v1/jwks/",
        ),
    ),
}

# Name -> what it gathers, and into which of the others it goes.
AGGREGATED: Mapping[str, str] = {"admin": "", "edit": "admin", "view": "edit"}

_CLIENT_CA = "extension-apiserver-authentication"
ROLES: Mapping[tuple[str, str], tuple[policy_rules.PolicyRule, ...]] = {
    ("kube-system", "system::leader-locking-kube-controller-manager"): (
        on(COORDINATION, "leases", "create get list update watch"),
    ),
    ("kube-system", "extension-apiserver-authentication-reader"): (on("", "configmaps", READ, _CLIENT_CA),),
    ("kube-system", "system:controller:bootstrap-signer"): (on("", "secrets", READ),),
    ("kube-public", "system:controller:bootstrap-signer"): (
        on("", "configmaps", READ),
        on("", "configmaps", "update", "cluster-info"),
        on("", "events", "create patch update"),
    ),
    # Where the cluster is, and whom to trust there, is no secret from anybody who was let in.
    ("kube-public", "handfast:cluster-info-reader"): (on("", "configmaps", "get", "cluster-info"),),
    ("kube-system", "system:controller:token-cleaner"): (
        on("", "secrets", (*READ, "delete")),
        on("", "events", "create patch update"),
    ),
    # Whoever writes the CAs by which clients are trusted can become anyone. So this verb is needed beside `update`.
    ("kube-system", "system:controller:client-ca-bundle"): (on("", "configmaps", "trust", _CLIENT_CA),),
}
