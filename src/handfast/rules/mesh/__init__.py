# SPDX-License-Identifier: Apache-2.0
"""The mesh: how workloads are called, what the control plane is set to, and by whom their certificates are signed.

Holds: The name schemes, the settings in linkerd-config, the checks of issuer and trust anchors, the objects of an installation,
the checks of Certify, the injection of the proxy.
Imports: api, bootstrap, errors, pki, rules, rules.envoy, rules.ledger, rules.nodes, rules.rbac.
Never: It calls no API, serves nothing and signs no workload: `client` and `mesh` do.
Start: `names.py`, then `issuer.py`.
"""
