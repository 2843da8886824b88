# SPDX-License-Identifier: Apache-2.0
"""What machines are configured with: MachineConfigs merged and rendered, the credential in them by digest, and who has which.

Holds: Ignition documents, their merge and rendering, pools and their roll-outs, which bootstrap credential a pool gets.
Imports: api, bootstrap, errors, pki, rules, rules.machines, rules.rbac, rules.tokens.
Never: It fetches, serves and writes no configuration: `controllers.machines`, `machines` and `node` do.
Start: `names.py`.
"""
