# SPDX-License-Identifier: Apache-2.0
"""How often Envoy refused, by reason: read from its own figures. It counts nothing itself, and what Envoy forgets when it is started anew is gone.

| figure of Envoy's | reason |
|---|---|
| connections of TLS with the own name, without a certificate to show | `no-certificate` |
| other TLS, other TCP and opaque ports, where not everybody may come in | `tls-without-identity`, `tcp-without-identity`, `opaque-without-identity` |
| connections for another address than the Pod's, and for a port of the proxy's own, in transparent mode | `not-an-address-of-the-pod`, `port-of-the-proxy` |
| what the workload opens that is no HTTP, where an identity is required, in transparent mode | `outbound-without-identity` |
| clients whose certificate is of another authority, or over | `client-certificate` |
| servers whose certificate is of another authority, or over; or of another name | `server-certificate`, `server-name` |
| requests of the workload that its own proxy does not send on; the header says why | `destination` |
| requests to it that the routes refuse | the name of the verdict, as the header `l5d-proxy-error` has it |

1. A line that is not understood is left out: Envoy's other figures are not this module's.
2. Figures of one reason are added up.
3. Lines of other figures are not looked at: of a proxy that calls many there are a hundred thousand.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from handfast.rules.envoy import http

# Chains that pass nothing on, by what they refuse: parts of the names of figures.
OWN_NAME: Final = "in_refused_own_name"
TLS: Final = "in_refused_tls"
TCP: Final = "in_refused_tcp"
OPAQUE: Final = "in_refused_opaque"
ELSEWHERE: Final = "in_refused_elsewhere"
OWN_PORT: Final = "refused_own_port"
OUTBOUND: Final = "out_refused"
_CHAINS: Final = {
    OWN_NAME: "no-certificate",
    TLS: "tls-without-identity",
    TCP: "tcp-without-identity",
    OPAQUE: "opaque-without-identity",
    ELSEWHERE: "not-an-address-of-the-pod",
    OWN_PORT: "port-of-the-proxy",
    OUTBOUND: "outbound-without-identity",
}
_HANDSHAKES: Final = {
    "envoy_listener_ssl_fail_verify_error": "client-certificate",
    "envoy_cluster_ssl_fail_verify_error": "server-certificate",
    "envoy_cluster_ssl_fail_verify_san": "server-name",
}
_NO_ROUTE: Final = "envoy_tcp_downstream_cx_no_route"
_ANSWERED: Final = "envoy_http_rq_direct_response"
_DESTINATION: Final = "destination"
_VERDICT: Final = "envoy_rbac_policy_name"
_REFUSED: Final = "envoy_http_rbac_policy_denied"
_WOULD_BE: Final = "envoy_http_rbac_policy_shadow_denied"
# 3. of thousands of lines these alone are read
_NAMES: Final = (_NO_ROUTE, _ANSWERED, _REFUSED, _WOULD_BE, *_HANDSHAKES)
_LINE: Final = re.compile(r"(envoy_[a-z0-9_]{1,100})\{([^}\n]{0,1000})\} ([0-9]{1,18})", re.ASCII)
_LABEL: Final = re.compile(r'([a-z0-9_]{1,100})="([^"]{0,300})"', re.ASCII)


def refused(figures: str) -> dict[str, int]:
    """Connections and requests that were refused, by reason, from Envoy's figures in the form of Prometheus."""
    return _added(figures, _why)


def would_be_refused(figures: str) -> dict[str, int]:
    """Requests that a policy in audit would have refused, by reason."""
    return _added(figures, lambda name, labels: labels.get(_VERDICT) if name == _WOULD_BE else None)


def _why(name: str, labels: Mapping[str, str]) -> str | None:
    if name == _NO_ROUTE:
        return _CHAINS.get(labels.get("envoy_tcp_prefix", ""))
    if name == _ANSWERED:
        return _DESTINATION if labels.get("envoy_http_conn_manager_prefix") == http.OUTBOUND else None
    return labels.get(_VERDICT) if name == _REFUSED else _HANDSHAKES.get(name)


def _added(figures: str, why: Callable[[str, Mapping[str, str]], str | None]) -> dict[str, int]:
    counts: collections.Counter[str] = collections.Counter()
    for name, labels, count in _lines(figures):
        # 2. added up
        if reason := why(name, labels):
            counts[reason] += count
    return dict(counts)


def _lines(figures: str) -> Iterator[tuple[str, dict[str, str], int]]:
    for line in filter(lambda line: line.startswith(_NAMES), figures.splitlines()):
        match = _LINE.fullmatch(line)
        # 1. what is understood
        if match is not None:
            yield match[1], dict(_LABEL.findall(match[2])), int(match[3])
