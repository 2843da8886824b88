# SPDX-License-Identifier: Apache-2.0
"""The pair that the injector serves with, as its Secret holds it: when there is a next one, and when that one is served.

Replicas share the Secret. Each decides from what is stored, and writes only over what it has read: whichever comes first does the step, and
the others find it done. It reads no Secret and draws no lots: acting is `mesh.injector.own_pair`.

1. A pair is a leaf for the name of the Service, and the root that signed it. The root's key signs this one leaf, and is kept nowhere.
2. A pair that is not there, cannot be read, has another name or has ended is no pair. Without one, a new one is used at once.
3. From 70 to 90 % of its life a next one is made. The instant depends on the certificate alone, so that replicas agree on it.
4. The next one is served only when its root has been in the webhook's CA bundle for a while: every API server has to know it by then.
5. The roots of both stay in the bundle until they end: a replica that serves the old one for another moment is believed.
6. A Secret that somebody empties means a new pair at once, and no trust in the old one: that is how a key is thrown away.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_injector_pair.py |
|---|---|---|---|---|
| a renewal | a certificate that no API server knows | be served, so that Pods start without a proxy, or not at all | 4 | test_a_next_pair_is_served_only_once_its_root_is_known |
| a thief | a key that was stolen | be believed after it was thrown away | 6 | test_an_empty_secret_is_a_new_pair_and_no_old_trust |
| … | the Secret's old contents | sign certificates for other names | 1 | test_the_roots_key_is_kept_nowhere |
"""

from __future__ import annotations

import base64
import datetime
import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from handfast import errors
from handfast.pki import authority, certificates, keys, names, pairs, pem, profiles, renewal
from handfast.rules.mesh import settings, webhook

# 4. how long a root is in the bundle before its leaf is served: a part of its life, and no longer than this
MOST_SETTLING: Final = datetime.timedelta(seconds=10)
_SETTLING_PART: Final = 20
_MOST_ROOTS: Final = 4
NEXT_CERTIFICATE_KEY: Final = "next.crt"
NEXT_PRIVATE_KEY_KEY: Final = "next.key"


@dataclass(frozen=True, slots=True)
class Stored:
    """What a Secret holds: the pair that is served, the next one, and the roots that are to be believed (DER)."""

    pair: pairs.Pair | None = None
    following: pairs.Pair | None = None
    roots: tuple[bytes, ...] = ()

    @property
    def bundle(self) -> bytes:
        """What the webhook's CA bundle has to be, in PEM."""
        return pem.certificates_to_pem(self.roots)


class Step(enum.Enum):
    """What is to be done."""

    NOTHING = enum.auto()
    BEGIN = enum.auto()
    PREPARE = enum.auto()
    SWITCH = enum.auto()


def read(data: Mapping[str, Any], name: str, now: datetime.datetime) -> Stored:
    """The contents of the Secret; what is not to be used is left out (2)."""
    pair = _pair(data, webhook.CERTIFICATE_KEY, webhook.PRIVATE_KEY_KEY, name, now)
    following = _pair(data, NEXT_CERTIFICATE_KEY, NEXT_PRIVATE_KEY_KEY, name, now)
    # 6. without a pair, nothing of before counts
    kept = () if pair is None else _roots(data, now)
    return Stored(pair, following, _joined(pair, following, kept))


def step(stored: Stored, *, now: datetime.datetime, settled: bool) -> Step:
    """What is to be done now; `settled` is whether the root of the next one is known by now (4)."""
    # 2. none, or none that can be used
    if stored.pair is None:
        return Step.BEGIN
    if stored.following is not None:
        # 4. known by every API server
        return Step.SWITCH if settled else Step.NOTHING
    # 3. in time
    return Step.PREPARE if now >= due(stored.pair) else Step.NOTHING


def after(stored: Stored, what: Step, fresh: pairs.Pair) -> Stored:
    """What the Secret holds after a step; `fresh` is a new pair, for the steps that need one."""
    if what is Step.BEGIN:
        return Stored(fresh, None, _joined(fresh, None, ()))
    if what is Step.PREPARE:
        return replace(stored, following=fresh, roots=_joined(stored.pair, fresh, stored.roots))
    # 5. both roots stay
    return Stored(stored.following, None, _joined(stored.following, None, stored.roots))


def data(stored: Stored) -> dict[str, str | None]:
    """The data of the Secret, as a merge patch: what is not to be there is null."""
    rows = (
        (stored.pair, webhook.CERTIFICATE_KEY, webhook.PRIVATE_KEY_KEY),
        (stored.following, NEXT_CERTIFICATE_KEY, NEXT_PRIVATE_KEY_KEY),
    )
    values: dict[str, str | None] = {webhook.BUNDLE_KEY: _encoded(stored.bundle)}
    for pair, certificate, key in rows:
        values[certificate] = None if pair is None else _encoded(pair.certificate_pem)
        values[key] = None if pair is None else _encoded(pair.key_pem)
    return values


def make(name: str, chosen: settings.Settings, now: datetime.datetime) -> pairs.Pair:
    """A new pair for the name of the Service (1)."""
    root_key, key = keys.generate(), keys.generate()
    lifetime, backdate = chosen.injector_lifetime, chosen.skew
    # Roots of one name would be mistaken for one another.
    subject = names.Subject(common_name=f"linkerd-proxy-injector {root_key.public.fingerprint[:16]}")
    above = replace(profiles.ROOT_CA, name="injector-root", lifetime=lifetime, backdate=backdate, path_length=0)
    below = replace(profiles.KUBELET_SERVING, name="injector", lifetime=lifetime, backdate=backdate)
    root = authority.self_signed_ca(subject, root_key, now, above)
    issued = root.issue(key.public, names.Subject(), names.make_sans(dns=[name]), below, now)
    # 1. the root's key ends here
    return pairs.Pair((issued.der, root.certificate.der), key)


def due(pair: pairs.Pair) -> datetime.datetime:
    """When the next one is made (3)."""
    leaf = pair.leaf
    return renewal.deadline(leaf.not_before, leaf.not_after, renewal.place_in_cycle(leaf.serial))


def settling(pair: pairs.Pair) -> datetime.timedelta:
    """How long a root has to be in the bundle before its leaf is served (4)."""
    return min((pair.leaf.not_after - pair.leaf.not_before) / _SETTLING_PART, MOST_SETTLING)


def is_believed(pair: pairs.Pair, bundle: bytes) -> bool:
    """Whether a CA bundle has the root of a pair."""
    return pair.chain[-1] in _certificates(bundle)


def says(stored: Stored, bundle: bytes) -> bool:
    """Whether a CA bundle has the roots that it has to have, in whatever order."""
    return set(_certificates(bundle)) == set(stored.roots)


def shown(pair: pairs.Pair) -> pairs.Pair:
    """What is sent in handshakes: the leaf. Whoever believes it has the root."""
    return pairs.Pair(pair.chain[:1], pair.key)


def _pair(data: Mapping[str, Any], certificate: str, key: str, name: str, now: datetime.datetime) -> pairs.Pair | None:
    try:
        pair = pairs.join(webhook.decoded(data.get(certificate)), keys.private_from_pem(webhook.decoded(data.get(key))))
    except errors.Refused:
        return None
    # 2. of this name, with its root, and not over
    fits = len(pair.chain) == 2 and name in pair.leaf.sans.dns and now < pair.leaf.not_after
    return pair if fits else None


def _roots(data: Mapping[str, Any], now: datetime.datetime) -> tuple[bytes, ...]:
    rows = _certificates(webhook.decoded(data.get(webhook.BUNDLE_KEY)))
    return tuple(der for der in rows if now < certificates.read(der).not_after)


def _joined(pair: pairs.Pair | None, following: pairs.Pair | None, kept: tuple[bytes, ...]) -> tuple[bytes, ...]:
    own = tuple(each.chain[-1] for each in (pair, following) if each is not None)
    # 5. those before come last, and not without end
    return tuple(dict.fromkeys((*own, *kept)))[:_MOST_ROOTS]


def _certificates(text: bytes) -> tuple[bytes, ...]:
    try:
        ders = tuple(pem.certificates_from_pem(text))
        for der in ders:
            certificates.read(der)
    except errors.Refused:
        return ()
    return ders


def _encoded(text: bytes) -> str:
    return base64.b64encode(text).decode("ascii")
