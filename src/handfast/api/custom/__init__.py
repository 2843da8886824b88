# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions: the kinds that users bring, and what their schemas allow.

Holds: Structural schemas, and how a document is checked, pruned and defaulted by one.
Imports: api, api.cel, api.schema, errors.
Never: It serves nothing: the API server's `verbs/definitions.py` does.
Start: `definitions.py`.
"""
