# SPDX-License-Identifier: Apache-2.0
"""Holds bootstrap tokens to their limits: whom they let in, and how often. `rules.tokens.use` decides.

From where a token is accepted is asked at every request: see `access.bootstrap_tokens`.

A use is written on the token's Secret by compare-and-swap before the request for a certificate is stored. So

1. of any number of machines that ask at once, at whatever server, exactly as many get in as the token allows;
2. what fails afterwards, and an answer that is lost, cost nothing: the use belongs to the key, which may ask again;
3. a dry run is judged and reserves nothing;
4. who was authenticated by something else than a token, as by impersonation, is not judged, whatever the name;
5. the row runs last of the built-in ones, so that what they refuse uses nothing up;
6. while the uses of one token are being written, those that come meanwhile gather, and are judged one after the other
   and written together: a thousand machines that join with one token at once are a few writes (`runtime.batches`).

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_token_limits.py |
|---|---|---|---|---|
| two machines | a token for one use | ask in the same moment | 1 | test_of_many_at_once_one_gets_in |
| two machines | … at two servers | … | 1 | test_another_servers_reservation_counts |
| a machine | a token for one use | have another one's use counted by asking in vain | 2: its own key's | test_a_failure_afterwards_costs_nothing |
| a holder | a token for one use | find out by a dry run | 3 | test_a_dry_run_reserves_nothing |
| an administrator | the right to impersonate | use a token up without having it | 4 | test_another_credential_of_that_name_uses_nothing_up |
| a holder | many keys | let writers starve one another | one at a time for each token | test_of_many_at_once_one_gets_in |
| a machine | a request over which the server stumbles | keep the others of its batch out | 6: it fails alone | test_a_bug_over_one_request_fails_that_one_only |
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects, resources, signing_requests, status
from handfast.apiserver.access import bootstrap_tokens
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import storage
from handfast.bootstrap import token_limits as bootstrap_limits
from handfast.bootstrap import tokens
from handfast.rules import decision
from handfast.rules.tokens import use as token_use
from handfast.runtime import batches
from handfast.store import protocol

NAME: Final = "BootstrapTokenLimits"
_RESOURCES: Final = frozenset({(signing_requests.GROUP, "certificatesigningrequests")})
# Only writers in other processes, and of other things on the Secret, get in between.
_TRIES: Final = 16
_REMEMBERED: Final = 1024


class _Use(msgspec.Struct, frozen=True):
    """One request that wants to use a token."""

    write: plugin.Write
    request: objects.Document
    now: Callable[[], datetime.datetime]


_Waiting = batches.Waiting[_Use, None]
_Verdict = tuple[_Waiting, errors.HandfastError | None]


class _Known(msgspec.Struct, frozen=True):
    """What a Secret says at one version of it."""

    version: int
    record: bootstrap_limits.Record
    standing: token_use.Standing


class TokenLimits:
    """The uses of all tokens at this server."""

    def __init__(self, store: storage.Storage) -> None:
        self._storage = store
        # By the name of the token's Secret. Conflicts decide between servers; between requests they would only cost
        # attempts.
        self._uses: batches.Batches[str, _Use, None] = batches.Batches(self._judge)
        # What the Secret of a token says, by its name: reading it costs more than judging by it.
        self._known: dict[str, _Known] = {}

    @property
    def row(self) -> plugin.Row:
        """What admission has to ask last."""
        return plugin.Row(NAME, frozenset({plugin.CREATE}), self.admit, _RESOURCES)

    def admit(self, write: plugin.Write, context: plugin.Context) -> Awaitable[None] | None:
        """Let a bootstrap token ask for a certificate, and write that down; or refuse it."""
        # 4. only who was authenticated by a token
        token = token_use.token_id(write.user.name) if write.user.method == bootstrap_tokens.METHOD else None
        if token is None or write.subresource or write.document is None:
            return None
        # 6. with whoever else uses this token now
        return self._uses.join(tokens.secret_name(token), _Use(write, write.document, context.now))

    async def _judge(self, name: str, batch: Sequence[_Waiting]) -> None:
        for _ in range(_TRIES):
            if await self._tried(batch, name):
                return
        raise _contended(name)

    async def _tried(self, batch: Sequence[_Waiting], name: str) -> bool:
        """Judge by the Secret as it is, and write the uses; false: somebody else has changed it since."""
        item = await self._storage.find(resources.SECRETS, tokens.NAMESPACE, name)
        if item is None:
            _settle(_judged(batch, None, None)[0])
            return True
        secret = item.document()
        known = self._read(name, item.version, secret)
        verdicts, after = _judged(batch, secret, known)
        if known is not None and after is not None and after is not known.record:
            try:
                stored = await self._storage.replace(resources.SECRETS, bootstrap_limits.written(secret, after), item)
            except protocol.Mismatch:
                return False
            # Only the uses have changed.
            self._remember(name, _Known(stored.version, after, known.standing))
        _settle(verdicts)
        return True

    def _read(self, name: str, version: int, secret: objects.Document) -> _Known | None:
        """What the Secret says. None: it cannot be read, and the rule refuses it for that."""
        known = self._known.get(name)
        if known is not None and known.version == version:
            return known
        try:
            known = _Known(version, bootstrap_limits.record(secret), token_use.standing(secret))
        except errors.Refused:
            return None
        self._remember(name, known)
        return known

    def _remember(self, name: str, known: _Known) -> None:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[name] = known


def _judged(
    batch: Sequence[_Waiting], secret: objects.Document | None, known: _Known | None
) -> tuple[list[_Verdict], bootstrap_limits.Record | None]:
    """The refusal of each, or None, judged one after the other; and the record with the uses that are to be written."""
    after = None if known is None else known.record
    verdicts: list[_Verdict] = []
    for waiting in batch:
        use = waiting.item
        verdict = token_use.decide(
            token_use.Attempt(
                user=use.write.user.name,
                source=use.write.user.source,
                request=use.request,
                secret=secret,
                now=use.now(),
                record=after,
                standing=None if known is None else known.standing,
            )
        )
        if isinstance(verdict, decision.Deny):
            # The reason is among the causes, too: a machine that joins reads it there.
            cause = status.Cause(verdict.reason, verdict.sentence)
            verdicts.append((waiting, plugin.Refusal(use.write, verdict, (cause,))))
            continue
        verdicts.append((waiting, None))
        # 1. counted for those who are judged after it; 3. a dry run is not
        if isinstance(verdict, token_use.Reserve) and after is not None and not use.write.dry_run:
            after = after.with_use(verdict.use)
    return verdicts, after


def _settle(verdicts: Sequence[_Verdict]) -> None:
    for waiting, refusal in verdicts:
        if refusal is None:
            waiting.settle(None)
        else:
            waiting.fail(refusal)


def _contended(name: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the use of {name} could not be written down: others change this Secret all the time; please try again",
        reason="TokenContended",
    )
