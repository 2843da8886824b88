# SPDX-License-Identifier: Apache-2.0
"""The policy service: stock proxies are told whom to let in on each port, and how to reach a Service.

Holds: InboundServerPolicies and OutboundPolicies from the message to the stream, and one computation for each port of a Pod.
Imports: api, errors, mesh, rules, wire.
Never: It decides nothing: `rules.mesh.policy` does. It never says that everybody may come in because it does not know.
Start: `inbound.py`.
"""
