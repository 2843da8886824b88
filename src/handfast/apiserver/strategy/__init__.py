# SPDX-License-Identifier: Apache-2.0
"""What only the server can fill in: names, uids, times, generations, and what a subresource may not touch.

Holds: One strategy for each subresource, and those of custom resources.
Imports: api, apiserver, apiserver.state, rules.
Never: It refuses nothing that validation could.
Start: `strategies.py`.
"""
