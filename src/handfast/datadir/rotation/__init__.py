# SPDX-License-Identifier: Apache-2.0
"""Replacing the CA, or the key of service account tokens, one step at a time.

Holds: What each step changes in files and objects.
Imports: api, bootstrap, client, datadir, errors, pki, rules, runtime.
Never: It does not decide which step comes next: `rules.trust_rotation` does.
Start: `sequence.py`.
"""
