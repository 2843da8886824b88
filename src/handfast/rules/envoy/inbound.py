# SPDX-License-Identifier: Apache-2.0
"""The listener of a port of the workload, in each state of the own certificate. It keeps no state: whoever calls it says which one it is.

A connection takes the first chain that fits:

1. TLS with the own name as SNI. Without a certificate in force (`REFUSE`) it is reset: not forwarded, not decoded, and no certificate shown. The
   chain is never left out, since the ClientHello would fit the next one and reach the application. With one (`TLS`) it is served. A proxy
   without an identity (`PLAIN`) has no own name.
2. Other TLS is passed byte for byte: it is the application's.
3. HTTP in plaintext is forwarded, from the first moment; who may call is judged with the routes.
4. Any other TCP is forwarded, byte for byte.
5. Where not everybody may come in (`tcp` is false), what has no name and no request, 2 and 4, is reset instead: the application sees no connection.
6. An opaque port has one chain, and waits for no octet of the client, since the server may speak first: everything is as 4.
7. A connection of TLS ends gracefully after `longest` seconds. Others are of no certificate, and have no end of the proxy's.
8. What is reset is counted (`refusals`): it is on its way to a cluster that does not exist, and ends there before an octet is read.

Who sends its ClientHello slowly is waited for: what is not known in time is closed, never passed on unseen. The address is for one listener alone:
no other process shares it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.rules.envoy import http, judging, observing, ports, refusals, resources, tls

_LISTENER_FILTERS: Final = {
    "tls_inspector": "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    "http_inspector": "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector",
}
# What the inspector calls requests in plaintext.
REQUESTS: Final = ("http/1.0", "http/1.1", "h2c")
_PLAINTEXT: Final = "raw_buffer"
# Nothing may be called so.
_NOWHERE: Final = "nowhere"


class State(enum.StrEnum):
    """What the own certificate is good for."""

    PLAIN = "plain"
    REFUSE = "refuse"
    TLS = "tls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A listener: where it is, for which port, as whom (empty: a plain proxy), how many seconds a connection lasts, and whether all may come in."""

    host: str
    port: ports.Port
    identity: str = ""
    longest: int = 3600
    tcp: bool = True


def listener(facts: Facts, state: State) -> resources.Document:
    if (state is State.PLAIN) == bool(facts.identity):
        raise errors.Misuse(f"a listener with identity {facts.identity!r} has no state {state}")
    document = {
        "name": facts.port.listener,
        "address": resources.address(facts.host, facts.port.number),
        "traffic_direction": "INBOUND",
        "enable_reuse_port": False,
    }
    # 6. nothing is waited for
    if facts.port.opaque:
        return {
            **document,
            "filter_chains": [chain("opaque", {}, _bytes("in_opaque", refusals.OPAQUE, observing.NOT_HTTP, facts))],
        }
    return {**document, "listener_filters": inspectors(), "filter_chains": chains(facts, state)}


def inspectors() -> list[resources.Document]:
    """What looks at the first octets of a connection."""
    return [resources.extension(f"envoy.filters.listener.{name}", kind) for name, kind in _LISTENER_FILTERS.items()]


def chains(facts: Facts, state: State) -> list[resources.Document]:
    """What is done with a connection whose first octets are known."""
    return [*_own(facts, state), *_others(facts)]


def _own(facts: Facts, state: State) -> list[resources.Document]:
    # 1. TLS with the own name
    match = {"server_names": [facts.identity], "transport_protocol": "tls"}
    if state is State.PLAIN:
        return []
    if state is State.REFUSE:
        return [chain("identity", match, reset(refusals.OWN_NAME))]
    # 7. ends gracefully
    manager = http.manager("in_tls", facts.port.routes, judging.filters(), facts.longest, [observing.requests()])
    return [{**chain("identity", match, manager), "transport_socket": tls.downstream()}]


def _others(facts: Facts) -> list[resources.Document]:
    plaintext = {"transport_protocol": _PLAINTEXT}
    requests = {**plaintext, "application_protocols": list(REQUESTS)}
    manager = http.manager("in_http", facts.port.plaintext_routes, judging.filters(), None, [observing.requests()])
    return [
        # 2. other TLS; 3. HTTP in plaintext; 4. any other TCP
        chain(
            "passthrough",
            {"transport_protocol": "tls"},
            _bytes("in_tls_passthrough", refusals.TLS, observing.FOREIGN_TLS, facts),
        ),
        chain("http", requests, manager),
        chain("tcp", plaintext, _bytes("in_tcp", refusals.TCP, observing.NOT_HTTP, facts)),
    ]


def chain(name: str, match: resources.Document, last: resources.Document) -> resources.Document:
    """One way that a connection may go; `last` is the filter that does it."""
    return {"name": name, "filter_chain_match": match, "filters": [last]}


def _bytes(passed: str, refused: str, unsecured: str, facts: Facts) -> resources.Document:
    # 5. for everybody, or for nobody
    return relay(passed, facts.port.cluster, unsecured) if facts.tcp else reset(refused)


def relay(stat_prefix: str, cluster: str, unsecured: str = "") -> resources.Document:
    """Passes everything on, byte for byte; it is told why that is not secured, unless nothing is passed on."""
    return resources.extension(
        "envoy.filters.network.tcp_proxy",
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        stat_prefix=stat_prefix,
        cluster=cluster,
        # Envoy's own is an hour.
        idle_timeout="0s",
        **(observing.connections(unsecured) if unsecured else {}),
    )


def reset(stat_prefix: str) -> resources.Document:
    """Ends a connection at once, and counts it: nothing is read of it, and nobody else sees it."""
    # 8. a cluster that nobody has
    return relay(stat_prefix, _NOWHERE)
