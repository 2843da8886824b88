# SPDX-License-Identifier: Apache-2.0
"""A revisioned key-value store: one contract, several engines.

Holds: The contract (`protocol.py`) and its engines.
Imports: errors.
Never: It knows no kinds and no users; values are octets.
Start: `protocol.py`.
"""
