# SPDX-License-Identifier: Apache-2.0
"""May this object be written, and how.

Holds: The admission plugins, the order in which they are asked, and webhooks.
Imports: api, apiserver, apiserver.access, apiserver.state, apiserver.strategy, bootstrap, errors, rules, runtime, store.
Never: It does not ask who the caller is: that was decided before.
Start: `plugin.py` for what a plugin is, `station.py` for the order.
"""
