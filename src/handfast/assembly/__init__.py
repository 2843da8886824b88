# SPDX-License-Identifier: Apache-2.0
"""Wiring: which concrete classes a role is made of.

Holds: One module for each role; `guard`, the judges of the API server; the settings. A setting is read here, since its rows speak of every
role: names of controllers, signers, addresses, the store.
Imports: api, apiserver, client, console, controllers, datadir, errors, machines, mesh, node, pki, proxy, rules, runtime, serving, store, telemetry, wire.
Never: It holds no behaviour that another room could hold.
Start: `up.py`, then `apiserver.py`.
"""
