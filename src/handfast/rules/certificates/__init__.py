# SPDX-License-Identifier: Apache-2.0
"""Which certificate request is approved and signed, and which certificate is taken.

Holds: Recognising kubelets' requests, signers' profiles, the life of a request.
Imports: api, errors, pki, rules.
Never: It signs nothing: `pki.authority` does.
Start: `kubelet.py`.
"""
