# SPDX-License-Identifier: Apache-2.0
"""What is to be done next for the worker's credential: the account `node-bootstrapper` and the Secret with its token.

It makes nothing and signs nothing. What there is comes as `Seen`, and one `Step` goes out: whoever takes it looks again.
The token itself never comes here, only its SHA-256.

1. The namespace is there, and stays. Else: wait.
2. The account is there; else it is made. One that is being deleted is waited for.
3. The Secret is there; else it is made, empty, for the account with this UID.
4. It is of a token of this account; somebody else's is never touched. One that is being deleted is waited for.
5. If it names the UID of an account, that is the one there is now; else it is deleted: its token is dead.
6. It has a token; else whoever fills it in is waited for.
7. This token was not revoked. A service account token that others make has nothing random in it. With an RSA key the refilled
   one is the revoked one, byte for byte. Then the account is replaced: a token names the UID of its account, and no
   server takes one of another UID.
8. The token is remembered with the UID of its Secret, before anybody is told that all is well.

What was revoked is known by what was remembered: tokens of earlier Secrets, and tokens that were taken out of this one. The memory
is an annotation of the account. It ends with the account, as those tokens do. What was filled in and deleted while nobody
looked was never seen, and is not known.

| who | holding | tries | check | shown by (test_bootstrap_token.py) |
|---|---|---|---|---|
| a thief | a revoked token, on a server with an RSA key | waits for the Secret to be filled in anew | 7 | test_a_token_that_returns_ends_with_its_account |
| a thief | a token that was taken out of the Secret | the same | 7 | test_a_token_that_was_taken_out_is_revoked |
| who may write the Secret | a Secret of another type, or for another account | has it overwritten, or filled in | 4 | test_somebody_elses_secret_is_never_touched |
| who reads the account | its annotations | finds a token | SHA-256 only | test_only_digests_are_remembered |
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, objects
from handfast.rules.machines import bootstrapper
from handfast.rules.tokens import service_accounts

# On the account: `SHA-256:UID` of each token that was seen and the Secret that it was in, the newest last.
MEMORY: Final = "machines.handfast.dev/tokens-seen"
# Tokens with an id differ each time, and one that never does is followed by a new account: so none is forgotten too early.
REMEMBERED: Final = 64
# How long a Secret may be empty before somebody should look.
FILLED_WITHIN: Final = 60.0

WAITS_FOR_NAMESPACE: Final = "NamespaceMissing"
NAMESPACE_ENDS: Final = "NamespaceTerminating"
ACCOUNT_ENDS: Final = "AccountTerminating"
SECRET_ENDS: Final = "SecretTerminating"  # noqa: S105 - a reason
OTHERS_SECRET: Final = "NotTheTokenSecret"  # noqa: S105 - a reason
NOT_FILLED: Final = "TokenNotFilledIn"
REASONS: Final = (WAITS_FOR_NAMESPACE, NAMESPACE_ENDS, ACCOUNT_ENDS, SECRET_ENDS, OTHERS_SECRET, NOT_FILLED)

_WHERE: Final = f"{bootstrapper.NAMESPACE}/{bootstrapper.TOKEN_SECRET}"
_TAKEN_OUT: Final = "-"


@dataclass(frozen=True, slots=True)
class Account:
    """The ServiceAccount that there is; `tokens` are those seen, by SHA-256, with the UID of the Secret of each."""

    uid: str
    deleting: bool = False
    tokens: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Secret:
    """The Secret that there is: whose it is, and the SHA-256 of its token."""

    uid: str
    type: str
    account: str
    account_uid: str = ""
    deleting: bool = False
    digest: str = ""
    # Since when it is there, in seconds.
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is now; None for what is not there."""

    namespace: bool
    ends: bool = False
    account: Account | None = None
    secret: Secret | None = None


class Wait(msgspec.Struct, frozen=True):
    """Something else has to happen first. `loud` is what a person should know of."""

    reason: str
    sentence: str
    loud: bool = False


class MakeAccount(msgspec.Struct, frozen=True):
    """Create the ServiceAccount."""


class MakeSecret(msgspec.Struct, frozen=True):
    """Create the Secret, empty, for the account with this UID."""

    account_uid: str


class DropSecret(msgspec.Struct, frozen=True):
    """Delete the Secret, if it still has this UID: it is for an account that is gone."""

    uid: str


class ReplaceAccount(msgspec.Struct, frozen=True):
    """Delete the account, if it still has this UID: a token of it was revoked and is back."""

    uid: str


class Remember(msgspec.Struct, frozen=True):
    """Write these tokens down on the account, then look again."""

    tokens: Mapping[str, str]


class Done(msgspec.Struct, frozen=True):
    """All is as it should be."""


Step = Wait | MakeAccount | MakeSecret | DropSecret | ReplaceAccount | Remember | Done


def step(seen: Seen) -> Step:
    """The one next step."""
    # 1. the namespace is there, and stays
    if not seen.namespace:
        return Wait(WAITS_FOR_NAMESPACE, f"there is no namespace {bootstrapper.NAMESPACE}; create it")
    if seen.ends:
        return Wait(NAMESPACE_ENDS, f"the namespace {bootstrapper.NAMESPACE} is being deleted")
    # 2. the account is there, and stays
    if seen.account is None:
        return MakeAccount()
    if seen.account.deleting:
        return Wait(ACCOUNT_ENDS, f"{bootstrapper.USER} is being deleted, and a finalizer keeps it")
    # 3. the Secret is there
    if seen.secret is None:
        return MakeSecret(seen.account.uid)
    return _of_secret(seen.account, seen.secret)


def _of_secret(account: Account, secret: Secret) -> Step:
    # 4. it is of a token of this account, and stays
    if secret.type != service_accounts.LEGACY_TYPE or secret.account != bootstrapper.ACCOUNT:
        return Wait(
            OTHERS_SECRET,
            f"{_WHERE} has the type {secret.type!r} and is for the account {secret.account!r}; it is to have the type "
            f"{service_accounts.LEGACY_TYPE!r} and be for {bootstrapper.ACCOUNT!r}: delete it, and it is made anew",
            loud=True,
        )
    if secret.deleting:
        return Wait(SECRET_ENDS, f"{_WHERE} is being deleted, and a finalizer keeps it")
    # 5. it names the account that there is now, or none
    if secret.account_uid and secret.account_uid != account.uid:
        return DropSecret(secret.uid)
    # 6. it has a token
    if not secret.digest:
        return _empty(account, secret)
    # 7. this token was not revoked
    where = account.tokens.get(secret.digest)
    if where is None:
        # 8. remembered before all is well
        return Remember(remembered(account.tokens, secret))
    return Done() if where == secret.uid else ReplaceAccount(account.uid)


def _empty(account: Account, secret: Secret) -> Step:
    """A token that was there and is not any more was revoked, too."""
    if secret.uid in account.tokens.values():
        marked = {known: _TAKEN_OUT if where == secret.uid else where for known, where in account.tokens.items()}
        return Remember(marked)
    sentence = (
        f"{_WHERE} has no token yet: the controller serviceaccount-token-controller, or the cluster's "
        "kube-controller-manager, fills it in"
    )
    return Wait(NOT_FILLED, sentence, loud=secret.age >= FILLED_WITHIN)


def remembered(tokens: Mapping[str, str], secret: Secret) -> Mapping[str, str]:
    """These tokens and that of a Secret, the newest of them."""
    return dict([*tokens.items(), (secret.digest, secret.uid)][-REMEMBERED:])


# --- what is written, and what is read


def account_document() -> objects.Document:
    """The ServiceAccount as it is made."""
    metadata = {"name": bootstrapper.ACCOUNT, "namespace": bootstrapper.NAMESPACE}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def secret_document(account_uid: str, name: str = bootstrapper.TOKEN_SECRET) -> objects.Document:
    """The Secret as it is made: empty. With the UID nobody fills it in for an account that was there before."""
    annotations = {service_accounts.ACCOUNT_NAME: bootstrapper.ACCOUNT, service_accounts.ACCOUNT_UID: account_uid}
    metadata = {"name": name, "namespace": bootstrapper.NAMESPACE, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": service_accounts.LEGACY_TYPE}


def read_account(document: Mapping[str, Any]) -> Account:
    """The facts of the ServiceAccount."""
    meta = objects.metadata(document)
    memory = jsonpath.text(meta, "annotations", MEMORY)
    return Account(jsonpath.text(meta, "uid"), bool(meta.get("deletionTimestamp")), read(memory))


def read_secret(document: Mapping[str, Any], now: datetime.datetime) -> Secret:
    """The facts of a Secret; its token becomes a digest."""
    meta = objects.metadata(document)
    annotations = jsonpath.mapping(meta, "annotations")
    created = objects.parse_timestamp(meta["creationTimestamp"])
    return Secret(
        jsonpath.text(meta, "uid"),
        str(document.get("type")),
        jsonpath.text(annotations, service_accounts.ACCOUNT_NAME),
        jsonpath.text(annotations, service_accounts.ACCOUNT_UID),
        deleting=bool(meta.get("deletionTimestamp")),
        digest=digest(jsonpath.text(document, "data", "token")),
        age=(now - created).total_seconds(),
    )


def written(tokens: Mapping[str, str]) -> str:
    """The annotation for these tokens."""
    return " ".join(f"{digest}:{uid}" for digest, uid in tokens.items())


def read(annotation: str) -> Mapping[str, str]:
    """The tokens of an annotation; words that are none are left out."""
    pairs = (word.partition(":") for word in annotation.split(" "))
    return {digest: uid for digest, _, uid in pairs if digest and uid}


def digest(token: str) -> str:
    """The SHA-256 of a token, as the data of a Secret have it; nothing for no token."""
    try:
        return hashlib.sha256(base64.b64decode(token, validate=True)).hexdigest() if token else ""
    except ValueError:
        return hashlib.sha256(token.encode()).hexdigest()
