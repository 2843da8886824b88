# SPDX-License-Identifier: Apache-2.0
"""CertificateSigningRequests and the signers they go to, in the words of `certificates.k8s.io`.

Which requests a signer honours is `rules.signers`', and who may approve them `rules.certificate_admission`'s.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "certificates.k8s.io"

# What the names of its signers begin with.
DOMAIN: Final = "kubernetes.io"
# Nothing else in the program spells them.
KUBE_APISERVER_CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN: Final = "kubernetes.io/legacy-unknown"
SIGNERS: Final = (KUBE_APISERVER_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN)
