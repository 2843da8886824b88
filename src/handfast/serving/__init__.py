# SPDX-License-Identifier: Apache-2.0
"""THE DOOR: everything between a socket and the function that answers a request.

What lives here. Accepting connections and sharing them out (`listener`, `gate` with `visitor`, `rates` and `handshakes`);
TLS as a server speaks it (`server_tls`, `tls_alert`); HTTP/1.1 on one connection (`connection`, and `aiohttp_parts`, the one
file that knows aiohttp from inside); answers and what nobody has read of them (`answers`, `sending`, `unread`); the numbers
that bound all this (`limits`, `buckets`); who is at the other end (`peer`). On top of it a whole service (`service`), health
and metrics over HTTP (`probes`), and a port for nothing but these (`admin`).

What it may import: `telemetry`, `runtime` and the deciding half. It does not know `client` and `store`, which stand beside it,
nor any service.

What it never does: say who somebody is or what they may do, know an object of the API, keep anything on disk.

Where to start: `service`, with tests/unit/serving/role.py, a whole service in thirty lines; then `listener`, in the order in
which a connection goes through it. Roles use `service`, `server_tls`, `answers`, `limits`, `peer`, `probes` and `admin`; the
API server also `listener`, `connection` and `sending`. The rest is nobody else's (.importlinter, tests/test_serving_fence.py).
"""
