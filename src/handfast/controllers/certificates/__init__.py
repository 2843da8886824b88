# SPDX-License-Identifier: Apache-2.0
"""Certificate requests: approving, signing, cleaning up, and the ledger of what was issued.

Holds: The approver, the signer, the cleaner, and the writer of the ledger.
Imports: api, client, controllers, errors, pki, rules, runtime.
Never: It decides nothing: `rules.certificates` does.
Start: `approver.py`, then `signer.py`; `ledger.py` writes the ledger.
"""
