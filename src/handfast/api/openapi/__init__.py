# SPDX-License-Identifier: Apache-2.0
"""The description of the API in OpenAPI 3 and 2, made from the kinds, the schema and what was written about them.

Holds: The documents that `kubectl explain` and clients that check fields read.
Imports: api, api.custom, api.schema.
Never: It describes nothing that is not served.
Start: `openapi.py`.
"""
