# SPDX-License-Identifier: Apache-2.0
"""The injector: the webhook by which Pods get their proxy, and Services their annotation, when they are created.

Holds: A review from the request to the answer, what is known beside it, what is told about it, and the pair that it serves with.
Imports: api, client, errors, mesh, pki, rules, runtime, serving.
Never: It decides nothing: `rules.mesh.admission` and `rules.mesh.injector_pair` do. It changes no object but its own Secret and the CA bundle of its webhook.
Start: `handler.py`, the whole way of a review.
"""
