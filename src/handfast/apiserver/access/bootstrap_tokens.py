# SPDX-License-Identifier: Apache-2.0
"""Authenticates bearers of bootstrap tokens by the Secrets in the server's own copy.

It judges no token itself: `bootstrap.token_verdict` does.

1. A text of another shape is left to the next authenticator.
2. A copy of the store that has stopped is not believed: refused.
3. The Secret is looked up anew each time and nothing is remembered, so a token ends in the moment in which this
   server learns that its Secret was changed or deleted, and at its expiration. Kubernetes remembers it for ten seconds.
4. Where there is no Secret, a decoy is decoded and judged the same way, and refused.
5. A Secret that cannot be decoded is judged as none at all.
6. Then the checks of `bootstrap.token_verdict` decide. The log says which of them failed first; the caller never learns it.
7. A bootstrap token names no audience: it is good for those of this API, as in Kubernetes, and for no other.
8. The Secret may say from where the token is accepted; `require_source` compares. A limit that cannot be read refuses
   everybody.
9. The bearer of a token for signing is told when it is not accepted from their address. Anyone can see whether such a token
   is good, from its signature of cluster-info, which is public. Bearers of other tokens are told nothing.
10. Which token was refused, and whether its secret was the right one, goes with the refusal for the operator (`join_failures`). The
    answer is the same.
11. Who made the token goes with its user, to be written on requests for certificates, once every server can read that in the ledger (`names_makers`).

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_bootstrap_tokens.py |
|---|---|---|---|---|
| a former holder | a token whose Secret was deleted | use it again at once | 3 | test_a_deleted_token_ends_at_once |
| a holder | a token about to expire | outlive it on an open watch | `until` | test_the_user_ends_with_the_token |
| anyone | nothing | learn which ids exist | 4 | test_an_unknown_id_takes_the_steps_of_a_wrong_secret |
| a user of another namespace | may write Secrets there | make a token of their own | 3: only kube-system | test_other_namespaces_make_no_tokens |
| a user | may write Secrets of kube-system under other names | two tokens of one id | 3: by name | test_a_bad_token_is_refused_and_only_the_log_learns_why |
| anyone | a text of a megabyte, or in other alphabets | crash or slow the server | 1 | test_another_shape_is_not_mine |
| who writes the store | a value that is no document | be let in by an error | 5 | test_what_is_no_document_is_refused |
| a holder | a bootstrap token | pass for somebody at another service | 7 | test_only_the_audiences_of_the_api_are_served |
| a thief | a token, in another network | use it there | 8 | test_a_source_elsewhere |
| anyone | nothing | learn which ids exist by what the operator is told | 10 | test_only_the_operator_learns_whose_token_was_refused |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

from handfast import errors
from handfast.apiserver import identity
from handfast.apiserver.state import envelope, items
from handfast.apiserver.state import replica as replica_module
from handfast.bootstrap import token_verdict, tokens
from handfast.rules import decision, networks
from handfast.rules.tokens import maker, use

METHOD: Final = "bootstrap-token"
_SECRETS: Final = "core/secrets/"


class BootstrapTokens:
    """The authenticator of bootstrap tokens."""

    def __init__(
        self,
        replica: replica_module.Replica,
        api_audiences: tuple[str, ...],
        names_makers: Callable[[], bool] = lambda: False,
    ) -> None:
        self._replica = replica
        self._names_makers = names_makers
        self._audiences = api_audiences
        self._decoy = items.Item(tokens.NAMESPACE, "", 0, envelope.encode_document(token_verdict.decoy()))

    def remembers(self, token: str) -> bool:
        """Never: a deleted token must be refused at once."""
        del token
        return False

    def authenticate(
        self, token: str, audiences: tuple[str, ...], now: datetime.datetime
    ) -> identity.TokenVerdict | None:
        """Whom the token stands for. None: it is no bootstrap token. Unauthorized: it is one, and refused."""
        # 1. another shape is left to the next authenticator
        presented = tokens.presented(token)
        if presented is None:
            return None
        # 2. a copy that has stopped is not believed
        if self._replica.failed is not None:
            raise identity.Unauthorized("ReplicaStopped", "the server's copy of the store has stopped")
        # 3. looked up anew each time; 4. or the decoy
        name = tokens.secret_name(presented.id)
        item = self._replica.collection(_SECRETS).get(tokens.NAMESPACE, name)
        known = item is not None
        document = _document(self._decoy if item is None else item)
        # 6. the verdict on the token
        verdict = token_verdict.verdict(document, presented, now, known=known)
        if isinstance(verdict, token_verdict.Rejected):
            refused = identity.Unauthorized(verdict.reason, f"{name}: {verdict.sentence}")
            # The check of the time comes after that of the secret: who gets there holds it, and may know of the end.
            refused.public_reason = verdict.reason if verdict.reason == "TokenExpired" else ""
            # 10. for the operator
            holds_secret = verdict.check > token_verdict.SECRET_CHECK
            refused.bearer = identity.Bearer(presented.id, known=known, holds_secret=holds_secret)
            raise refused
        # 7. for the audiences of this API only
        both = tuple(audience for audience in audiences or self._audiences if audience in self._audiences)
        if not both:
            raise identity.Unauthorized("WrongAudience", f"{name}: a bootstrap token is good for this API only")
        # 8. from where it is accepted
        try:
            sources = use.sources(document)
        except errors.Refused as refused:
            unreadable = identity.Unauthorized(refused.reason, f"{name}: {refused.message}")
            unreadable.bearer = identity.Bearer(presented.id)
            raise unreadable from None
        # 9. a token for signing can be checked by anyone
        signs = sources is not None and tokens.SIGNING in tokens.read(document).usages
        # 11. who made it
        made_by = maker.of(document) if self._names_makers() and isinstance(document, dict) else ""
        user = identity.User(verdict.user, verdict.groups, method=METHOD, until=verdict.until, token_maker=made_by)
        return identity.TokenVerdict(user, both, sources, tells_bearer=signs)


def _document(item: items.Item) -> object:
    # 5. what cannot be decoded: text that is not UTF-8, not JSON, or nested too deep
    try:
        return item.document()
    except (ValueError, RecursionError):
        return None


def require_source(user: identity.User, allowed: networks.Networks, address: str, *, tell_bearer: bool = False) -> None:
    """Return if a token is accepted from this address, else 401. Only the log says from where it is accepted.

    With `tell_bearer` the answer has the reason in it.
    """
    verdict = use.from_here(allowed, address)
    if isinstance(verdict, decision.Deny):
        refused = identity.Unauthorized(verdict.reason, f"{user.name}: {verdict.sentence}")
        refused.public_reason = verdict.reason if tell_bearer else ""
        refused.bearer = bearer(user)
        raise refused


def bearer(user: identity.User) -> identity.Bearer | None:
    """The bearer of a good token, who is refused for another reason; None: they showed something else."""
    token = use.token_id(user.name) if user.method == METHOD else None
    return None if token is None else identity.Bearer(token)
