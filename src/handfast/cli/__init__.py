# SPDX-License-Identifier: Apache-2.0
"""The command line: grammar, messages, exit codes.

Holds: One module for each command.
Imports: api, apiserver, assembly, bootstrap, check, client, console, controllers, datadir, demo, errors, mesh, node, pki, proxy, rules, runtime, store, telemetry, wire.
Never: It decides nothing: it asks, and prints what it was told.
Start: `main.py`.
"""
