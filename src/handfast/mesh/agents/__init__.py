# SPDX-License-Identifier: Apache-2.0
"""The channel to the mesh's agents: anchors, deny list and policy down; what they work by, and what they see, up.

Holds: The ledger as far as it is in force, what all agents are told, the streams, and the objects that their reports become.
Imports: api, client, errors, mesh, rules, runtime, wire.
Never: It decides nothing: `rules.mesh.deny_list` and `rules.mesh.reports` do. It believes nobody but who is verified, about anything but itself.
Start: `watching.py`.
"""
