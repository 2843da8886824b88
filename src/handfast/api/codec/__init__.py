# SPDX-License-Identifier: Apache-2.0
"""Octets to documents: JSON, YAML and protobuf, within bounds.

Holds: The decoders of request bodies, and how much one body may hold.
Imports: api, api.schema, errors.
Never: It never looks at what a document means: that is `validation`.
Start: `decode.py`.
"""
