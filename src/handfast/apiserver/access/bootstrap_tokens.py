# SPDX-License-Identifier: Apache-2.0
"""Authenticates bearers of bootstrap tokens by the Secrets in the server's own copy. It judges none: see `token_verdict`.

1. A text of another shape is left to the next authenticator.
2. A copy of the store that has stopped is not believed: refused.
3. The Secret is looked up anew each time and nothing is remembered, so a token ends in the moment in which this
   server learns that its Secret was changed or deleted, and at its expiration. Kubernetes remembers it for ten seconds.
4. Where there is no Secret, a decoy is decoded and judged the same way, and refused.
5. A Secret that cannot be decoded is judged as none at all.
6. Then the checks of `bootstrap/token_verdict.py` decide, and the first that fails is told to the log, never to the caller.
7. A bootstrap token names no audience: it is good for those of this API, as in Kubernetes, and for no other.
8. The Secret may say from where the token is accepted; `require_source` compares. A limit that cannot be read refuses
   everybody.
9. Who holds the secret of a token for signing is told that it is not accepted from their address: whether such a token is
   good can be seen from its signature of cluster-info, which is public. Of other tokens nothing is told.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_bootstrap_tokens.py |
|---|---|---|---|---|
| a former holder | a token whose Secret was deleted | use it again at once | 3 | test_a_deleted_token_ends_at_once |
| a holder | a token about to expire | outlive it on an open watch | `until` | test_the_user_ends_with_the_token |
| anyone | nothing | learn which ids exist | 4 | test_an_unknown_id_takes_the_steps_of_a_wrong_secret |
| a user of another namespace | may write Secrets there | make a token of their own | 3: only kube-system | test_other_namespaces_make_no_tokens |
| a user | may write Secrets of kube-system under other names | two tokens of one id | 3: by name | test_authenticate |
| anyone | a text of a megabyte, or in other alphabets | crash or slow the server | 1 | test_another_shape_is_not_mine |
| who writes the store | a value that is no document | be let in by an error | 5 | test_what_is_no_document_is_refused |
| a holder | a bootstrap token | pass for somebody at another service | 7 | test_only_the_audiences_of_the_api_are_served |
| a thief | a token, in another network | use it there | 8 | test_a_source_elsewhere |
"""

from __future__ import annotations

import datetime
from typing import Final

from handfast import errors
from handfast.apiserver import identity
from handfast.apiserver.state import envelope, items, replica
from handfast.bootstrap import token_verdict, tokens
from handfast.rules import decision, networks
from handfast.rules.tokens import use

METHOD: Final = "bootstrap-token"
_SECRETS: Final = "core/secrets/"


class BootstrapTokens:
    """The authenticator of bootstrap tokens."""

    def __init__(self, copy: replica.Replica, api_audiences: tuple[str, ...]) -> None:
        self._replica = copy
        self._audiences = api_audiences
        self._decoy = items.Item(tokens.NAMESPACE, "", 0, envelope.encode_document(token_verdict.decoy()))

    def remembers(self, token: str) -> bool:
        """Never: a deleted token must be refused at once."""
        del token
        return False

    def authenticate(
        self, token: str, audiences: tuple[str, ...], now: datetime.datetime
    ) -> identity.TokenVerdict | None:
        """Whom the token stands for; None: not a bootstrap token; raises Unauthorized: one, and refused."""
        # 1.
        presented = tokens.presented(token)
        if presented is None:
            return None
        # 2.
        if self._replica.failed is not None:
            raise identity.Unauthorized("ReplicaStopped", "the server's copy of the store has stopped")
        # 3., 4.
        name = tokens.secret_name(presented.id)
        item = self._replica.collection(_SECRETS).get(tokens.NAMESPACE, name)
        known = item is not None
        document = _document(self._decoy if item is None else item)
        # 6.
        found = token_verdict.verdict(document, presented, now, known=known)
        if isinstance(found, token_verdict.Rejected):
            refused = identity.Unauthorized(found.reason, f"{name}: {found.sentence}")
            # Whoever knows the secret may know that it has ended; the checks before this one told nobody anything.
            refused.told = found.reason if found.reason == "TokenExpired" else ""
            raise refused
        # 7.
        both = tuple(audience for audience in audiences or self._audiences if audience in self._audiences)
        if not both:
            raise identity.Unauthorized("WrongAudience", f"{name}: a bootstrap token is good for this API only")
        # 8.
        try:
            sources = use.sources(document)
        except errors.Refused as refused:
            raise identity.Unauthorized(refused.reason, f"{name}: {refused.message}") from None
        user = identity.User(found.user, found.groups, method=METHOD, until=found.until)
        # 9. whose signature is public anyway is told from where it is good
        signs = sources is not None and tokens.SIGNING in tokens.read(document).usages
        return identity.TokenVerdict(user, both, sources, told_elsewhere=signs)


def _document(item: items.Item) -> object:
    # 5. Whatever the decoder thinks of it: text that is not UTF-8, not JSON, or nested without end.
    try:
        return item.document()
    except (ValueError, RecursionError):
        return None


def require_source(user: identity.User, allowed: networks.Networks, address: str, *, told: bool = False) -> None:
    """Return if a token is accepted from this address, else 401: where it is accepted is told to the log only.

    `told`: the caller gets the word, too.
    """
    verdict = use.from_here(allowed, address)
    if isinstance(verdict, decision.Deny):
        refused = identity.Unauthorized(verdict.reason, f"{user.name}: {verdict.sentence}")
        refused.told = verdict.reason if told else ""
        raise refused
