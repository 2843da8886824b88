# SPDX-License-Identifier: Apache-2.0
"""Fills Secrets of type `kubernetes.io/service-account-token` with a token, and deletes those whose account is gone.

Such tokens never expire. Nobody has one without making such a Secret. Tokens that expire are requested
(`serviceaccounts/NAME/token`). It does not rewrite a token that is there, whatever it says.

1. A Secret without the annotation `kubernetes.io/service-account.name` is nobody's: left alone. So is one where that is
   no name that an account could have: no server would answer for it, however often it is asked. An Event and a line in
   the log say so, once for each such value, and it is looked at again when the Secret changes.
2. Its ServiceAccount must exist, with the UID that the Secret is annotated with, if it is: else the Secret is deleted,
   after a look at the server itself, because a watch may be late, and only if it is still the same Secret.
3. Whatever is missing is filled in: token, namespace, the annotation of the UID; the CA also where it differs. Each token has
   an id of its own, drawn at random: a Secret that is made anew never holds the token of the one before again.

Only metadata is followed: of tokens nothing stays in this process.

| who | holding | tries | stopped by | shown in tests/unit/controllers/cluster/test_service_account_tokens.py |
|---|---|---|---|---|
| a thief | a token whose Secret was deleted, where the key is RSA | wait until the Secret is filled anew | 3 | test_a_secret_made_anew_has_another_token |
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable

import structlog

from handfast.api import objects, resources
from handfast.client import api, cache, events, partial, watch
from handfast.controllers import loop
from handfast.pki import jwt
from handfast.rules.tokens import claims as rules
from handfast.rules.tokens import service_accounts

_log = structlog.get_logger("handfast.service_account_tokens")
NAME = "serviceaccount-token-controller"
INVALID_ACCOUNT = "InvalidAccountName"
_BY_ACCOUNT = "account"
_SHOWN = 64


class AnnotatedMeta(partial.Meta, frozen=True, gc=False):
    """… and the annotations, which name the account."""

    annotations: dict[str, str] | None = None


class _View(partial.Partial, frozen=True, gc=False):
    metadata: AnnotatedMeta = AnnotatedMeta()

    def annotation(self, key: str) -> str:
        return (self.metadata.annotations or {}).get(key, "")


_SECRETS = watch.Source(
    resource=resources.SECRETS,
    view=_View,
    scope=api.Scope(field_selector=f"type={service_accounts.LEGACY_TYPE}"),
    metadata=True,
)
_ACCOUNTS = watch.Source(resource=resources.SERVICE_ACCOUNTS, view=partial.Partial, metadata=True)


class ServiceAccountTokens:
    """Handles one Secret, by namespace and name."""

    def __init__(
        self,
        client: api.Client,
        secrets: cache.Informer[_View],
        accounts: cache.Informer[partial.Partial],
        signer: jwt.Signer,
        *,
        issuer: str,
        root_ca_pem: bytes,
        recorder: events.Recorder,
    ) -> None:
        self._client = client
        self._recorder = recorder
        # The Secrets for which an Event says that they name no account: UID and what they name.
        self._reported: dict[partial.Key, tuple[str, str]] = {}
        self._secrets = secrets
        self._accounts = accounts
        self._signer = signer
        self._issuer = issuer
        self._ca = base64.b64encode(root_ca_pem).decode()

    async def reconcile(self, key: partial.Key) -> None:
        namespace, name = key
        secret = self._secrets.get(namespace, name)
        # 1. whose it is
        account_name = "" if secret is None else secret.annotation(service_accounts.ACCOUNT_NAME)
        if secret is None or not account_name or secret.metadata.deletion_timestamp is not None:
            self._reported.pop(key, None)
            return
        wrong = objects.dns_subdomain(account_name)
        if wrong is not None:
            await self._tell(secret, account_name, wrong)
            return
        self._reported.pop(key, None)
        # 2. its account exists, with that UID
        claimed = secret.annotation(service_accounts.ACCOUNT_UID)
        uid = await self._account_uid(namespace, account_name, claimed)
        if not uid:
            with api.MISSING_OK:
                await self._client.delete(resources.SECRETS, name, namespace=namespace, uid=secret.metadata.uid)
            return
        # 3. what is missing is filled in
        await self._fill(secret, rules.Reference(account_name, uid))

    async def _tell(self, secret: _View, account_name: str, wrong: str) -> None:
        said = (secret.metadata.uid, account_name)
        if self._reported.get(secret.metadata.key) == said:
            return
        self._reported[secret.metadata.key] = said
        namespace, name = secret.metadata.key
        shown = ascii(account_name[:_SHOWN]) + ("…" if len(account_name) > _SHOWN else "")
        message = f"the annotation {service_accounts.ACCOUNT_NAME}, {shown}, names no ServiceAccount: {wrong}"
        _log.warning("a token Secret names no account", namespace=namespace, secret=name, error=message)
        regarding = events.Regarding(
            api_version="v1", kind="Secret", name=name, namespace=namespace, uid=secret.metadata.uid
        )
        await self._recorder.record(regarding, INVALID_ACCOUNT, message, severity=events.WARNING)

    async def _account_uid(self, namespace: str, name: str, claimed: str) -> str:
        """The UID of the account, if it is there and the claimed one; else nothing."""
        known = self._accounts.get(namespace, name)
        if known is not None and claimed in {"", known.metadata.uid}:
            return known.metadata.uid
        live = await self._client.find(resources.SERVICE_ACCOUNTS, name, namespace=namespace, metadata=True)
        uid = "" if live is None else str(live["metadata"]["uid"])
        return uid if claimed in {"", uid} else ""

    async def _fill(self, seen: _View, account: rules.Reference) -> None:
        namespace, name = seen.metadata.key
        secret = await self._client.find(resources.SECRETS, name, namespace=namespace)
        # What was decided was decided of the version that was seen; the watch will tell of any other.
        if secret is None or secret["metadata"].get("resourceVersion") != seen.metadata.resource_version:
            return
        # The update carries that version, too: whoever changes the Secret meanwhile makes it a conflict.
        if self._complete(secret, namespace, account):
            await self._client.update(resources.SECRETS, secret)

    def _complete(self, secret: objects.Document, namespace: str, account: rules.Reference) -> bool:
        """Fill in what is missing; whether anything was."""
        before = (dict(secret.get("data") or {}), dict(secret["metadata"].get("annotations") or {}))
        data, annotations = dict(before[0]), dict(before[1])
        if self._ca:
            data["ca.crt"] = self._ca
        data["namespace"] = data.get("namespace") or base64.b64encode(namespace.encode()).decode()
        if not data.get("token"):
            name, drawn = secret["metadata"]["name"], str(uuid.uuid4())
            legacy = rules.Legacy(namespace=namespace, account=account, secret_name=name, id=drawn)
            token = self._signer.sign(rules.legacy_claims(self._issuer, legacy))
            data["token"] = base64.b64encode(token.encode()).decode()
        annotations[service_accounts.ACCOUNT_UID] = account.uid
        secret["data"], secret["metadata"]["annotations"] = data, annotations
        return (data, annotations) != before


def _account_of(secret: _View) -> Iterable[str]:
    return [f"{secret.metadata.namespace}/{secret.annotation(service_accounts.ACCOUNT_NAME)}"]


def build(
    context: loop.Context, *, signer: jwt.Signer, root_ca_pem: bytes, issuer: str = rules.LEGACY_ISSUER
) -> loop.Controller[partial.Key]:
    secrets = context.informers.get(_SECRETS, {_BY_ACCOUNT: _account_of})
    accounts = context.informers.get(_ACCOUNTS)
    recorder = events.Recorder(context.client, context.clock, NAME)
    handler = ServiceAccountTokens(
        context.client, secrets, accounts, signer, issuer=issuer, root_ca_pem=root_ca_pem, recorder=recorder
    )
    controller: loop.Controller[partial.Key] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    controller.watches(secrets, lambda item: [item.metadata.key])
    controller.watches(
        accounts,
        lambda item: [
            secret.metadata.key
            for secret in secrets.by_index(_BY_ACCOUNT, f"{item.metadata.namespace}/{item.metadata.name}")
        ],
    )
    return controller
