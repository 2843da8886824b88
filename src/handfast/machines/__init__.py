# SPDX-License-Identifier: Apache-2.0
"""The machine-config server: Ignition configurations for machines that prove who they are.

Holds: What is answered over HTTP, from the objects of a cluster that it follows or from a directory before there is one, and the audit of it.
Imports: api, client, errors, pki, rules, runtime, serving, telemetry.
Never: It decides nothing: `rules.machine_config` does. It writes nothing to the cluster. It imports no other service.
Start: `handler.py`, the whole way of a request; then `cluster.py`.
"""
