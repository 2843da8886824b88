# SPDX-License-Identifier: Apache-2.0
"""A whole HTTPS service, as a new role would begin: all that it needs is here, and in `serving`."""

from __future__ import annotations

import pathlib
import socket

from handfast.runtime import clock as clocks
from handfast.serving import answers, limits, server_tls, service


def role(
    directory: pathlib.Path, client_ca: bytes | None, clock: clocks.Clock, bounds: limits.Limits | None = None
) -> service.Service:
    files = server_tls.PairFiles(directory / "tls.crt", directory / "tls.key", clock)
    tls = server_tls.ServerTLS(files.current, clock, client_ca)
    return service.Service(greet, tls=tls, clock=clock, limits=bounds)


async def greet(http: service.Request) -> answers.Answer:
    peer = service.peer_of(http)
    if not peer.chain:
        return answers.text(401, "show a certificate\n")
    service.proved(http, peer.address)
    return answers.text(200, f"hello to {http.path} from {peer.address}\n")


def bound() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))
