# SPDX-License-Identifier: Apache-2.0
"""An HTTPS server of our own that reads a body and answers with the same bytes each time: what a role costs before it does anything.

It stands on `serving`, as the roles do, with the same limits and with TLS 1.3.

    python -m bench.echo CERTIFICATE KEY ANSWER_FILE
"""

from __future__ import annotations

import asyncio
import pathlib
import signal
import socket
import ssl
import sys

import uvloop

from handfast.runtime import clock as clocks
from handfast.serving import answers, bodies, server_tls, service

_MAX_BYTES = 4 << 20
_SECONDS = 10.0


async def serve(certificate: str, key: str, answer: bytes) -> None:
    clock = clocks.SystemClock()
    pair = server_tls.PairFiles(pathlib.Path(certificate), pathlib.Path(key), clock)
    tls = server_tls.ServerTLS(pair.current, clock, minimum=ssl.TLSVersion.TLSv1_3)

    async def handle(http: service.Request) -> answers.Answer:
        await bodies.read(http, _SECONDS, bodies.at_most(_MAX_BYTES), lambda _: None)
        return answers.Answer(answer)

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with service.Service(handle, tls=tls, clock=clock).on(sock):
            sys.stdout.write(f"{sock.getsockname()[1]}\n")
            sys.stdout.flush()
            await stop.wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).read_bytes()))
