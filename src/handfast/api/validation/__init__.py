# SPDX-License-Identifier: Apache-2.0
"""Everything that can be wrong with a document, in Kubernetes' words.

Holds: One row for each kind, for creation and for update.
Imports: api, api.cel, api.custom, api.schema, errors.
Never: It changes nothing, and does not ask who wrote the document.
Start: `validation.py`.
"""
