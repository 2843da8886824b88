# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies: which writes they look at, and what they say of one.

Holds: Policies and bindings as they are stored, their expressions, and the verdict on a write.
Imports: api, rules.webhooks.
Never: It follows no objects and fetches no params: the API server's `admission/policies.py` does.
Start: `verdicts.py`.
"""
