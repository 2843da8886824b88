# SPDX-License-Identifier: Apache-2.0
"""Machine fleets: which machines the operator knows, and which kubelet request is one of theirs.

Holds: The identity of bootstrap credentials, Machines as facts, the machine-approver's checks, the merge of client CAs.
Imports: api, bootstrap, errors, pki, rules, rules.certificates, rules.ledger, rules.rbac, rules.tokens.
Never: It follows no Machines and approves nothing: `controllers.machines` does.
Start: `approval.py`, then `inventory.py`.
"""
