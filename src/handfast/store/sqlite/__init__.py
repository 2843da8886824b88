# SPDX-License-Identifier: Apache-2.0
"""The embedded engine: SQLite in WAL mode, one writer with group commit.

Holds: Everything that touches SQLite.
Imports: errors, runtime, store.
Never: It imports nothing but the contract and `runtime`.
Start: `engine.py`.
"""
