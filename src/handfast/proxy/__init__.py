# SPDX-License-Identifier: Apache-2.0
"""The proxy beside a workload: Envoy, and the agent that tells it what to do.

Holds: The directory with the workload's key, made before a proxy starts. Its certificate, kept fresh, and the anchors that it believes. The parts of what Envoy is told: who may call, connections to the workload, connections that it opens. What is heard from the control plane, and reported to it. What the admin port answers, and the SPIFFE socket. How Envoy is found, started, asked and kept running, and how a Pod's connections are redirected to it.
Imports: client, errors, pki, rules, runtime, serving, wire.
Never: It forwards no octet of a workload's: Envoy does. It decides nothing: `rules.envoy` and `rules.mesh` do.
Start: `agent.py`, then its parts `judgements.py`, `inbound.py` and `outbound.py`; for the certificate `store_directory.py`, then `credentials.py`.
"""
