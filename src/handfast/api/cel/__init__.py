# SPDX-License-Identifier: Apache-2.0
"""The Common Expression Language, as Kubernetes uses it: compiled, judged before it runs, and run within bounds.

Holds: The evaluator behind one door, the functions that Kubernetes adds, objects that expressions make, and what one may cost.
Imports: api, api.codec, api.schema, errors.
Never: It knows no definitions: `custom` does.
Start: `engine.py`.
"""
