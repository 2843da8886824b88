# SPDX-License-Identifier: Apache-2.0
"""What it takes to revoke a bootstrap credential: which objects go, and which open requests came by it.

It deletes nothing, and who may revoke is decided by RBAC: whoever may delete these objects.

1. The masters' credential counts while one of two ConfigMaps holds its signer. Both go, wherever the signer was put. The Secret
   with the kubeconfig goes, too: nothing is left to hand out.
2. The workers' credential is the token of the account in a Secret. Every such Secret goes, whatever its name is: whoever may make
   Secrets there may have made a second one. The keeper makes `node-bootstrapper-token` anew.
3. Tokens that were requested (`serviceaccounts/token`), those of single machines above all, stay unless everything is to go. Then
   the account itself goes, and their Secrets: with it every token of it ends, also those that nobody remembers.
4. A request came by the masters' credential if its requester had a certificate, by a requested token if it has that token's id,
   else by the shared token: the server says so in the request. One that is open when its credential is revoked is denied, since
   whoever stole the credential may have filed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handfast.api import jsonpath, signing_requests
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper, installation
from handfast.rules.tokens import service_accounts

MASTER: Final = "master"
WORKER: Final = "worker"
# By a token that was requested; revoked with the workers' where everything is to go.
REQUESTED: Final = "requested"
REASON: Final = "BootstrapCredentialRevoked"

_KINDS: Final = {user_names.CERTIFICATE_ID_PREFIX: MASTER, user_names.TOKEN_ID_PREFIX: REQUESTED}

# Kind of object, namespace and name.
Target = tuple[str, str, str]
# 1. wherever the signer was put, then the kubeconfig
MASTERS: Final[tuple[Target, ...]] = (
    *(("ConfigMap", namespace, name) for namespace, name in bootstrapper.CONFIG_MAPS),
    ("Secret", bootstrapper.NAMESPACE, installation.KUBECONFIG_SECRET),
)
# 3. with the account every token of it ends
THE_ACCOUNT: Final[Target] = ("ServiceAccount", bootstrapper.NAMESPACE, bootstrapper.ACCOUNT)


def is_shared(metadata: Mapping[str, Any]) -> bool:
    """Whether a Secret of the type of tokens holds one of the bootstrap account (2)."""
    return jsonpath.mapping(metadata, "annotations").get(service_accounts.ACCOUNT_NAME) == bootstrapper.ACCOUNT


def secret(metadata: Mapping[str, Any]) -> Target:
    """A Secret as a target."""
    return ("Secret", bootstrapper.NAMESPACE, jsonpath.text(metadata, "name"))


def kinds(kind: str, *, everything: bool) -> frozenset[str]:
    """By which credentials the requests came that are denied (4)."""
    return frozenset({kind, REQUESTED} if everything else {kind})


def kind_of(request: signing_requests.Request) -> str | None:
    """By which credential a request came; None: by none of these (4)."""
    if not bootstrapper.named(request.spec.username):
        return None
    ids = (request.spec.extra or {}).get(user_names.CREDENTIAL_ID) or ()
    return next((kind for each in ids for begin, kind in _KINDS.items() if each.startswith(begin)), WORKER)


def is_pending(request: signing_requests.Request) -> bool:
    """Whether nobody has decided about a request."""
    return request.is_open and request.condition(signing_requests.APPROVED) is None
