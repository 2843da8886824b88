# SPDX-License-Identifier: Apache-2.0
"""The embedded Kubernetes API server.

Holds: The path of a request from its first octet to its answer.
Imports: api, apiserver.access, apiserver.admission, apiserver.state, apiserver.strategy, apiserver.verbs, errors, rules, runtime, serving, store, telemetry.
Never: It imports no other service. It decides nothing about trust itself: `rules` does.
Start: `pipeline.py`: the whole path on one page.
"""
