# SPDX-License-Identifier: Apache-2.0
"""The values that a document gets where its author left them out.

Holds: Defaults, one row for each kind.
Imports: api, api.schema.
Never: It assigns nothing that needs the world (addresses, ports, uids), and judges nothing.
Start: `defaults.py`.
"""
