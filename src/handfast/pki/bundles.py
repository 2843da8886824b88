# SPDX-License-Identifier: Apache-2.0
"""A trust bundle: the set of CA certificates someone trusts, with add, retire and overlap during a rotation.

It does not fetch, store or publish bundles, and does not verify chains: see `chains`.

1. An anchor is a CA certificate with an accepted key that may sign others (`certificates.require_ca`).
2. The same certificate twice counts once: anchors are told apart by the SHA-256 of their DER.
3. Equal sets have equal PEM and equal digests, whatever the order of adding: anchors are kept by notBefore, then by
   fingerprint, so that an old and a new CA stand in that order and a diff shows only what changed.
4. A key is retired, not a certificate. A CA that was issued again, or that others signed as well, has several anchors, and
   each of them believes whoever holds its key. All of them go.
5. Retiring the last anchor is refused: a bundle that trusts nobody locks everyone out, and an empty file is more often
   an accident than a wish.
6. In a new bundle (`of`), one certificate that is no anchor refuses all of it. The error has its position, so that it can
   be mended. In a stored bundle (`readable`), it is left out and reported, and the others count: leaving out takes trust
   away and never adds any.

A rotation is: `add` the new CA, publish; sign with it once everyone has the bundle; `retire` the old one when the last
certificate under it has expired. Between the two both are trusted (`in_force`).
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable

import msgspec

from handfast import errors
from handfast.pki import certificates, pem


class LeftOut(msgspec.Struct, frozen=True):
    """A certificate of a stored bundle that cannot be an anchor: its position, its SHA-256 in hex, and why."""

    number: int
    fingerprint: str
    why: str

    def __str__(self) -> str:
        return f"certificate {self.number} (SHA-256 {self.fingerprint}) is left out: {self.why}"


class TrustBundle(msgspec.Struct, frozen=True):
    """Trust anchors in their stable order (3); made by `of` or `from_pem`. `digest` is the key for caches."""

    anchors: tuple[certificates.Certificate, ...]
    digest: str

    @classmethod
    def of(cls, ders: Iterable[bytes]) -> TrustBundle:
        """The bundle of these certificates; none at all is the bundle that trusts nobody."""
        by_fingerprint: dict[str, certificates.Certificate] = {}
        for number, der in enumerate(ders, start=1):
            try:
                anchor = certificates.read(der)
                # 1. a CA certificate that may sign others
                certificates.require_ca(anchor)
            except errors.Refused as refused:
                # 6. one that is no anchor refuses all of a new bundle
                raise errors.Refused(f"certificate {number}: {refused.message}", reason=refused.reason) from None
            # 2. the same certificate counts once
            by_fingerprint[anchor.fingerprint] = anchor
        # 3. in the stable order
        anchors = tuple(sorted(by_fingerprint.values(), key=lambda anchor: (anchor.not_before, anchor.fingerprint)))
        return cls(anchors, hashlib.sha256("\n".join(sorted(by_fingerprint)).encode("ascii")).hexdigest())

    @classmethod
    def readable(cls, ders: Iterable[bytes]) -> tuple[TrustBundle, tuple[LeftOut, ...]]:
        """The bundle of those that are anchors, and those that are not (6)."""
        good: list[bytes] = []
        left: list[LeftOut] = []
        for number, der in enumerate(ders, start=1):
            try:
                certificates.require_ca(certificates.read(der))
            except errors.Refused as refused:
                # 6. and is left out of a stored one
                left.append(LeftOut(number, certificates.fingerprint(der), refused.message))
            else:
                good.append(der)
        return cls.of(good), tuple(left)

    @classmethod
    def from_pem(cls, data: bytes) -> TrustBundle:
        """At least one certificate; comments between the blocks are allowed and not kept."""
        return cls.of(pem.certificates_from_pem(data))

    def to_pem(self) -> bytes:
        """Every anchor, in the stable order (3)."""
        return pem.certificates_to_pem(self.ders)

    @property
    def ders(self) -> tuple[bytes, ...]:
        """The anchors' DER, in the stable order (3)."""
        return tuple(anchor.der for anchor in self.anchors)

    def add(self, *ders: bytes) -> TrustBundle:
        """This bundle and these anchors."""
        return TrustBundle.of((*self.ders, *ders))

    def of_key(self, *fingerprints: str) -> tuple[certificates.Certificate, ...]:
        """Every anchor of a key that is named, by its own fingerprint or by that of one of its certificates (4)."""
        named = frozenset(fingerprints)
        keys = {
            anchor.public_key.fingerprint
            for anchor in self.anchors
            if not named.isdisjoint((anchor.fingerprint, anchor.public_key.fingerprint))
        }
        return tuple(anchor for anchor in self.anchors if anchor.public_key.fingerprint in keys)

    def retire(self, *fingerprints: str) -> TrustBundle:
        """This bundle without a CA, named as in `of_key`."""
        # 4. every anchor of the key
        gone = self.of_key(*fingerprints)
        if not gone:
            raise errors.Refused(f"no trust anchor has the fingerprint {fingerprints!r}", reason="UnknownAnchor")
        rest = [anchor.der for anchor in self.anchors if anchor not in gone]
        # 5. never the last one
        if not rest:
            raise errors.Refused(
                "the last trust anchor is not retired",
                reason="LastAnchor",
                hint="add the new CA first, and retire the old one when both are known everywhere",
            )
        return TrustBundle.of(rest)

    def in_force(self, now: datetime.datetime) -> tuple[certificates.Certificate, ...]:
        """The anchors valid at this instant: more than one means that a rotation is under way."""
        return tuple(anchor for anchor in self.anchors if anchor.not_before <= now <= anchor.not_after)
