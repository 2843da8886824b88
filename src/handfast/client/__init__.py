# SPDX-License-Identifier: Apache-2.0
"""Calls a Kubernetes API: transport, lists and watches, caches, and a certificate that is kept fresh.

Holds: What controllers, agents and commands stand on, and what is done over any API: tokens, reviews, the first objects.
Imports: api, bootstrap, errors, pki, rules, runtime.
Never: It does not know whether the server is ours.
Start: `api.py`, then `watch.py`; `keeping.py` for certificates.
"""
