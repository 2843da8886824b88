# SPDX-License-Identifier: Apache-2.0
"""What the packaged schema says of each message, and typed decoding by it.

Holds: The fields of every built-in kind with their types, numbers, list types and merge keys.
Imports: api, errors.
Never: It has no kind written by hand: `data/kubernetes-api.json` is the one source.
Start: `schema.py`.
"""
