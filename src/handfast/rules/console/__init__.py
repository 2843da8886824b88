# SPDX-License-Identifier: Apache-2.0
"""What the console says and where things lie in it, from facts that were looked up.

Holds: The sentences, rows, axes and pictures of each page.
Imports: api, errors, pki, rules, rules.ledger, rules.mesh.
Never: It draws nothing and looks nothing up: the room `console` does.
Start: `mesh.py`.
"""
