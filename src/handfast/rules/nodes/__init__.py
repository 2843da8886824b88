# SPDX-License-Identifier: Apache-2.0
"""What a node may read and write, and whether it is alive.

Holds: The node authorizer and its graph, NodeRestriction, recovery, liveness, claims on a name.
Imports: api, bootstrap, errors, pki, rules, rules.certificates, rules.ledger, rules.tokens.
Never: It holds no Leases and sees no requests: facts are arguments.
Start: `authorizer.py` for reads, `restriction.py` for writes.
"""
