# SPDX-License-Identifier: Apache-2.0
"""Tokens as credentials: what service account tokens claim, and what bootstrap tokens may still do.

Holds: Claims, requests for tokens, the uses of a bootstrap token.
Imports: api, bootstrap, errors, pki, rules, rules.certificates.
Never: It verifies no signature (`pki.jwt`) and writes no use.
Start: `claims.py`.
"""
