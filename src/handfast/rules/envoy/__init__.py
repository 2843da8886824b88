# SPDX-License-Identifier: Apache-2.0
"""Envoy's configuration as JSON documents: what the proxy beside a workload is told in each state of its certificate.

Holds: The bootstrap, listeners, clusters, endpoints, routes, secrets and what is judged for each request, as small functions of frozen facts.
Imports: api, errors.
Never: It sends nothing, starts nothing and asks no clock: `wire` and `proxy` do.
Start: for who calls the workload `inbound.py`, `inbound_routes.py` and `judging.py`; for whom it calls `outbound.py`, `outbound_routes.py` and `destinations.py`.
"""
