# SPDX-License-Identifier: Apache-2.0
"""What a data directory trusts and signs with, for people: its CAs, its keys of tokens, and rotations under way.

It changes nothing, and prints nothing: see `cli.ca`.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from handfast.datadir import layout, own_certificates, preparation
from handfast.datadir.rotation import trust_files
from handfast.pki import jwt
from handfast.rules import trust_rotation
from handfast.rules.ledger import entries as ledger_entries


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """One CA; `unexpired` is how many of its certificates are, by the ledger, None where nobody can tell."""

    fingerprint: str
    name: str
    not_before: datetime.datetime
    not_after: datetime.datetime
    signs: bool
    unexpired: int | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Keys are (id, whether it signs)."""

    anchors: tuple[Anchor, ...]
    keys: tuple[tuple[str, bool], ...]
    rotations: tuple[trust_rotation.State, ...]


def of(place: layout.Layout, entries: Sequence[ledger_entries.Entry] | None, now: datetime.datetime) -> Overview:
    """The overview at an instant; `entries` are those of the ledger, where they could be read."""
    trust = preparation.read_trust(place)
    states = {target: trust_files.RotationDirectory.of(place, target).read() for target in trust_rotation.OF_DIRECTORY}
    state = states[trust_rotation.Target.CA]
    signing = trust.signer.certificate.fingerprint
    anchors = tuple(
        Anchor(
            fingerprint=anchor.fingerprint,
            name=anchor.subject.common_name,
            not_before=anchor.not_before,
            not_after=anchor.not_after,
            signs=anchor.fingerprint == signing,
            unexpired=_unexpired(anchor.fingerprint, signing, state, entries, now),
        )
        for anchor in trust.bundle.anchors
    )
    key = own_certificates.private_key(place.service_account_key).public
    return Overview(
        anchors=anchors,
        keys=tuple(
            (jwt.key_id(public), public == key) for public in preparation.public_keys(place.service_account_public_key)
        ),
        rotations=tuple(found for found in states.values() if found is not None),
    )


def _unexpired(
    fingerprint: str,
    signing: str,
    state: trust_rotation.State | None,
    entries: Sequence[ledger_entries.Entry] | None,
    now: datetime.datetime,
) -> int | None:
    if entries is None:
        return None
    unexpired = [entry for entry in entries if entry.not_after > now]
    if state is not None:
        return sum(fingerprint in trust_rotation.signers_at(state, entry.issued_at) for entry in unexpired)
    # The ledger does not name the CA: without a rotation it is known only where one alone can have signed.
    return len(unexpired) if fingerprint == signing else None
