# SPDX-License-Identifier: Apache-2.0
"""What a Kubernetes cluster does for its objects: garbage, namespaces, endpoints, accounts, nodes.

Holds: The controllers that stock clients rely on.
Imports: api, client, controllers, errors, pki, rules, runtime.
Never: It schedules and runs no Pods.
Start: `service_accounts.py`.
"""
