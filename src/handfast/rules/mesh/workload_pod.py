# SPDX-License-Identifier: Apache-2.0
"""The Pod of a workload that a machine runs itself, without a kubelet: its manifest, and what is read off it once it was injected.

It sends nothing and starts nothing: `node.workload` does. Variables are resolved in `pod_environment`.

1. A Pod that is made for a command asks for a proxy itself, names its ports, and is for no scheduler: no node takes it.
2. A Pod is run only if it has a proxy [PodNotInjected], one container beside it [PodNotRunnable], has not ended, and does not end [PodEnded].
3. One that is bound to a node is that node's [PodOfAnotherNode].
4. The proxy's token is the one that the Pod projects to where the proxy looks for it, with its audience and its lifetime [PodTokenMissing]. Its file on
   this machine has a name of our own: no path of a Pod is a path here.
5. Of the proxy's environment only its own settings count. Their paths are replaced by real ones. What else a Pod says there, such as what to load into a
   program, would be for a container, and there is none.
6. An application hears of its proxy, and gets neither a credential of whoever started it nor its settings. No variable of another spelling, such as
   NO_PROXY, leads it past its proxy.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_workload_pod.py |
|---|---|---|---|---|
| who may start a command on a machine | the name of a Pod of another node | run as its account | 3 (and the Node authorizer) | test_a_pod_of_another_node_is_not_run |
| an application | the environment of whoever started it | find the way to their credentials | 6 | test_an_application_hears_of_its_proxy_and_of_no_credential |
| who may create Pods | the path of a projected token | have files of this machine overwritten | 4 | test_no_path_of_a_pod_is_a_path_of_this_machine |
| … | a variable such as LD_PRELOAD or PYTHONPATH | run as whoever starts the proxy | 5 | test_only_settings_of_the_proxy_reach_the_proxy |
| an application | a Pod without a proxy | talk in plaintext, and be taken for one of the mesh | 2 | test_a_pod_without_a_proxy_is_not_run |
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.rules.mesh import injectable, pod_environment, proxy_environment, settings, sidecar

APPLICATION: Final = "application"
# Of nobody: the scheduler of a cluster leaves the Pod alone.
SCHEDULER: Final = "handfast-mesh-run"
IMAGE: Final = "handfast-mesh-run"
# Of a Pod that was made for a command: which run has made it.
RUN: Final = "mesh.handfast.dev/run"
_PREFIX_LENGTH: Final = 50
_TOKEN: Final = "token"  # noqa: S105 - the name of a file
# 5. the proxy's settings, and its place
_SETTINGS: Final = (sidecar.PREFIX, "LINKERD_PROXY_", "K8S_")
_HOUR: Final = 3600
_ENDED: Final = ("Succeeded", "Failed")
# 6. what an application does not inherit
_NOT_PASSED: Final = ("HANDFAST_", "LINKERD2_PROXY_")
_NOT_PASSED_NAMES: Final = frozenset({"KUBECONFIG"})
# 6. which programs read in any spelling, some the large letters first
_OF_PROXIES: Final = frozenset({"http_proxy", "no_proxy"})


class NotInjected(errors.Refused):
    """A Pod without a proxy (2)."""

    reason = "PodNotInjected"


class NotRunnable(errors.Refused):
    """A Pod that cannot be run here (2, 3, 4); `reason` is one of the words above."""

    reason = "PodNotRunnable"


class Port(msgspec.Struct, frozen=True):
    """A port of the Pod, and the port on which the application listens for it, on loopback."""

    number: int
    application: int

    def __str__(self) -> str:
        return f"{self.number}:{self.application}"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod to be made. `run` tells it from another of the same name."""

    namespace: str
    account: str
    name: str
    run: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    ports: tuple[Port, ...] = ()


class ProjectedToken(msgspec.Struct, frozen=True):
    """A token as the Pod projects it: for whom (empty: the API server), and for how long."""

    audience: str
    seconds: int


def manifest(wanted: Wanted) -> objects.Document:
    """The Pod, as it is sent to the API server."""
    ports = [{"containerPort": each.number, "protocol": "TCP"} for each in wanted.ports]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": dict(wanted.labels),
            # 1. it asks for a proxy
            "annotations": {**wanted.annotations, injectable.INJECT: settings.ENABLED, RUN: wanted.run},
        },
        "spec": {
            "serviceAccountName": wanted.account,
            # 1. for no scheduler
            "schedulerName": SCHEDULER,
            "restartPolicy": "Never",
            "containers": [{"name": APPLICATION, "image": IMAGE, "ports": ports}],
        },
    }


def name_of(account: str, suffix: str) -> str:
    """A name for a Pod of this account."""
    return f"{account[:_PREFIX_LENGTH].rstrip('-.')}-{suffix}"


def is_of_run(pod: Mapping[str, Any], run: str) -> bool:
    """Whether this run has made it."""
    return jsonpath.text(pod, "metadata", "annotations", RUN) == run


def require_injected(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The proxy's container, else a refusal (2)."""
    proxy = pod_environment.find(pod, injectable.PROXY)
    if proxy is None:
        raise NotInjected(
            f"{title(pod)} has no container {injectable.PROXY}: the mesh's webhook has not injected it",
            hint=f"see that there is a mesh and that its injector answers, with `handfast mesh check`; the webhook leaves out Pods "
            f"whose {injectable.INJECT} is not {settings.ENABLED}, at the Pod or at its namespace, and the control plane's namespace",
        )
    return proxy


def require_runnable(pod: Mapping[str, Any], node: str) -> None:
    """Return if this Pod may be run with the credentials of this node (empty: of no node), else refuse (2, 3)."""
    if jsonpath.text(pod, "status", "phase") in _ENDED or jsonpath.text(pod, "metadata", "deletionTimestamp"):
        raise NotRunnable(f"{title(pod)} has ended, or is about to", reason="PodEnded", hint="make another one")
    bound = jsonpath.text(pod, "spec", "nodeName")
    # 3. the node's own
    if bound != node:
        raise NotRunnable(
            f"{title(pod)} is bound to {f'node {bound}' if bound else 'no node'}, and the credentials are those of "
            f"{f'node {node}' if node else 'no node'}",
            reason="PodOfAnotherNode",
            hint="run it on its node, with --kubeconfig of that node; a Pod is bound by spec.nodeName, when it is made",
        )
    require_injected(pod)
    # 2. one container beside the proxy
    if len(rows := jsonpath.mappings(pod, "spec", "containers")) != 1:
        raise NotRunnable(
            f"{title(pod)} has {len(rows)} containers, and one command takes the place of one container",
            hint="make a Pod with one container for each command",
        )


def ports(pod: Mapping[str, Any], typed: Sequence[Port]) -> tuple[Port, ...]:
    """The ports of a Pod: those of its application's container, led to where the command line says."""
    elsewhere = {each.number: each for each in typed}
    rows = jsonpath.mappings(application(pod), "ports")
    numbers = [jsonpath.number(row, "containerPort") for row in rows if row.get("protocol", "TCP") == "TCP"]
    unknown = sorted(elsewhere.keys() - set(numbers))
    if unknown:
        raise NotRunnable(
            f"{title(pod)} has no port {unknown[0]}", hint="name a containerPort of the Pod, or make it with that port"
        )
    return tuple(elsewhere.get(number, Port(number, number)) for number in dict.fromkeys(numbers))


def application(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The container that the command stands for."""
    return jsonpath.mappings(pod, "spec", "containers")[0]


def projected(pod: Mapping[str, Any], variables: Mapping[str, str]) -> ProjectedToken | None:
    """The token of the proxy (4); None where it has no identity, and shows none."""
    place = variables.get(proxy_environment.TOKEN_FILE, "")
    if not place:
        return None
    for mount in jsonpath.mappings(require_injected(pod), "volumeMounts"):
        below = jsonpath.text(mount, "mountPath").rstrip("/")
        if place == below or place.startswith(f"{below}/"):
            # A directory stands for its file `token`.
            name = place[len(below) + 1 :] or _TOKEN
            if (row := _source(pod, jsonpath.text(mount, "name"), name)) is not None:
                return ProjectedToken(
                    jsonpath.text(row, "audience"), jsonpath.number(row, "expirationSeconds") or _HOUR
                )
    # 4. what the Pod does not project, it does not get
    raise NotRunnable(
        f"{title(pod)} projects no token to {place[:200]!r}, where its proxy looks for one",
        reason="PodTokenMissing",
        hint="have it made anew by the injector",
    )


def _source(pod: Mapping[str, Any], volume: str, name: str) -> dict[str, Any] | None:
    for row in jsonpath.mappings(pod, "spec", "volumes"):
        if row.get("name") == volume:
            for source in jsonpath.mappings(row, "projected", "sources"):
                if jsonpath.text(source, "serviceAccountToken", "path") == name:
                    return jsonpath.mapping(source, "serviceAccountToken")
    return None


def patience(pod: Mapping[str, Any]) -> float | None:
    """How many seconds the application waits for its proxy to be ready, by the proxy's start-up probe; None: it does not wait."""
    probe = jsonpath.mapping(require_injected(pod), "startupProbe")
    if not probe:
        return None
    return float((jsonpath.number(probe, "periodSeconds") or 10) * (jsonpath.number(probe, "failureThreshold") or 3))


def proxy_variables(resolved: Mapping[str, str], *, store: str, token_file: str) -> dict[str, str]:
    """The proxy's settings, with real paths (5)."""
    own = {name: value for name, value in resolved.items() if name.startswith(_SETTINGS)}
    real = {proxy_environment.TOKEN_FILE: token_file}
    # 5. both spellings of the directory
    real |= dict.fromkeys((proxy_environment.STORE, f"{sidecar.PREFIX}IDENTITY_DIR"), store)
    return {**own, **{name: path for name, path in real.items() if name in own}}


def application_variables(
    inherited: Mapping[str, str],
    own: Mapping[str, str],
    pod: Mapping[str, Any],
    *,
    ip: str,
    proxy: str,
    admin: str,
    spiffe: str = "",
) -> dict[str, str]:
    """The application's environment: the caller's, the Pod's own, and where its proxy is (6)."""
    kept = {
        name: value
        for name, value in inherited.items()
        # 6. no way to a credential
        if name not in _NOT_PASSED_NAMES and not name.startswith(_NOT_PASSED)
    }
    return {
        **{name: value for name, value in {**kept, **own}.items() if name.lower() not in _OF_PROXIES},
        # In small letters only: HTTP_PROXY is what a request with a header `Proxy` sets for a CGI program.
        "http_proxy": proxy,
        "no_proxy": "localhost,127.0.0.1",
        "POD_NAME": jsonpath.text(pod, "metadata", "name"),
        "POD_NAMESPACE": jsonpath.text(pod, "metadata", "namespace"),
        "POD_IP": ip,
        "MESH_ADMIN": admin,
        **({"SPIFFE_ENDPOINT_SOCKET": f"unix://{spiffe}"} if spiffe else {}),
    }


def loopback(uid: str, attempt: int) -> str:
    """An address of this machine alone that is the Pod's own; the next attempt has another."""
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).digest()
    # Not in 127.0.0.0/10, where others have theirs.
    return f"127.{64 + digest[0] % 191}.{digest[1]}.{1 + digest[2] % 254}"


def title(pod: Mapping[str, Any]) -> str:
    """What messages call it."""
    return f"Pod {jsonpath.text(pod, 'metadata', 'namespace')}/{jsonpath.text(pod, 'metadata', 'name')}"
