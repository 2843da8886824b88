# SPDX-License-Identifier: Apache-2.0
"""Loops that make the world as it should be, through the Kubernetes API only.

Holds: What all controllers share: the loop, the role that runs them, the leader lock, their names, Events, views.
Imports: api, bootstrap, client, errors, rules, runtime.
Never: A controller never imports another one, nor any other service.
Start: `loop.py`; `cluster/service_accounts.py` is the shortest controller.
"""
