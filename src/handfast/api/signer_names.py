# SPDX-License-Identifier: Apache-2.0
"""The names of Kubernetes' own signers. Nothing else in the program spells them.

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
SIGNERS: Final = (KUBE_APISERVER_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN)
