# SPDX-License-Identifier: Apache-2.0
"""gRPC: messages from field numbers, a server, and the TLS that stands in front of it.

Holds: Run-time message classes (`descriptors`, `mesh_messages`), the server (`server`), its TLS terminator (`terminator`,
`server_tls`), who is at the other end of a call (`peers`), the client's side (`channel`, `certifying`), Envoy's configuration (`ads`, `envoy_messages`), and the word for what is missing (`extra`).
Imports: errors, pki, rules, runtime.
Never: It decides nothing, and knows no object of the API. No other room imports grpcio or protobuf's library.
Start: `server.py`, then `terminator.py`; `mesh_messages.py` for what is said.
"""
