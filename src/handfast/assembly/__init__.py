# SPDX-License-Identifier: Apache-2.0
"""Wiring: which concrete classes a role is made of.

Holds: One module for each role, the settings, and the supervisor of `up`.
Imports: api, apiserver, bootstrap, client, controllers, datadir, errors, node, pki, rules, runtime, serving, store, telemetry.
Never: It holds no behaviour that another room could hold.
Start: `up.py`, then `apiserver.py`.
"""
