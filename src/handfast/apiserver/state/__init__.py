# SPDX-License-Identifier: Apache-2.0
"""The server's copy of the store, and writing through it.

Holds: The replica, its collections, stored values, their envelope and its sealing, compaction.
Imports: api, apiserver, errors, rules, runtime, store, telemetry.
Never: It knows no HTTP and no users.
Start: `replica.py`, then `storage.py`.
"""
