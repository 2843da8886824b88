# SPDX-License-Identifier: Apache-2.0
"""Routes of what the application sends, by RDS, with the headers of the mesh. Which endpoints a destination has is not known here.

A request takes the first row that fits:

1. What leads to this machine itself is refused: the workload calls its own addresses without a proxy, and nobody comes round its inbound policy.
   So are the proxy's own ports under any name, since a name can lead anywhere.
2. Names of the mesh, and IP addresses, are asked for as they are needed. A cluster is named by a header that the listener sets, and that no
   client can: `http/` with the authority, or `tcp/` for a tunnel. So no authority leads to a cluster of the agent's own.
3. All other names are DNS's. Where an identity is required they are refused: nobody proves one there.
4. CONNECT is a tunnel, byte for byte. Where an identity is required it is refused: nobody proves one in it.
5. `l5d-require-id` that is not the name of a workload, or is there twice, is refused; so is a tunnel, or a name of DNS, with one. Which endpoint is
   taken by it, `outbound` says, where it is honoured at all.
6. `l5d-server-id` of an answer is what the endpoint's certificate proved, or is not there.
7. In transparent mode (`redirected`) every request is asked for by where it was going, whatever its authority; and CONNECT, which was for somebody else,
   goes on as it is.
8. An authority that is longer than a name and a port can be is refused: Envoy keeps each name that it asks for, and it may be the choice of whoever has the workload call.
9. An endpoint that cannot be reached, or says that it has not begun, was sent nothing: another one is tried, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from handfast.rules.envoy import dns, http, judging, resources

OUTBOUND: Final = "outbound"
REQUIRE_ID: Final = "l5d-require-id"
# Set by the listener; gone before a request leaves.
HTTP_CLUSTER: Final = "l5d-handfast-http"
TCP_CLUSTER: Final = "l5d-handfast-tcp"
# The names of refusals, as the header `l5d-proxy-error` has them.
IDENTITY_REQUIRED: Final = judging.IDENTITY_REQUIRED
UNREADABLE: Final = "required-identity-unreadable"
BAD: Final = "bad-destination"
_FORBIDDEN: Final = 403
_PREVIOUS: Final = "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
_A_NAME: Final = "[0-9a-z.-]+"
_TUNNEL: Final[resources.Document] = {"connect_matcher": {}}
_ANY: Final[resources.Document] = {"prefix": "/"}
# An address, or what a resolver might take for one: the last label is a number.
_NUMBER: Final = r"\[.*|(.*\.)?([0-9]+|0[xX][0-9a-fA-F]*)\.?(:.*)?"
# A name of 253 letters, a dot at its end, and a port. What may be in an authority is ASCII.
_TOO_LONG: Final = "[!-~]{261}.*"
_HOME: Final = ("localhost", "localhost.", "*.localhost", "*.localhost.")

Rows = list[resources.Document]


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """Which names are asked for (`domains`, what they end in), which ports are the proxy's own, and what is required."""

    domains: tuple[str, ...] = ()
    own_ports: tuple[int, ...] = ()
    identity_headers: bool = False
    require_identity: bool = False
    redirected: bool = False


def document(facts: Routing) -> resources.Document:
    """The routes of everything that the application sends."""
    document: dict[str, Any] = {
        "name": OUTBOUND,
        "ignore_port_in_host_matching": True,
        "request_headers_to_remove": [http.FORWARDED],
        # 6. what was proved, or nothing
        "response_headers_to_remove": [http.SERVER_ID],
        "virtual_hosts": list(_hosts(facts)),
    }
    if facts.identity_headers:
        document["response_headers_to_add"] = [http.header(http.SERVER_ID, "%UPSTREAM_PEER_DNS_SAN%")]
    return document


def _hosts(facts: Routing) -> Iterable[resources.Document]:
    if facts.redirected:
        yield _host("all", ["*"], _by_destination(facts))
        return
    # 1. this machine
    yield _host("home", _HOME, [_refused(match, dns.OWN_ADDRESS) for match in (_TUNNEL, _ANY)])
    if facts.domains:
        domains = [f"*.{domain}{dot}" for domain in facts.domains for dot in ("", ".")]
        yield _host("mesh", domains, [*_too_long(), *_on_demand(facts)])
    rows = [*_on_demand(facts, _authority(_NUMBER)), *_own_ports(facts), *_by_dns(facts)]
    yield _host("all", ["*"], [*_too_long(), *rows])


def _host(name: str, domains: Iterable[str], rows: Rows) -> resources.Document:
    return {"name": name, "domains": list(domains), "routes": rows, "retry_policy": _again()}


def _again() -> resources.Document:
    # 9. where nothing was sent, and elsewhere
    another = resources.extension("envoy.retry_host_predicates.previous_hosts", _PREVIOUS)
    return {
        "retry_on": "connect-failure,refused-stream",
        "num_retries": 1,
        "retry_host_predicate": [another],
        "host_selection_retry_max_attempts": 3,
    }


def _too_long() -> Rows:
    # 8. no name
    return [_refused(_with(match, _authority(_TOO_LONG)), BAD) for match in (_TUNNEL, _ANY)]


def _on_demand(facts: Routing, *headers: resources.Document) -> Rows:
    # 2. asked for as it is needed
    tunnel, rest = _with(_TUNNEL, *headers), _with(_ANY, *headers)
    return [
        *(_required(tunnel, rest) if facts.identity_headers else ()),
        _refused(tunnel, IDENTITY_REQUIRED) if facts.require_identity else _tunnel(tunnel, cluster_header=TCP_CLUSTER),
        http.route(rest, cluster_header=HTTP_CLUSTER),
    ]


def _by_destination(facts: Routing) -> Rows:
    # 7. where it was going
    passed = http.route(dict(_TUNNEL), cluster_header=HTTP_CLUSTER)
    passed["route"]["upgrade_configs"] = [{"upgrade_type": "CONNECT"}]
    required = _required(_TUNNEL, _ANY)[1:] if facts.identity_headers else []
    return [*required, passed, http.route(dict(_ANY), cluster_header=HTTP_CLUSTER)]


def _own_ports(facts: Routing) -> Rows:
    # 1. under any name, and as Envoy reads numbers: with a sign, too
    ports = "|".join(str(port) for port in facts.own_ports)
    own = _authority(rf".*:\+?0*({ports})")
    return [_refused(_with(match, own), dns.OWN_ADDRESS) for match in (_TUNNEL, _ANY)] if ports else []


def _by_dns(facts: Routing) -> Rows:
    # 3. nobody proves an identity there
    if facts.require_identity:
        return [_refused(match, IDENTITY_REQUIRED) for match in (_TUNNEL, _ANY)]
    wanted = [_refused(_with(match, _PRESENT), IDENTITY_REQUIRED) for match in (_TUNNEL, _ANY)]
    rows = [_tunnel(dict(_TUNNEL), cluster=dns.CLUSTER), http.route(dict(_ANY), cluster=dns.CLUSTER)]
    judged = [{**row, "typed_per_filter_config": dns.per_route()} for row in rows]
    return [*(wanted if facts.identity_headers else ()), *judged]


def _tunnel(match: resources.Document, **target: str) -> resources.Document:
    # 4. byte for byte
    row = http.route(match, **target)
    row["route"]["upgrade_configs"] = [{"upgrade_type": "CONNECT", "connect_config": {}}]
    return row


_PRESENT: Final = {"name": REQUIRE_ID, "present_match": True}


def _required(tunnel: resources.Document, rest: resources.Document) -> Rows:
    # 5. the name of a workload, once, and in no tunnel
    unreadable = {**_matches(REQUIRE_ID, _A_NAME), "invert_match": True}
    return [
        _refused(_with(tunnel, _PRESENT), IDENTITY_REQUIRED),
        _refused(_with(rest, _PRESENT, unreadable), UNREADABLE),
    ]


def _with(match: resources.Document, *headers: resources.Document) -> resources.Document:
    known = match.get("headers", [])
    return {**match, "headers": [*known, *headers]} if known or headers else dict(match)


def _authority(pattern: str) -> resources.Document:
    return _matches(":authority", pattern)


def _matches(name: str, pattern: str) -> resources.Document:
    return {"name": name, "string_match": {"safe_regex": {"regex": pattern}}}


def _refused(match: resources.Document, why: str) -> resources.Document:
    return {
        "match": dict(match),
        "direct_response": {"status": _FORBIDDEN, "body": {"inline_string": why}},
        "response_headers_to_add": [http.header(http.ERROR_HEADER, why)],
    }
