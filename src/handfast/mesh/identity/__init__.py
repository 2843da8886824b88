# SPDX-License-Identifier: Apache-2.0
"""The identity service: a workload shows its account's token and gets a certificate in the account's name.

Holds: Certify from the message to the answer, the issuer of the moment, the review of tokens, whose turn it is, and the service's own pair.
Imports: api, client, errors, mesh, pki, rules, runtime, serving, wire.
Never: It decides nothing: `rules.mesh.certify` does. No certificate leaves it that is not in the ledger.
Start: `certifier.py`.
"""
