# SPDX-License-Identifier: Apache-2.0
"""The shared engine: an etcd that others may use, too, for any number of API servers.

Holds: What the store's contract means in etcd's calls: keys, compare-and-swap, the one watch, the floor.
Imports: errors, runtime, store, wire.
Never: It imports no gRPC: calls go through `wire`. It knows no other engine.
Start: `engine.py`, then `live.py`.
"""
