# SPDX-License-Identifier: Apache-2.0
"""What a verb does: get, list, watch, create, update, patch, delete, and the actions.

Holds: From the decoded request to the encoded answer.
Imports: api, apiserver, apiserver.access, apiserver.admission, apiserver.state, apiserver.strategy, errors, pki, rules, runtime, serving, store.
Never: It authenticates and authorises nobody: that happened before.
Start: `resources.py`, then `writes.py` or `watch.py`.
"""
