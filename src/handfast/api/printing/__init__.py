# SPDX-License-Identifier: Apache-2.0
"""The columns and cells that `kubectl get` shows.

Holds: One row for each kind, and the ways ages and counts are written.
Imports: api, errors.
Never: It makes no HTTP answer: the server makes the Table around the rows.
Start: `printers.py`.
"""
