# SPDX-License-Identifier: Apache-2.0
"""The names of Kubernetes' own signers, and that of the mesh. Nothing else in the program spells them.

It imports nothing, so that commands which only name a signer stay light. `rules.certificates.signers` says which
requests a signer honours.
"""

from __future__ import annotations

from typing import Final

# What the names of its signers begin with.
DOMAIN: Final = "kubernetes.io"
KUBE_APISERVER_CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN: Final = "kubernetes.io/legacy-unknown"
# All four, and those of nodes.
SIGNERS: Final = (KUBE_APISERVER_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN)
# The identity service of the mesh, which answers no CertificateSigningRequests.
MESH_IDENTITY: Final = "handfast.dev/mesh-identity"
KUBELET_SIGNERS: Final = frozenset({KUBELET_CLIENT, KUBELET_SERVING})
