# SPDX-License-Identifier: Apache-2.0
"""The narrated story of `handfast demo`: what is typed, why, and what must be seen, from the first CA to the last revocation.

Holds: The story as a table, the place that it happens in, the processes that it starts, and the proof that nothing of it is left.
Imports: errors, proxy, runtime, wire.
Never: It calls no code of a control plane: everything happens by commands that anybody can type. It prints nothing.
Start: `story.py`, then `telling.py`.
"""
