# SPDX-License-Identifier: Apache-2.0
"""The floor of Certify: a bare grpcio handler of the same messages, on the same loop, which answers with the same octets.

It reads the request and writes the answer with the message classes of `wire`, and does nothing else.

    python -m bench.certify_floor ANSWER_FILE
"""

from __future__ import annotations

import asyncio
import pathlib
import signal
import sys
from typing import Any

import grpc
import grpc.aio
import uvloop

from handfast.wire import mesh_messages


async def serve(answer: bytes) -> None:
    """Serve on a free port, print it, go on until SIGTERM."""
    response = mesh_messages.CertifyResponse.FromString(answer)

    async def certify(_message: Any, _context: Any) -> Any:
        return response

    handler = grpc.unary_unary_rpc_method_handler(
        certify,
        request_deserializer=mesh_messages.CertifyRequest.FromString,
        response_serializer=mesh_messages.CertifyResponse.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(mesh_messages.IDENTITY_SERVICE, {"Certify": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(serve(pathlib.Path(sys.argv[1]).read_bytes()))
