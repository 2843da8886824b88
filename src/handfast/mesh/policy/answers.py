# SPDX-License-Identifier: Apache-2.0
"""The messages that proxies are answered with, built from rules. It decides nothing, and knows no cluster.

A proxy answers everything with an error where a message lacks what it needs, so each has it:

1. A Server has a protocol; where the protocol is detected, a time for that; and a name.
2. An authorization has networks, an authentication and what it is called.
3. Where there are routes, one of them has every request: the others would be refused.
4. A policy for a Service has a way for each protocol, which all lead to one balancer. That one asks the destination service where the endpoints are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from handfast.api import handfast_kinds
from handfast.rules.mesh import authorities, authorizations, policy
from handfast.wire import policy_messages

KIND: Final = handfast_kinds.MESH_POLICY
PROBE: Final = "probe"
DEFAULT: Final = "default"
_DETECT: Final = {"seconds": 10}
_QUEUE: Final = {"capacity": 100, "failfast_timeout": {"seconds": 3}}
_RTT: Final = {"default_rtt": {"nanos": 30_000_000}, "decay": {"seconds": 10}}
_NETWORKS: Final = (
    {"net": {"ip": {"ipv4": int(ipaddress.IPv4Address(0))}, "prefix_len": 0}},
    {"net": {"ip": {"ipv6": {"first": 0, "last": 0}}, "prefix_len": 0}},
)
_EVERY_REQUEST: Final = {"matches": [{"path": {"prefix": "/"}}]}
# What is said of a service in the words of Linkerd's own controller.
_CORE: Final = "core"
_MOST_NAME: Final = 253


def inbound(rules: policy.PortRules, *, is_opaque: bool, probes: Sequence[str]) -> Any:
    """What a proxy does with clients of one port; `probes` are the paths that stay open."""
    rows = authorizations.of(rules)
    # What everybody may ask needs no route of its own.
    is_open = any(row.anyone for row in rows)
    routes = [] if is_open or not probes else [_probes(probes), _rest()]
    # 1. a protocol, a time, a name
    detect = {"timeout": _DETECT, "http_routes": routes}
    return policy_messages.Server(
        protocol={"opaque": {}} if is_opaque else {"detect": detect},
        authorizations=[_authz(row) for row in rows],
        labels=_server_labels(rules),
    )


def _server_labels(rules: policy.PortRules) -> dict[str, str]:
    if not rules.policies:
        return {"group": "", "kind": DEFAULT, "name": authorizations.EVERYBODY}
    names = ",".join(title.partition("/")[2] for title in rules.policies)
    return {"group": KIND.group, "kind": KIND.singular, "name": names[:_MOST_NAME]}


def _authz(row: authorizations.Authorization) -> dict[str, Any]:
    # 2. networks, an authentication, a name
    return {"networks": _NETWORKS, "authentication": _authn(row), "labels": _labels(row), "metadata": _metadata(row)}


def _authn(row: authorizations.Authorization) -> dict[str, Any]:
    if row.anyone:
        return {"unauthenticated": {}}
    suffixes = [{"parts": suffix.removeprefix(".").split(".") if suffix else []} for suffix in row.suffixes]
    identities = [{"name": identity} for identity in row.identities]
    return {"meshTLS": {"identities": {"identities": identities, "suffixes": suffixes}}}


def _labels(row: authorizations.Authorization) -> dict[str, str]:
    if not row.policy:
        return {"group": "", "kind": DEFAULT, "name": row.default}
    return {"group": KIND.group, "kind": KIND.singular, "name": row.policy.partition("/")[2]}


def _metadata(row: authorizations.Authorization) -> dict[str, Any]:
    if not row.policy:
        return {"default": row.default}
    namespace, _, name = row.policy.partition("/")
    return {"resource": {"group": KIND.group, "kind": KIND.singular, "name": name, "namespace": namespace}}


def _probes(paths: Sequence[str]) -> dict[str, Any]:
    get = {"registered": policy_messages.GET}
    everybody = authorizations.Authorization(default=PROBE, anyone=True)
    return {
        "metadata": {"default": PROBE},
        "authorizations": [_authz(everybody)],
        "rules": [{"matches": [{"path": {"exact": path}, "method": get} for path in paths]}],
    }


def _rest() -> dict[str, Any]:
    # 3. every other request, with the authorizations of the Server
    return {"metadata": {"default": DEFAULT}, "rules": [_EVERY_REQUEST]}


def outbound(service: authorities.Service, *, is_opaque: bool) -> Any:
    """How a proxy reaches a port of a Service."""
    about = {"group": _CORE, "kind": "Service", "name": service.name, "namespace": service.namespace}
    metadata = {"resource": {**about, "port": service.port}}
    balancer = {"discovery": {"dst": {"path": f"{service.fqdn}:{service.port}"}}, "peak_ewma": _RTT}
    backend = {"metadata": metadata, "balancer": balancer, "queue": _QUEUE}
    backends = {"first_available": {"backends": [{"backend": backend}]}}
    # 4. a way for each protocol
    plain = {"metadata": {"default": "opaq"}, "rules": [{"backends": backends}]}
    http = {"metadata": {"default": "http"}, "rules": [{**_EVERY_REQUEST, "backends": backends}]}
    opaque = {"routes": [plain]}
    detect = {"timeout": _DETECT, "opaque": opaque, "http1": {"routes": [http]}, "http2": {"routes": [http]}}
    return policy_messages.OutboundPolicy(
        protocol={"opaque": opaque} if is_opaque else {"detect": detect}, metadata=metadata
    )
