# SPDX-License-Identifier: Apache-2.0
"""The certificate of a workload: asked for at once, renewed in time, for ever; and whether there is one that may be shown.

It serves nothing and connects no workload: whoever does follows the standing (`Credentials.follow`), or asks for it at each use. When it
is renewed and when it is tried again, `client.keeping` says; how the answer is judged, `wire.certifying`;
what the start-up has made for it, `start_up`.

1. The token is read for every request. It goes to the identity service only, which proves its name first (`wire.certifying`), by the anchors
   of that moment. So is its answer judged.
2. An answer that cannot be used changes nothing: what is held is held until its end. It is tried again after a time that grows, with
   a chance in it.
3. Two proxies of one account renew at different instants, since their keys differ.
4. At its end a certificate is shown no more, neither to the identity service nor to anybody: by the wall clock, or by the time that really
   went by, whichever comes first.
5. A second certificate of the same workload (`beside`) has a key of its own, a new one each time, which is in no file. What else is wanted of it,
   its holder says; an answer without that is one that cannot be used.
6. While the root of the mesh is replaced it is renewed before its time, where another is to have signed (`early_renewal`).

| standing | what it means |
|---|---|
| NOT_CERTIFIED | there was no certificate since the start |
| CERTIFIED | there is one, and it may be shown |
| EXPIRED | there was one; it is over, and the next is tried for |

| who | holding | tries | stopped by | shown in tests/unit/proxy/test_credentials.py |
|---|---|---|---|---|
| a stranger | the address of the identity service | be told the token | 1 | test_a_false_identity_service_is_told_no_token |
| … | … | have the workload show a certificate of another key | 2 | test_a_certificate_for_another_key_is_not_used |
| who has the identity service for a while | answers of another CA | end what is held | 2 | test_a_bad_answer_leaves_what_is_held |
| who sets the clock back | the machine's wall clock | have an ended certificate shown | 4 | test_a_clock_that_is_set_back_does_not_prolong_it |
| who has the key that was handed out for an earlier certificate | that key | use the certificates that follow | 5 | test_a_second_certificate_has_a_new_key_each_time |
"""

from __future__ import annotations

import asyncio
import datetime
import enum
import random as randomness
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.client import issuance, keeping
from handfast.pki import certificates, keys, names, pairs, pem
from handfast.proxy import early_renewal, start_up, store_directory
from handfast.proxy import trust as trust_module
from handfast.runtime import clock as clocks
from handfast.runtime import followers, tasks
from handfast.wire import certifying

_CALL_SECONDS: Final = 10.0
# The wall clock may jump, and only looking tells.
_LOOK_SECONDS: Final = 5.0
_log = structlog.get_logger("handfast.proxy")


class State(enum.Enum):
    """Whether there is a certificate."""

    NOT_CERTIFIED = "NotCertified"
    CERTIFIED = "Certified"
    EXPIRED = "Expired"


class Standing(msgspec.Struct, frozen=True):
    """The state of a moment. The pair is there while it may be shown; the end stays known."""

    state: State
    pair: pairs.Pair | None = None
    until: datetime.datetime | None = None


class _Held(msgspec.Struct, frozen=True):
    pair: pairs.Pair
    until: datetime.datetime
    # The same end, in the time that really goes by.
    ends_at: float


class Credentials:
    """The certificate of one workload and its successors. Metrics and reports read the public fields."""

    def __init__(
        self,
        material: start_up.Material,
        service: certifying.Service,
        trust: trust_module.Trust,
        *,
        clock: clocks.Clock,
        chance: Callable[[], float] = randomness.random,
        anew: bool = False,
        require: Callable[[names.Sans], object] = lambda _: None,
        judge: issuance.Judge = issuance.judge_plainly,
    ) -> None:
        self.renewals = 0
        self._material = material
        self._service = service
        self._trust = trust
        self._clock = clock
        self._until = clock.now()
        self._held: _Held | None = None
        self._followers = followers.Followers()
        # What `_watch` looks at has changed.
        self._news = asyncio.Event()
        self._early = early_renewal.EarlyRenewal(material.name, trust, clock, chance)
        self._beside: list[Credentials] = []
        self._require = require
        # 5. a new key each time
        store = _Memory(keys.generate if anew else lambda: material.key)
        # 3. the key tells the proxies of one account apart
        holder = f"{material.name} {store.pending_key().public.fingerprint}"
        self._keeper = keeping.Keeper(
            holder, store, self._obtain, lambda: material, clock=clock, chance=chance, judge=judge
        )
        self._keeper.subscribe(self._adopt)

    def beside(self, require: Callable[[names.Sans], object], judge: issuance.Judge) -> Credentials:
        """For a second certificate of the same workload, by the same token (5)."""
        second = Credentials(
            self._material, self._service, self._trust, clock=self._clock, anew=True, require=require, judge=judge
        )
        self._beside.append(second)
        second.prefer(self._early.preferred)
        return second

    # What there is now.

    @property
    def name(self) -> str:
        return self._material.name

    def standing(self) -> Standing:
        """The standing of this moment."""
        held = self._held
        if held is None:
            return Standing(State.NOT_CERTIFIED)
        # 4. by either clock
        if self._clock.now() >= held.until or self._clock.monotonic() >= held.ends_at:
            return Standing(State.EXPIRED, until=held.until)
        return Standing(State.CERTIFIED, held.pair, held.until)

    async def follow(self) -> AsyncIterator[Standing]:
        """The standing now, and again after each change; only the last of several that come quickly. Needs `run`."""
        with self._followers.one() as changed:
            while True:
                changed.clear()
                yield self.standing()
                await changed.wait()

    @property
    def last_error(self) -> keeping.Failure | None:
        """What the last attempt failed by; None after one that succeeded."""
        return self._keeper.last_error

    @property
    def failures(self) -> int:
        """How many attempts failed since the start."""
        return self._keeper.renew_errors

    @property
    def next_renewal(self) -> datetime.datetime | None:
        return self._keeper.next_renewal

    def prefer(self, signer: str) -> None:
        """Have the certificate signed by this issuer (`certify.issuer_tag`); empty: by whoever signs (6)."""
        if self._early.prefer(signer):
            self._news.set()
        for second in self._beside:
            second.prefer(signer)

    # What becomes of it.

    async def run(self) -> None:
        """Certify at once, and renew for ever, until cancelled."""
        async with tasks.Group("credentials") as group:
            group.start(self._keeper.run(), name="credentials/keep")
            await self._watch()

    async def _watch(self) -> None:
        before = self.standing().state
        while True:
            state = self.standing().state
            if state is State.EXPIRED and before is not State.EXPIRED:
                _log.warning("the certificate is over, and shown no more", name=self._material.name)
                # The chain may end before the leaf, and then nothing else says that it is time.
                self._keeper.renew_now()
                self._followers.tell()
            before = state
            self._renew_early()
            self._news.clear()
            await tasks.wait_for_event(self._news, self._clock, self._left())

    def _renew_early(self) -> None:
        # 6. before its time
        if self._held is not None and self._early.is_due(self._held.pair):
            _log.info("another issuer signs: the certificate is renewed", name=self._material.name)
            self._keeper.renew_now()

    def _left(self) -> float:
        """How long until the next look: never past the end."""
        held = self._held
        if held is None or self.standing().state is State.EXPIRED:
            return _LOOK_SECONDS
        now = self._clock.monotonic()
        left = min((held.until - self._clock.now()).total_seconds(), held.ends_at - now, self._early.at - now)
        return min(max(left, 0.001), _LOOK_SECONDS)

    async def _obtain(self, key: keys.PrivateKey, material: start_up.Material, seconds: float) -> bytes:
        standing = self.standing()
        # 1. read for every request
        token = store_directory.read_token(material.token_file)
        try:
            certified = await certifying.certify(
                self._service,
                certifying.Request(material.name, token, material.request(key)),
                # 1. by the anchors of this moment
                self._trust.current,
                clock=self._clock,
                # 4. nothing that is over is shown
                pair=standing.pair,
                seconds=min(seconds, _CALL_SECONDS),
            )
        except OSError as error:
            # 2. no place for a socket, for instance: tried again as everything else
            text = f"the identity service cannot be called: {(error.strerror or 'it failed').lower()}"
            raise errors.Unavailable(text, reason="CallFailed") from error
        # 5. with what else is wanted
        self._require(certificates.read(certified.chain[0]).sans)
        self._until = certified.until
        return pem.certificates_to_pem(certified.chain)

    async def _adopt(self, pair: pairs.Pair) -> None:
        until = self._until
        left = (until - self._clock.now()).total_seconds()
        self._held = _Held(pair, until, self._clock.monotonic() + left)
        self.renewals += 1
        self._news.set()
        self._followers.tell()


class _Memory:
    """A store of `client.issuance` that ends with the process. `choose` says which key is next: the one of the start-up, or a new one."""

    def __init__(self, choose: Callable[[], keys.PrivateKey]) -> None:
        self._choose = choose
        self._key = choose()
        self._pair: pairs.Pair | None = None

    def load(self) -> pairs.Pair | None:
        return self._pair

    def save(self, pair: pairs.Pair) -> None:
        self._pair = pair
        self._key = self._choose()

    def pending_key(self) -> keys.PrivateKey:
        return self._key

    def has_pending_key(self) -> bool:
        return False

    def discard_pending(self) -> None:
        self._key = self._choose()

    def remove_leftovers(self) -> None:
        """Nothing survives a crash."""
