# SPDX-License-Identifier: Apache-2.0
"""Diagnosing a control plane: which facts are looked up for `handfast check` and `handfast status`, one row each.

Holds: The table of what is looked up, with a deadline for each row, and the run of it.
Imports: api, bootstrap, client, controllers, datadir, errors, pki, rules, runtime.
Never: It changes nothing, and judges nothing: `rules.diagnoses` does.
Start: `look.py`.
"""
