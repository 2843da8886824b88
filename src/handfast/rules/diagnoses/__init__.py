# SPDX-License-Identifier: Apache-2.0
"""Diagnoses: what `handfast check` and `handfast status` say of a control plane, from facts that were looked up.

Holds: The facts, one judge for each check, the order of the checks, the lines of status, and the reports.
Imports: api, bootstrap, errors, pki, rules, rules.certificates, rules.machine_config, rules.machines, rules.mesh, rules.nodes.
Never: It looks nothing up and changes nothing: `check` does the first, and nobody the second.
Start: `facts.py`, then `judged.py`.
"""
