# SPDX-License-Identifier: Apache-2.0
"""Replacing the CA, or the key of service account tokens, one step at a time.

Holds: What each step changes in files and objects.
Imports: api, bootstrap, client, datadir, errors, pki, rules, runtime.
Never: Which step comes next is decided in `rules.trust_rotation`.
Start: `sequence.py`.
"""
