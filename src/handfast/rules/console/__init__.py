# SPDX-License-Identifier: Apache-2.0
"""The console: what its pages say, and in which order, from what is known. It draws nothing and looks nothing up.

Holds: The sentences of the overview, what expires when, rows by filter, sort and range, how instants and strangers' names are written, and the codes that open it.
Imports: api, bootstrap, errors, pki, rules, rules.certificates, rules.diagnoses, rules.ledger, rules.machine_config, rules.machines, rules.mesh, rules.nodes, rules.tokens.
Never: It knows no HTML, no browser and no session: the room `console` does.
Start: `overview.py`, then `questions.py` and `rows.py`.
"""
