# SPDX-License-Identifier: Apache-2.0
"""Role-based access control: what roles grant, to whom, and the roles that are there from the start.

Holds: Policy rules, bindings, escalation, default roles.
Imports: api, errors, rules.
Never: It reads no objects: the API server's `access/policy.py` feeds it.
Start: `policy.py`.
"""
