# SPDX-License-Identifier: Apache-2.0
"""Routes to the application, by RDS, with the headers of the mesh. Who may call is judged by `judging`, which they carry.

1. Every header `l5d-…` of a request from outside is gone before `l5d-client-id` is set, and that only from a verified certificate.
2. HTTP/1.1 that came over HTTP/2, which `l5d-orig-proto` says, is HTTP/1.1 again for the application.
3. A path that probes ask has a route of its own, for GET and the whole path, whatever follows a question mark. It is for what a kubelet sends and no more: with
   a body, or to become a WebSocket, a request is judged as any other. Some servers take a WebSocket at any path, and some read no body of GET: what is in it
   would be a request that nobody has judged. A body in chunks is none: each begins with its size.
4. When the own certificate is over, requests on connections that it made are refused: they are open while the chain that was replaced drains.
5. Who calls is seen by the way (`observing`), but for probes in plaintext: the kubelet is no workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from handfast.rules.envoy import http, judging, ports, resources

_GET: Final[resources.Document] = {"name": ":method", "string_match": {"exact": "GET"}}
# What no probe has.
_BARE: Final = [{"name": name, "present_match": True, "invert_match": True} for name in ("upgrade", "content-length")]


def documents(
    port: ports.Port,
    rows: Sequence[judging.PortJudgement],
    deny: judging.Deny,
    *,
    identity_headers: bool,
    is_over: bool = False,
) -> tuple[resources.Document, resources.Document]:
    """All requests to a port, by TLS and by plaintext; where `port` stands for all of them, the rows tell them apart.

    `identity_headers` tells the application who calls; `is_over` says that the own certificate has ended.
    """
    # 4. nobody is served by it
    own = [judging.OVER] if is_over else rows
    proved = _inbound(port, port.routes, own, proved=True)
    proved["virtual_hosts"][0]["typed_per_filter_config"][judging.LUA] = judging.script(deny)
    if identity_headers:
        proved["request_headers_to_add"] = [http.header(http.CLIENT_ID, "%DOWNSTREAM_PEER_DNS_SAN%")]
    plaintext = _inbound(port, port.plaintext_routes, rows, proved=False)
    plaintext["virtual_hosts"][0]["typed_per_filter_config"][judging.LUA] = judging.observed()
    return proved, plaintext


def _inbound(port: ports.Port, name: str, rows: Sequence[judging.PortJudgement], *, proved: bool) -> resources.Document:
    judged = {judging.RBAC: judging.matcher(rows, proved=proved)}
    routes = list(_routes(port, rows, proved=proved))
    return {
        "name": name,
        # 1. only what is verified; the rest of l5d-… is removed by the first filter
        "request_headers_to_remove": [http.CLIENT_ID, judging.VERDICT, http.FORWARDED],
        "response_headers_to_remove": [http.SERVER_ID],
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes, "typed_per_filter_config": judged}],
    }


def _routes(port: ports.Port, rows: Sequence[judging.PortJudgement], *, proved: bool) -> Iterator[resources.Document]:
    # 3. open to everybody
    for path in sorted({path for row in rows for path in row.open_paths}):
        judged = {judging.RBAC: judging.matcher(rows, proved=proved, path=path)}
        if not proved:
            # 5. probes of the kubelet's
            judged[judging.LUA] = judging.unobserved()
        for route in _both(port, {"path": path}, [_GET, *_BARE]):
            yield {**route, "typed_per_filter_config": judged}
    yield from _both(port, {"prefix": "/"}, [])


def _both(port: ports.Port, match: dict[str, Any], headers: list[resources.Document]) -> Iterator[resources.Document]:
    # 2. HTTP/1.1 again
    upgraded = {"name": http.ORIGINAL_PROTOCOL, "string_match": {"prefix": "HTTP/1"}}
    yield http.route({**match, "headers": [*headers, upgraded]}, cluster=port.http1_cluster)
    yield http.route({**match, **({"headers": headers} if headers else {})}, cluster=port.cluster)
