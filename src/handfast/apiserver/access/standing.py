# SPDX-License-Identifier: Apache-2.0
"""Judges a caller again before anything is stored, if something changed or time passed since the request began.

A request is judged when its head is there. Then it may wait: for its body, for webhooks, for the store. Whoever was good
at the beginning need not be good at the end.

1. `require` is called when the body has arrived, before admission shows it to anybody, and again right before a write, a
   delete or the signing of a token.
2. It costs one comparison while nobody has lost anything since the first judgement and less than `JUDGED_AGAIN_AFTER`
   seconds have passed. These count as a loss: a Revocation that is new or says more; another bundle of client CAs;
   other CAs of bootstrap credentials; other keys of service account tokens; a Secret that was changed or deleted (bootstrap
   tokens, legacy tokens); a ServiceAccount, Pod or Node that is gone; a role or binding that was changed or deleted. What
   only time takes away (an expiry, the grace of a Pod that is being deleted) is noticed by the seconds.
3. Else the whole judgement is made anew: credential, deny list, impersonation, authorisation. 401 or 403 as for a new
   request.
4. Whoever would be somebody else now (another name, uid, groups or extra) is refused with 401: webhooks were told the
   first identity, and CertificateSigningRequests keep it. The next request is judged as what they are now.

It is judged by this server's copy of the store, as every request is. Rate limits are not asked again, and a read that
has begun is answered; what is watched is ended by `watch.Hub`.

| who | holding | tries | stopped by | shown in tests/scenarios/test_judged_again.py |
|---|---|---|---|---|
| a revoked user | a request whose body is on the way | store it all the same | 1, 3 | test_a_user_revoked_while_the_body_is_on_the_way |
| a former holder | a deleted bootstrap token | … | 1, 3 | test_a_bootstrap_token_deleted_while_the_body_is_on_the_way |
| a holder of a removed CA's certificate | a request at a slow webhook | … | 1, 3 | test_a_client_ca_removed_while_a_webhook_thinks |
| a user | a role that was taken away at a slow webhook | … | 3 | test_rights_taken_away_while_a_webhook_thinks |
| a former pod | a token, and a body that takes an hour | outlive the token | 2: the seconds | test_a_token_that_expires_on_the_way |
| a revoked user | a delete, a patch, a token request | … | 1 | test_every_verb |
| a user | a good token beside a certificate that is revoked | store as one what was admitted as the other | 4 | test_who_becomes_somebody_else |
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from handfast.apiserver import calls as call_module
from handfast.apiserver import identity
from handfast.apiserver.access import authn, authz, impersonation, policy
from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.rules import access
from handfast.runtime import clock as clocks
from handfast.serving import connection as connection_module

# Seconds. Most writes take less. An expiry is noticed at most this late.
JUDGED_AGAIN_AFTER: Final = 0.1
_ENDING: Final = ("core/serviceaccounts/", "core/pods/", "core/nodes/")
_CHANGING: Final = ("core/secrets/", *policy.ROLES, *policy.BINDINGS)


class Standing:
    """Whether callers who were judged are still good."""

    def __init__(
        self, authenticator: authn.Authenticator, authorizers: access.Authorizers, clock: clocks.Clock
    ) -> None:
        self._authenticator = authenticator
        self._authorizers = authorizers
        self._clock = clock
        # How often somebody may have lost something.
        self._losses = 0

    def load(self, replica: replica_module.Replica) -> None:
        """Follow the copy from now on."""
        for prefix in _ENDING:
            replica.collection(prefix).listen(self, self._gone)
        for prefix in _CHANGING:
            replica.collection(prefix).listen(self, self._changed)

    def lost(self) -> None:
        """Somebody who was good may no longer be."""
        self._losses += 1

    def judged(self, call: call_module.Call, at: float) -> None:
        """The caller was just found good, at this monotonic time."""
        call.losses, call.judged = self._losses, at

    def require(self, call: call_module.Call, verb: str = "") -> None:
        """Return if the caller is still good, else 401 or 403. `verb` is what is really done, where the URL says another."""
        # 2. a comparison
        at = self._clock.monotonic()
        if call.losses == self._losses and at - call.judged < JUDGED_AGAIN_AFTER:
            return
        losses = self._losses
        self._judge(call, verb)
        call.losses, call.judged = losses, at

    def _judge(self, call: call_module.Call, verb: str) -> None:
        # 3. the whole judgement
        http, now = call.http, self._clock.now()
        peer = cast("connection_module.Connection", http.protocol).peer
        caller = self._authenticator.authenticate(peer, http.headers.get("Authorization"), now, call.info)
        _require_same(call.impersonator or call.user, caller)
        if call.impersonator is not None:
            other = impersonation.apply(caller, http.headers, self._authorizers)
            _require_same(call.user, other)
            self._authenticator.require_not_denied(call.user, now)
        attributes = authz.attributes(call.user, call.info)
        authz.require(self._authorizers, attributes)
        if verb and verb != attributes.verb:
            authz.require(self._authorizers, msgspec.structs.replace(attributes, verb=verb, name=""))

    def _gone(self, change: items.Change) -> None:
        if change.after is None:
            self._losses += 1

    def _changed(self, change: items.Change) -> None:
        # What is new takes nothing away.
        if change.before is not None:
            self._losses += 1


def _require_same(before: identity.User, now: identity.User | None) -> None:
    # 4. the same person
    if now is None or _known_by(before) != _known_by(now):
        raise identity.Unauthorized("IdentityChanged", f"{before.name} was judged as another while the request waited")


def _known_by(user: identity.User) -> tuple[object, ...]:
    return user.name, user.uid, user.groups, user.extra
