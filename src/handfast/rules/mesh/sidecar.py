# SPDX-License-Identifier: Apache-2.0
"""What a Pod of the mesh has beside its own: the proxy, the container that redirects to it, their volumes and variables.

It builds them, and puts them nowhere. The variables have the seed's names, and today's of Linkerd beside them.

1. The name of the workload is composed where it runs, from what Kubernetes says of the Pod: whoever copies the template to another account
   copies no identity.
2. An account whose name would be none is refused here, and not when the Pod asks for its certificate.
3. A service at a loopback address has no identity variable. Every other one has.
4. Without an identity there is no variable, no volume and no token of one.
5. The keys are in memory, in a volume that only the proxy has.
6. The proxy runs as a user of its own, which is not root, with a root file system that it cannot write.
7. It is an init container that goes on running: it is ready before the application starts, and a Job ends without it.
8. The identity service's own Pod asks itself, at a loopback address, and starts without waiting for its proxy: it could not have an identity
   before it gives one. So do destination and policy, which are one Pod.
9. The control plane's services do their own TLS, and the API server is reached without a proxy, which could not be ready before: in their Pods
   neither is redirected.
10. Until the policy service has answered for a port, nobody is let in, unless the operator has it otherwise: a policy holds from the first
    connection. The control plane's own Pods are the exception, since there would be no answer without them.
11. Every address is looked up, so that none is in plaintext which could be secured. Connections that are for another address than the Pod's
    are not forwarded.
12. Ports and subnets go past the proxy where an annotation says so, and nowhere else.
13. The application is told who calls, in headers, where an annotation says so, and nowhere else.
14. The channel to agents is TLS wherever it is, and so has a name, on loopback, too. A stock proxy does not know it.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_sidecar.py |
|---|---|---|---|---|
| a tenant | an account `a.b` | get a proxy with a name that is somebody else's | 2 | test_an_account_that_has_no_name_gets_no_proxy |
| another service of the cluster | the address of the identity service | be shown the tokens of workloads | 3 | test_a_service_elsewhere_has_an_identity |
| a client that no policy allows | a Pod that has just started | be let in before its policy is there | 10 | test_nobody_is_let_in_before_the_policy_is_known |
| a machine of the same network | packets for another address | have the proxy connect to it | 11 | test_every_address_is_looked_up_and_only_the_pods_own_are_forwarded |
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from handfast.api import jsonpath
from handfast.rules.mesh import addresses, control_plane, injectable, names, port_annotations, settings, workloads

STORE: Final = "linkerd-identity-store"
TOKEN: Final = "linkerd-identity-token"  # noqa: S105 - the name of a volume
LOCK: Final = "linkerd-proxy-init-xtables-lock"
VOLUMES: Final = (LOCK, STORE, TOKEN)
DIRECTORY: Final = "/var/run/linkerd/identity"
TOKENS: Final = "/var/run/secrets/tokens"
# The seed's: the directory of the account's token.
ACCOUNT_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
PREFIX: Final = "LINKERD2_PROXY_"
# Whether the application is told who calls: Handfast's own, which a stock proxy does not read.
IDENTITY_HEADERS: Final = f"{PREFIX}IDENTITY_HEADERS"
# Of the container that redirects: the ports that lead past the proxy.
PAST_PROXY: Final = "--inbound-ports-to-ignore"
USER: Final = 2102
_INIT_USER: Final = 65534
# For the length of a name, where the namespace is not known yet.
_DEFAULT: Final = "default"
_INBOUND: Final = 4143
_OUTBOUND: Final = 4140
_CONTROL: Final = 4190
_ADMIN: Final = 4191
_TOKEN_SECONDS: Final = 86400
# What the proxy tells the destination service, and the policy service, of its Pod.
_CONTEXT: Final = json.dumps({"ns": "$(K8S_NS)", "nodeName": "$(K8S_NODE)", "pod": "$(K8S_POD)"})
_WORKLOAD: Final = json.dumps({"ns": "$(K8S_NS)", "pod": "$(K8S_POD)"})
# Where the API server is, for the Pods of a cluster.
_APISERVER: Final = (443, 6443)
_EVERYWHERE: Final = "0.0.0.0/0,::/0"
_FIELDS: Final = {
    "K8S_NS": "metadata.namespace",
    "K8S_POD": "metadata.name",
    "K8S_NODE": "spec.nodeName",
    # 11. the Pod's own addresses
    f"{PREFIX}INBOUND_IPS": "status.podIPs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is injected into every Pod alike. `uids` are those of the control plane's accounts, where names have them."""

    settings: settings.Settings
    anchors: str
    created_by: str
    namespace: str = control_plane.NAMESPACE
    uids: Mapping[str, str] = field(default_factory=dict)
    # How workloads are called, and the anchors as variables and annotations have them. A namespace that is no label is refused here.
    mesh: names.Mesh = field(init=False, repr=False, compare=False)
    anchors_blob: str = field(init=False, repr=False, compare=False)
    anchors_digest: str = field(init=False, repr=False, compare=False)
    # Variables that are the same for many Pods: a few dictionaries of texts, made once. Of a review's CPU they were a tenth.
    kept: dict[tuple[bool, str], dict[str, str]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        anchors = self.anchors.encode()
        object.__setattr__(self, "mesh", self.settings.mesh(self.namespace))
        object.__setattr__(self, "anchors_blob", base64.b64encode(anchors).decode("ascii"))
        object.__setattr__(self, "anchors_digest", hashlib.sha256(anchors).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The Pod that it is for. `namespace` is where it will be, empty where nobody knows; `uid` is that of its account.

    `inherited` are the annotations that it has from its namespace, and `owner` is kind and name of what makes it, where it says so itself.
    """

    workload: workloads.Workload
    namespace: str
    identity: bool
    uid: str = ""
    inherited: Mapping[str, str] = field(default_factory=dict)
    owner: tuple[str, str] | None = None

    # The annotations about ports that count, also the one that nobody wrote.
    ports: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        own = self.workload.annotations
        values = {**self.inherited, **{key: own[key] for key in port_annotations.READ if key in own}}
        if port_annotations.OPAQUE not in values:
            pairs = ((port, port) for _, port in port_annotations.container_ports(self.workload))
            values |= {port_annotations.OPAQUE: usual} if (usual := port_annotations.usually_opaque(pairs)) else {}
        object.__setattr__(self, "ports", values)


def require_name(plan: Plan, target: Target) -> None:
    """Return if the account of a workload can have an identity, else refuse (2)."""
    # 2. labels, and not too long
    account = names.Account(namespace=target.namespace or _DEFAULT, name=target.workload.account, uid=target.uid)
    plan.mesh.name(account)


def volumes(plan: Plan, target: Target) -> list[dict[str, Any]]:
    """The volumes, in order."""
    rows: list[dict[str, Any]] = [{"name": LOCK, "emptyDir": {}}]
    # 4. nothing of an identity
    if target.identity:
        # 5. in memory
        rows.append({"name": STORE, "emptyDir": {"medium": "Memory"}})
        if plan.settings.own_token:
            token = {"path": TOKEN, "audience": control_plane.AUDIENCE, "expirationSeconds": _TOKEN_SECONDS}
            rows.append({"name": TOKEN, "projected": {"sources": [{"serviceAccountToken": token}]}})
    return rows


def init(plan: Plan, target: Target) -> dict[str, Any]:
    """The container that redirects the Pod's connections to the proxy, and ends."""
    return {
        "name": injectable.INIT,
        "image": plan.settings.init_image,
        "args": [word for flag, value in _redirect(plan, target) for word in (flag, value)],
        "securityContext": {
            **_confined(_INIT_USER),
            "capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]},
        },
        "volumeMounts": [{"name": LOCK, "mountPath": "/run"}],
    }


def _redirect(plan: Plan, target: Target) -> Iterator[tuple[str, str]]:
    # 12. only what was asked for goes past the proxy
    ports = target.ports
    inbound = [str(_CONTROL), str(_ADMIN), port_annotations.skipped(ports, port_annotations.SKIP_INBOUND)]
    outbound = [port_annotations.skipped(ports, port_annotations.SKIP_OUTBOUND)]
    # 9. neither its own ports nor the API server
    if _account_of_control_plane(plan, target):
        inbound += _ports(target.workload)
        outbound += map(str, _APISERVER)
    yield "--incoming-proxy-port", str(_INBOUND)
    yield "--outgoing-proxy-port", str(_OUTBOUND)
    yield "--proxy-uid", str(USER)
    yield PAST_PROXY, ",".join(filter(None, inbound))
    if any(outbound):
        yield "--outbound-ports-to-ignore", ",".join(filter(None, outbound))
    if subnets := port_annotations.subnets(ports):
        yield "--subnets-to-ignore", subnets


def proxy(plan: Plan, target: Target) -> dict[str, Any]:
    """The proxy's container."""
    return {
        "name": injectable.PROXY,
        "image": plan.settings.proxy_image,
        # 7. before the application, and beside it
        "restartPolicy": "Always",
        **_start(plan, target),
        "env": list(_variables(plan, target)),
        "ports": [
            {"name": "linkerd-proxy", "containerPort": _INBOUND},
            {"name": "linkerd-admin", "containerPort": _ADMIN},
        ],
        "livenessProbe": {**_probe("/live"), "initialDelaySeconds": 10},
        "readinessProbe": {**_probe("/ready"), "initialDelaySeconds": 2},
        # 6. a user of its own
        "securityContext": {**_confined(USER), "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": list(_mounts(plan, target)),
    }


def _confined(user: int) -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": _ADMIN}}


def _mounts(plan: Plan, target: Target) -> Iterator[dict[str, Any]]:
    if not target.identity:
        return
    yield {"name": STORE, "mountPath": DIRECTORY}
    if plan.settings.own_token:
        yield {"name": TOKEN, "mountPath": TOKENS, "readOnly": True}
        return
    # Where the token of the account is mounted already, as in a request, the proxy has it as the others do.
    for row in jsonpath.mappings(target.workload.spec, "containers"):
        for mount in jsonpath.mappings(row, "volumeMounts"):
            if mount.get("mountPath") == ACCOUNT_TOKEN:
                yield mount
                return


def _variables(plan: Plan, target: Target) -> Iterator[dict[str, Any]]:
    values = _listening(plan, target)
    if target.identity:
        yield {"name": "K8S_SA", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}}
        # A variable is composed of those before it.
        values = {"L5D_NS": plan.namespace, "TRUST_DOMAIN": plan.settings.trust_domain} | values
    for name, place in _FIELDS.items():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": place}}}
    values |= _alike(plan, target)
    for name, value in values.items():
        yield {"name": name, "value": value}


def _alike(plan: Plan, target: Target) -> dict[str, str]:
    """The variables that all Pods of a kind have; those with the UID of their account have their own."""
    key = target.identity, _account_of_control_plane(plan, target)
    values = None if target.uid else plan.kept.get(key)
    if values is None:
        values = (_identity(plan, target) if target.identity else {}) | _services(plan, target)
        if not target.uid:
            plan.kept[key] = values
    return values


def _listening(plan: Plan, target: Target) -> dict[str, str]:
    own = _account_of_control_plane(plan, target)
    opaque = port_annotations.opaque(target.ports, target.workload)
    return {
        f"{PREFIX}ADMIN_LISTEN_ADDR": f"0.0.0.0:{_ADMIN}",
        f"{PREFIX}CONTROL_LISTEN_ADDR": f"0.0.0.0:{_CONTROL}",
        f"{PREFIX}INBOUND_LISTEN_ADDR": f"0.0.0.0:{_INBOUND}",
        f"{PREFIX}OUTBOUND_LISTEN_ADDR": f"127.0.0.1:{_OUTBOUND}",
        f"{PREFIX}INBOUND_PORTS": ",".join(_ports(target.workload)),
        # 10. nobody before there is a policy
        f"{PREFIX}INBOUND_DEFAULT_POLICY": settings.EVERYBODY if own else plan.settings.default_policy,
        # 11. every address
        f"{PREFIX}DESTINATION_PROFILE_NETWORKS": _EVERYWHERE,
        f"{PREFIX}DESTINATION_CONTEXT": _CONTEXT,
        f"{PREFIX}POLICY_WORKLOAD": _WORKLOAD,
        **({f"{PREFIX}INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION": opaque} if opaque else {}),
        # 13. only who wants it
        **({IDENTITY_HEADERS: port_annotations.ENABLED} if port_annotations.identity_headers(target.ports) else {}),
    }


def _ports(workload: workloads.Workload) -> list[str]:
    """The ports of the application's containers, and those that its probes ask."""
    numbers = set()
    for row in workload.containers.get("containers", ()):
        numbers |= {jsonpath.number(port, "containerPort") for port in jsonpath.mappings(row, "ports")}
        numbers |= {jsonpath.number(row, probe, "httpGet", "port") for probe in ("readinessProbe", "livenessProbe")}
    return sorted(str(number) for number in numbers if number)


def _identity(plan: Plan, target: Target) -> dict[str, str]:
    # 1. composed where it runs
    name = names.downward(plan.settings.scheme, target.uid)
    token = f"{TOKENS}/{TOKEN}" if plan.settings.own_token else ACCOUNT_TOKEN
    return {
        f"{PREFIX}IDENTITY_TRUST_ANCHORS_BLOB": plan.anchors_blob,
        f"{PREFIX}IDENTITY_TRUST_ANCHORS": plan.anchors,
        f"{PREFIX}IDENTITY_STORE_DIR": DIRECTORY,
        f"{PREFIX}IDENTITY_DIR": DIRECTORY,
        f"{PREFIX}IDENTITY_TOKEN_FILE": token,
        f"{PREFIX}LOCAL_IDENTITY": name,
        f"{PREFIX}LOCAL_IDENTITY_NAME": name,
        f"{PREFIX}IDENTITY_LOCAL_NAME": name,
    }


def _services(plan: Plan, target: Target) -> dict[str, str]:
    chosen = plan.settings
    rows = [
        ("DESTINATION", control_plane.DESTINATION, control_plane.CONTROLLER, chosen.destination_address),
        ("POLICY", control_plane.POLICY, control_plane.CONTROLLER, chosen.policy_address),
    ]
    if target.identity:
        rows.append(("IDENTITY", control_plane.IDENTITY, control_plane.IDENTITY, chosen.identity_address))
    own = _account_of_control_plane(plan, target)
    values: dict[str, str] = {}
    for word, service, account, address in rows:
        # 8. it asks itself
        where = addresses.local(service) if own == account else address or addresses.service(service, plan.namespace)
        seed = word != "POLICY"
        values |= {f"{PREFIX}{word}_ADDR": where} if seed else {}
        values[f"{PREFIX}{word}_SVC_ADDR"] = addresses.absolute(where)
        # 3. no identity for a loopback address
        if target.identity and not addresses.is_loopback(where):
            name = plan.mesh.service(account, plan.uids.get(account, ""))
            values |= {f"{PREFIX}{word}_IDENTITY": name} if seed else {}
            values[f"{PREFIX}{word}_SVC_NAME"] = name
    return values | (_agents(plan, own) if target.identity else {})


def _agents(plan: Plan, own: str) -> dict[str, str]:
    """The channel to agents, which only our own proxy knows."""
    host = "localhost" if own == control_plane.CONTROLLER else ""
    where = addresses.agents(plan.namespace, host)
    name = plan.mesh.service(control_plane.CONTROLLER, plan.uids.get(control_plane.CONTROLLER, ""))
    # 14. a name, on loopback, too
    return {
        f"{PREFIX}AGENTS_ADDR": where if host else plan.settings.agents_address or where,
        f"{PREFIX}AGENTS_IDENTITY": name,
    }


def _start(plan: Plan, target: Target) -> dict[str, Any]:
    # 8. it does not wait for itself
    if _account_of_control_plane(plan, target) == control_plane.IDENTITY:
        return {}
    return {"startupProbe": {**_probe("/ready"), "periodSeconds": 1, "failureThreshold": 120}}


def _account_of_control_plane(plan: Plan, target: Target) -> str:
    """The account, where it is one of the control plane's; else nothing."""
    own = target.namespace == plan.namespace and target.workload.account in control_plane.ACCOUNTS
    return target.workload.account if own else ""
