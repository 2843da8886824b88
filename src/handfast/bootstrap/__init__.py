# SPDX-License-Identifier: Apache-2.0
"""First trust: bootstrap tokens, cluster-info and its signatures, discovery, kubeconfigs.

Holds: What a newcomer must check before it believes a cluster, and a cluster before it believes a newcomer.
Imports: api, errors, pki.
Never: It connects to nobody: `client.discovery` does, and asks here.
Start: `tokens.py`, then `discovery.py`.
"""
