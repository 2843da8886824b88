# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger: entries in segments, chained so that a changed past shows.

Holds: How entries and segments are written, admitted and verified.
Imports: api, bootstrap, errors, pki, rules.
Never: It stores nothing: `client.ledger` does.
Start: `segments.py`.
"""
