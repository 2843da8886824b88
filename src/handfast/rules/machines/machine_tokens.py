# SPDX-License-Identifier: Apache-2.0
"""A bootstrap token for one machine: of the same account as all the others, and bound to a Secret that is that Machine's.

Documents and facts only: `client.machine_tokens` makes them. Whether a request comes with the right one is `machines.proofs`'s.

1. The token is a TokenRequest's of the account `node-bootstrapper`, so that user and groups are those of the shared credential:
   every approver that takes that one takes this one, too.
2. It is bound to the Secret `node-bootstrapper-MACHINE`. Whoever deletes that Secret revokes this token and no other.
3. The Secret holds no token. Its annotations say which Machine it is for, by UID, and which token was issued: the `jti` of the
   token, as a CertificateSigningRequest has it in `spec.extra` (`JTI=…`).
4. A Secret of that name without these annotations is none of ours: a Machine may be called `token`.
5. A Machine that was made anew under its name is another one, and needs another token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.pki import jwt
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper, inventory

LABEL: Final = "machines.handfast.dev/bootstrap-credential"
MACHINE: Final = "machines.handfast.dev/machine"
MACHINE_UID: Final = "machines.handfast.dev/machine-uid"
CREDENTIAL_ID: Final = "machines.handfast.dev/credential-id"
_WORKER: Final = "worker"


@dataclass(frozen=True, slots=True)
class Credential:
    """A Secret that a token is bound to: which Machine it is for, and the id of the token."""

    secret: str
    machine: str
    machine_uid: str
    id: str


def secret_name(machine: str) -> str:
    """The Secret that a Machine's token is bound to."""
    return f"{bootstrapper.ACCOUNT}-{machine}"


def secret(machine: inventory.Machine) -> objects.Document:
    """The Secret, before its token is issued (3)."""
    name = secret_name(machine.name)
    if (wrong := objects.dns_subdomain(name)) is not None:
        raise errors.Refused(f"no Secret can be called {name!r}: {wrong}", reason="BadMachineName")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": bootstrapper.NAMESPACE,
            "labels": {LABEL: _WORKER},
            "annotations": {MACHINE: f"{machine.namespace}/{machine.name}", MACHINE_UID: machine.uid},
        },
    }


def token_request(name: str, uid: str, seconds: int) -> objects.Document:
    """A TokenRequest bound to that very Secret (2)."""
    reference = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid}
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": seconds, "boundObjectRef": reference},
    }


def id_of(token: str) -> str:
    """The id of a token, as a request has it (3); errors.Refused where it has none: requests could not be told apart."""
    read = jwt.read(token)
    identity = "" if read is None else read.claims.get("jti", "")
    if not isinstance(identity, str) or not identity:
        raise errors.Refused(
            "the API server issued a token without an id (jti)",
            reason="TokenWithoutId",
            hint="tokens have ids from Kubernetes 1.30 on; until then, do without credential: per-machine",
        )
    return user_names.TOKEN_ID_PREFIX + identity


def read(document: Mapping[str, Any] | None) -> Credential | None:
    """What a Secret says; None where there is none, or it is none of ours (4)."""
    name, uid = jsonpath.text(document, "metadata", "name"), _annotation(document, MACHINE_UID)
    if not name or not uid:
        return None
    return Credential(name, _annotation(document, MACHINE), uid, _annotation(document, CREDENTIAL_ID))


def _annotation(document: Mapping[str, Any] | None, key: str) -> str:
    return jsonpath.text(document, "metadata", "annotations", key)
