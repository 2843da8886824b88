# SPDX-License-Identifier: Apache-2.0
"""What it takes to revoke a bootstrap credential: which objects go, and which open requests came by it.

It deletes nothing, and who may revoke is decided by RBAC: whoever may delete these objects.

1. The masters' credential counts while one of two ConfigMaps holds its signer. Both go, wherever the signer was put. The Secret
   with the kubeconfig goes, too: nothing is left to hand out.
2. The workers' credential is the token in one Secret. The Secret goes; its keeper makes another one.
3. A request came by the masters' credential if its requester had a certificate, else by a token. A server says so in the
   request: only certificates have such a credential id. A request that is open when its credential is revoked is denied:
   whoever stole the credential may have filed it.
"""

from __future__ import annotations

from typing import Final

from handfast.api import signing_requests
from handfast.rules.machines import bootstrapper, installation

MASTER: Final = "master"
WORKER: Final = "worker"
KINDS: Final = (MASTER, WORKER)
REASON: Final = "BootstrapCredentialRevoked"

CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
_CERTIFICATE: Final = "X509SHA256="

# Kind of object, namespace and name; the first ones take the trust away, and the others only what is useless then.
Target = tuple[str, str, str]
TARGETS: Final[dict[str, tuple[Target, ...]]] = {
    # 1. wherever the signer was put, then the kubeconfig
    MASTER: (
        *(("ConfigMap", namespace, name) for namespace, name in bootstrapper.CONFIG_MAPS),
        ("Secret", bootstrapper.NAMESPACE, installation.KUBECONFIG_SECRET),
    ),
    # 2. the one Secret
    WORKER: (("Secret", bootstrapper.NAMESPACE, bootstrapper.TOKEN_SECRET),),
}


def kind_of(request: signing_requests.Request) -> str | None:
    """By which credential a request came; None: by neither (3)."""
    if not bootstrapper.named(request.spec.username):
        return None
    ids = (request.spec.extra or {}).get(CREDENTIAL_ID) or ()
    return MASTER if any(each.startswith(_CERTIFICATE) for each in ids) else WORKER


def is_pending(request: signing_requests.Request) -> bool:
    """Whether nobody has decided about a request."""
    return request.is_open and request.condition(signing_requests.APPROVED) is None
