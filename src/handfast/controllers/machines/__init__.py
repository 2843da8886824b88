# SPDX-License-Identifier: Apache-2.0
"""Machine fleets: bootstrap credentials that can be revoked, and approval by inventory.

Holds: The client-ca controller, the keeper of the bootstrap token, node-link, the machine-approver, the roll-out of credentials.
Imports: api, client, controllers, controllers.certificates, errors, pki, rules, runtime.
Never: It decides nothing: `rules.machines` does. A controller never imports another one.
Start: `approver.py`.
"""
