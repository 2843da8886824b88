# SPDX-License-Identifier: Apache-2.0
"""Answers TokenRequests: a signed token for a ServiceAccount, bound to the object that was named. Nothing is stored.

What may be asked for is decided by `rules.tokens.requests`. Who may ask (authorisation, and for nodes admission)
was decided before; the document was decoded and its types were checked before, too.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from handfast.api import objects
from handfast.apiserver import uids
from handfast.apiserver.access import service_account_tokens
from handfast.apiserver.state import replica as replica_module
from handfast.pki import jwt
from handfast.rules.tokens import claims
from handfast.rules.tokens import requests as rules
from handfast.runtime import clock as clocks

_encode = msgspec.json.Encoder().encode


class TokenRequests:
    """The issuer of one server.

    `max_expiration` in seconds shortens what is asked for; 0: no maximum. Tokens that a Pod gets by admission
    live a year and say after which instant they should have been renewed, as in Kubernetes.
    """

    def __init__(
        self,
        signer: jwt.Signer,
        *,
        issuer: str,
        api_audiences: Sequence[str],
        replica: replica_module.Replica,
        clock: clocks.Clock,
        issued: Callable[[str, claims.Bound], None],
        max_expiration: int = 0,
        new_id: Callable[[], str] = uids.new,
    ) -> None:
        self._signer = signer
        self._issuer = issuer
        self._api_audiences = tuple(api_audiences)
        self._lookups = service_account_tokens.Lookups(replica)
        self._clock = clock
        self._issued = issued
        self._maximum = max_expiration or None
        self._new_id = new_id

    def sign_with(self, signer: jwt.Signer) -> None:
        """Sign with another key from the next request on."""
        self._signer = signer

    def answer(self, document: objects.Document, namespace: str, name: str) -> tuple[objects.Document, list[str]]:
        """The TokenRequest with its status, and the warnings to send. `document` is left as it is."""
        account = self._lookups.find("ServiceAccount", namespace, name)
        request = rules.read_request(document, namespace, name, account, self._api_audiences)
        now = self._clock.now()
        life = rules.lifetime(request, self._maximum, self._api_audiences)
        at = int(now.timestamp())
        bound = claims.Bound(
            namespace=namespace,
            account=request.account,
            audiences=request.audiences,
            issued_at=at,
            not_before=at,
            expires=at + life.real,
            id=self._new_id(),
            warn_after=None if life.warn_after is None else at + life.warn_after,
            **self._references(request.bound, namespace, name),
        )
        token = self._signer.sign(_encode(claims.bound_claims(self._issuer, bound)))
        if len(token) > jwt.MAX_TOKEN:
            raise rules.token_too_long(jwt.MAX_TOKEN)
        self._issued(token, bound)
        answered = _answered(document, bound, life.seconds, now)
        answered["status"] = {
            "expirationTimestamp": objects.timestamp(now + datetime.timedelta(seconds=life.seconds)),
            "token": token,
        }
        return answered, [life.warning] if life.warning else []

    def _references(self, bound: rules.BoundObject | None, namespace: str, name: str) -> dict[str, Any]:
        """What the token is bound to, by the name of its claim."""
        if bound is None:
            return {}
        if bound.kind == "Pod":
            pod, node_name = rules.judge_pod(bound, name, self._lookups.pod(namespace, bound.name))
            if not node_name:
                return {"pod": pod}
            # A Node that is not there (any more) is named all the same: it tells where the Pod was put.
            node = self._lookups.find("Node", "", node_name)
            return {"pod": pod, "node": claims.Reference(node_name, "" if node is None else node.uid)}
        target = self._lookups.find(bound.kind, "" if bound.kind == "Node" else namespace, bound.name)
        return {bound.kind.lower(): rules.judge_binding(bound, None if target is None else target.uid)}


def _answered(
    document: objects.Document, bound: claims.Bound, seconds: int, now: datetime.datetime
) -> objects.Document:
    """What was asked for, and what was granted."""
    metadata = {
        **objects.metadata(document),
        "name": bound.account.name,
        "namespace": bound.namespace,
        "uid": bound.account.uid,
        "creationTimestamp": objects.timestamp(now),
    }
    spec = {**(document.get("spec") or {}), "audiences": list(bound.audiences), "expirationSeconds": seconds}
    return {
        **document,
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": metadata,
        "spec": spec,
    }
