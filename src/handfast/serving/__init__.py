# SPDX-License-Identifier: Apache-2.0
"""The door: everything between a socket and the function that answers a request.

Holds: Accepting connections and sharing them out (`listener`, `gate`), TLS as a server speaks it (`server_tls`), HTTP/1.1
on one connection (`connection`), answers and what nobody has read of them, the limits of all this, and a whole service
(`service`) with health and metrics (`probes`, `admin`). `aiohttp_parts` is the one file that knows aiohttp from inside.
Imports: api, errors, pki, rules, runtime, telemetry.
Never: It does not say who somebody is or what they may do, knows no object of the API, and keeps nothing on disk.
Start: `service.py`, with tests/unit/serving/role.py, a whole service in thirty lines; then `listener.py`, in the order in which
a connection goes through it.
"""
