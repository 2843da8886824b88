# SPDX-License-Identifier: Apache-2.0
"""Holds bootstrap tokens to their limits: where they come from, whom they let in, and how often. `rules.token_use` decides.

A use is written on the token's Secret by compare-and-swap before the request for a certificate is stored. So

1. of any number of machines that ask at once, at whatever server, exactly as many get in as the token allows;
2. what fails afterwards, and an answer that is lost, cost nothing: the use belongs to the key, which may ask again;
3. a dry run is judged and reserves nothing;
4. who was known by something else than a token, as by impersonation, is not judged, whatever the name;
5. the row runs last of the built-in ones, so that what they refuse uses nothing up.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_token_limits.py |
|---|---|---|---|---|
| two machines | a token for one use | ask in the same moment | 1 | test_of_many_at_once_one_gets_in |
| two machines | … at two servers | … | 1 | test_another_servers_reservation_counts |
| a machine | a token for one use | have another one's use counted by asking in vain | 2: its own key's | test_a_failure_afterwards_costs_nothing |
| a holder | a token for one use | find out by a dry run | 3 | test_a_dry_run_reserves_nothing |
| an administrator | the right to impersonate | use a token up without having it | 4 | test_another_credential_of_that_name_uses_nothing_up |
| a thief | a token, in another network | use it there | `require_source` | test_a_source_elsewhere |
| a holder | many keys | let writers starve one another | one at a time for each token | test_of_many_at_once_one_gets_in |
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable
from typing import Final

from handfast import errors
from handfast.api import kinds, objects, status
from handfast.apiserver import admission, bootstrap_tokens, identity, storage
from handfast.bootstrap import token_limits, tokens
from handfast.rules import certificate_admission, decision, networks, token_use
from handfast.store import protocol

NAME: Final = "BootstrapTokenLimits"
_RESOURCES: Final = frozenset({(certificate_admission.GROUP, "certificatesigningrequests")})
# Only writers in other processes, and of other things on the Secret, get in between.
_TRIES: Final = 16


def require_source(user: identity.User, allowed: networks.Networks, address: str) -> None:
    """Return if a token is accepted from this address, else 401: where it is accepted is told to the log only."""
    verdict = token_use.from_here(allowed, address)
    if isinstance(verdict, decision.Deny):
        raise identity.Unauthorized(verdict.reason, f"{user.name}: {verdict.sentence}")


class TokenLimits:
    """The uses of all tokens at this server."""

    def __init__(self, store: storage.Storage) -> None:
        self._storage = store
        self._secrets = next(row for row in kinds.builtin() if row.resource == ("", "secrets"))
        # For each token that is being used now. Conflicts decide between servers; between requests they would only
        # cost attempts.
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @property
    def row(self) -> admission.Row:
        """What admission has to ask last."""
        return admission.Row(NAME, frozenset({admission.CREATE}), self.admit, _RESOURCES)

    def admit(self, asked: admission.Attributes, context: admission.Context) -> Awaitable[None] | None:
        """Let a bootstrap token ask for a certificate, and write that down; or refuse it."""
        # 4.
        token = token_use.token_id(asked.user.name) if asked.user.method == bootstrap_tokens.METHOD else None
        if token is None or asked.subresource or asked.document is None:
            return None
        return self._reserve(asked, asked.document, tokens.secret_name(token), context)

    async def _reserve(
        self, asked: admission.Attributes, request: objects.Document, name: str, context: admission.Context
    ) -> None:
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            for _ in range(_TRIES):
                if await self._tried(asked, request, name, context):
                    return
        raise errors.Unavailable(
            f"the use of {name} could not be written down: others change this Secret all the time; please try again",
            reason="TokenContended",
        )

    async def _tried(
        self, asked: admission.Attributes, request: objects.Document, name: str, context: admission.Context
    ) -> bool:
        """Judge by the Secret as it is, and write the use; false: somebody else has changed it since."""
        found = await self._storage.find(self._secrets, tokens.NAMESPACE, name)
        user, secret = asked.user, None if found is None else found.document()
        verdict = token_use.decide(
            token_use.Asked(user=user.name, source=user.source, request=request, secret=secret, now=context.now())
        )
        if isinstance(verdict, decision.Deny):
            # The word is among the causes, too, for whoever joins.
            raise admission.Refusal(asked, verdict, (status.Cause(verdict.reason, verdict.sentence),))
        # 1., 3.
        if isinstance(verdict, token_use.Reserve) and found is not None and not asked.dry_run:
            try:
                await self._storage.replace(self._secrets, token_limits.with_use(found.document(), verdict.use), found)
            except protocol.Mismatch:
                return False
        return True
