# SPDX-License-Identifier: Apache-2.0
"""The node agent: one machine's identity, its Node and its Lease.

Holds: Joining, keeping both certificates, reporting, static Pods.
Imports: api, bootstrap, client, errors, pki, rules, runtime, serving, telemetry.
Never: It runs no containers. It imports no other service.
Start: `agent.py`.
"""
