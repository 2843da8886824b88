# SPDX-License-Identifier: Apache-2.0
"""The description of the API in OpenAPI 3, made from the kinds and the schema.

Holds: The documents that `kubectl explain` and server-side validation read.
Imports: api, api.schema.
Never: It describes nothing that is not served.
Start: `openapi.py`.
"""
