# SPDX-License-Identifier: Apache-2.0
"""Verdicts: every decision about trust, each with its reason.

Holds: Pure functions from facts to Approve, Deny or NotMine.
Imports: api, bootstrap, errors, pki, rules.certificates, rules.ledger, rules.machine_config, rules.machines, rules.nodes, rules.rbac, rules.webhooks.
Never: It does no I/O and keeps no time; it does not act on its verdicts.
Start: `decision.py`, then `access.py`.
"""
