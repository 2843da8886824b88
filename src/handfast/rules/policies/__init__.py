# SPDX-License-Identifier: Apache-2.0
"""Admission policies: which writes they look at, what they say of one, and what those that change objects make of it.

Holds: Policies and bindings as they are stored, their expressions, the verdict on a write, and the mutated object.
Imports: api, rules.webhooks.
Never: It follows no objects and fetches no params: the API server's `admission/policies.py` does.
Start: `verdicts.py`.
"""
