# SPDX-License-Identifier: Apache-2.0
"""Has a bootstrap token made for one machine, over the API of whichever cluster. It prints nothing and writes no file.

What the Secret says, and what the token is bound to, is `rules.machines.machine_tokens`. Nothing of it is Handfast's alone: the
API server needs TokenRequests.

1. The Secret comes first, then the token that is bound to it, by UID, then its id on the Secret. Nobody gets the token before its
   id is recorded: every request that is made with it can be told.
2. Where a step fails, the Secret is deleted, and with it the token that nobody has seen.
3. A token that is there is not replaced unless somebody says so: the machine may have it. Replacing revokes it.
4. A Secret of that name that is none of ours is left alone.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from handfast import errors
from handfast.api import jsonpath, objects, resources, status
from handfast.client import api
from handfast.rules.machines import bootstrapper, inventory, machine_tokens, revocation
from handfast.rules.tokens import service_accounts

_TOKENS: Final = api.Scope(namespace=bootstrapper.NAMESPACE, field_selector=f"type={service_accounts.LEGACY_TYPE}")
_OWN: Final = api.Scope(namespace=bootstrapper.NAMESPACE, label_selector=machine_tokens.LABEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A token that was made, and how it is known. The token does not print."""

    token: str = field(repr=False)
    secret: str
    secret_uid: str
    id: str
    expires: datetime.datetime


async def shared(client: api.Client) -> str:
    """The token that all workers share."""
    where = f"Secret {bootstrapper.NAMESPACE}/{bootstrapper.TOKEN_SECRET}"
    secret = await client.find(resources.SECRETS, bootstrapper.TOKEN_SECRET, namespace=bootstrapper.NAMESPACE)
    if secret is None:
        raise errors.Refused(
            f"there is no {where}", reason="NoCredential", hint="its keeper makes it: run `handfast up --machines`"
        )
    token = base64.b64decode(jsonpath.text(secret, "data", "token")).decode("ascii", "replace")
    if not token:
        raise errors.Unavailable(f"{where} is not filled in yet", reason="NoCredential", hint="try again in a moment")
    return token


async def shared_secrets(client: api.Client) -> list[objects.Document]:
    """The Secrets with a token of the account, whatever their names are: their metadata."""
    found = await client.list(resources.SECRETS, _TOKENS, metadata=True)
    return [each for each in found if revocation.is_shared(objects.metadata(each))]


async def own_secrets(client: api.Client) -> Sequence[objects.Document]:
    """The Secrets that the tokens of single machines are bound to: their metadata."""
    return await client.list(resources.SECRETS, _OWN, metadata=True)


async def create(client: api.Client, machine: inventory.Machine, seconds: int, *, replace: bool = False) -> Issued:
    """Have a token made for this Machine."""
    # 1. the Secret comes first
    secret = await _secret(client, machine, replace=replace)
    try:
        return await _issue(client, secret, seconds)
    except errors.HandfastError:
        # 2. nothing is left of what nobody has seen
        await _delete(client, secret)
        raise


async def revoke(client: api.Client, name: str, uid: str) -> None:
    """Delete that very Secret, and with it the token; that it has gone is no error."""
    with api.MISSING_OK:
        await client.delete(resources.SECRETS, name, namespace=bootstrapper.NAMESPACE, uid=uid)


async def _delete(client: api.Client, secret: objects.Document) -> None:
    meta = objects.metadata(secret)
    await revoke(client, meta["name"], meta["uid"])


async def _secret(client: api.Client, machine: inventory.Machine, *, replace: bool) -> objects.Document:
    document = machine_tokens.secret(machine)
    name = objects.metadata(document)["name"]
    there = await client.find(resources.SECRETS, name, namespace=bootstrapper.NAMESPACE)
    if there is not None:
        _require_replaceable(there, machine, name, replace=replace)
        await _delete(client, there)
    try:
        return await client.create(resources.SECRETS, document, namespace=bootstrapper.NAMESPACE)
    except status.StatusError as error:
        if error.reason == "NotFound":
            error.hint = f"there is no namespace {bootstrapper.NAMESPACE}: `handfast init --machines` makes it"
        raise


def _require_replaceable(there: objects.Document, machine: inventory.Machine, name: str, *, replace: bool) -> None:
    # 4. never a Secret that is none of ours
    where = f"{bootstrapper.NAMESPACE}/{name}"
    if machine_tokens.read(there) is None:
        raise errors.Refused(
            f"the Secret {where} is there, and is no credential of a machine",
            reason="SecretTaken",
            hint="give the Machine another name",
        )
    # 3. only on demand
    if not replace:
        raise errors.Refused(
            f"{machine.title} has a credential already, bound to the Secret {where}",
            reason="CredentialExists",
            hint="--replace revokes it and makes another",
        )


async def _issue(client: api.Client, secret: objects.Document, seconds: int) -> Issued:
    meta = objects.metadata(secret)
    answer = await client.create(
        resources.SERVICE_ACCOUNTS,
        machine_tokens.token_request(meta["name"], meta["uid"], seconds),
        namespace=bootstrapper.NAMESPACE,
        name=bootstrapper.ACCOUNT,
        subresource="token",
    )
    token = jsonpath.text(answer, "status", "token")
    identity = machine_tokens.id_of(token)
    # 1. its id, before anybody gets it
    patch = {
        "metadata": {
            "resourceVersion": meta["resourceVersion"],
            "annotations": {**meta["annotations"], machine_tokens.CREDENTIAL_ID: identity},
        }
    }
    await client.patch(resources.SECRETS, meta["name"], patch, namespace=bootstrapper.NAMESPACE)
    until = objects.parse_timestamp(jsonpath.text(answer, "status", "expirationTimestamp"))
    return Issued(token=token, secret=meta["name"], secret_uid=meta["uid"], id=identity, expires=until)
