# SPDX-License-Identifier: Apache-2.0
"""A server and a client of gRPC without TLS, as programs for a Pod. They prove nothing themselves.

The server answers with the metadata that a call came with; the client prints how its call ended, and what it heard.
"""

from __future__ import annotations

SERVER = """
import concurrent.futures, grpc, json, sys
def echo(request, context):
    return json.dumps({key: value for key, value in context.invocation_metadata() if isinstance(value, str)}).encode()
class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(echo) if details.method == "/peer.Echo/Echo" else None
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[Echo()])
server.add_insecure_port(f"0.0.0.0:{sys.argv[1]}")
server.start()
server.wait_for_termination()
"""
CLIENT = """
import grpc, sys
with grpc.insecure_channel(sys.argv[1]) as channel:
    try:
        print("OK", channel.unary_unary("/peer.Echo/Echo")(b"", timeout=15).decode())
    except grpc.RpcError as error:
        rows = {**dict(error.initial_metadata() or ()), **dict(error.trailing_metadata() or ())}
        print(error.code().name, rows.get("l5d-proxy-error", ""), error.details())
"""
