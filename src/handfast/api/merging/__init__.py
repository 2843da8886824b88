# SPDX-License-Identifier: Apache-2.0
"""How a change is applied to a document: patches, strategic merge, server-side apply.

Holds: JSON Patch, merge patch, strategic merge, and who owns which field.
Imports: api, api.codec, api.schema, errors.
Never: It stores nothing, and does not validate the result.
Start: `patch.py`, then `apply.py`.
"""
