# SPDX-License-Identifier: Apache-2.0
"""The destination service: where the endpoints of a Service are, and which of them have an identity.

Holds: Get and GetProfile from the message to the stream, one computation for each Service, and what is told of endpoints that are withheld.
Imports: client, mesh, rules, runtime, wire.
Never: It decides nothing: `rules.mesh` does. It never hands out an endpoint without the identity that it should have.
Start: `discovery.py`.
"""
