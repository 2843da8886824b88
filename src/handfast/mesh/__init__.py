# SPDX-License-Identifier: Apache-2.0
"""The services of the mesh: they speak Linkerd's protocols, and know the cluster through the Kubernetes API only.

Holds: What the services share: the objects of the installation, followed, and the certificate of a service.
Imports: api, client, errors, pki, rules, runtime, wire.
Never: A service never imports another one. It decides nothing: `rules.mesh` does.
Start: `identity/certifier.py`.
"""
