# SPDX-License-Identifier: Apache-2.0
"""The merge of client CAs out of their sources, and whom a bootstrap CA may vouch for. It reads and writes nothing itself.

`merge` is for a bundle that people change, too:

1. What is in the bundle and not in the record was put there by hand. It stays, and is never recorded. So do the CAs of the data
   directory (`own`), even where a source gave them first.
2. What a source gives is added, in the order of the sources, and recorded with every source that gives it. What is there
   keeps its place.
3. The same certificate counts once. One that has expired is not given any more; one that is not yet valid is.
4. What was recorded, and no source gives any more, goes.
5. But if no CA in force were left then, and there is one now, what would go stays, still recorded: nobody is locked out.

`require_in_scope` is for a chain that ends in a bootstrap CA and in no other:

6. It is good for the bootstrap identity by its name, in that identity's groups or fewer.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.pki import bundles, certificates, names
from handfast.rules.machines import bootstrapper

OUTSIDE_SCOPE: Final = "OutsideAuthorityScope"

Certificates = Sequence[certificates.Certificate]


class Merged(msgspec.Struct, frozen=True):
    """A bundle in its order, the record of it, and what changed: `kept` would have gone, but for 5."""

    ders: tuple[bytes, ...]
    given_by: dict[str, tuple[str, ...]]
    added: tuple[certificates.Certificate, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...] = ()


def merge(
    ders: Sequence[bytes],
    given_by: Mapping[str, Sequence[str]],
    sources: Mapping[str, Certificates],
    now: datetime.datetime,
    own: frozenset[str] = frozenset(),
) -> Merged:
    """The bundle `ders` with its record, and what the sources give now, in their order."""
    here = {certificates.fingerprint(der): der for der in ders}
    by_hand = frozenset(here) - frozenset(given_by) | (own & frozenset(here))
    offered = _offered(sources, now)
    # 1. never recorded; 2. with every source
    recorded = {one: tuple(names_) for one, (_, names_) in offered.items() if one not in by_hand}
    # 4. given before, and not any more
    going = [one for one in here if one not in by_hand and one not in recorded]
    staying = {one: der for one, der in here.items() if one not in going}
    # 2. what is new, after what is there
    added = {one: certificate for one, (certificate, _) in offered.items() if one not in here}
    result = (*staying.values(), *(certificate.der for certificate in added.values()))
    # 5. nobody is locked out
    if going and in_force(here.values(), now) and not in_force(result, now):
        kept = {one: tuple(given_by[one]) for one in going}
        result = (*here.values(), *(certificate.der for certificate in added.values()))
        return Merged(result, {**recorded, **kept}, tuple(added.values()), (), tuple(going))
    return Merged(result, recorded, tuple(added.values()), tuple(going))


def _offered(
    sources: Mapping[str, Certificates], now: datetime.datetime
) -> dict[str, tuple[certificates.Certificate, list[str]]]:
    offered: dict[str, tuple[certificates.Certificate, list[str]]] = {}
    for name, contents in sources.items():
        for certificate in current(contents, now):
            offered.setdefault(certificate.fingerprint, (certificate, []))[1].append(name)
    return offered


def current(contents: Iterable[certificates.Certificate], now: datetime.datetime) -> list[certificates.Certificate]:
    """Those that have not expired (3)."""
    return [certificate for certificate in contents if certificate.not_after > now]


def in_force(ders: Iterable[bytes], now: datetime.datetime) -> bool:
    """Whether one of these CAs is valid at this instant; one that cannot be read is not."""
    bundle, _ = bundles.TrustBundle.readable(ders)
    return bool(bundle.in_force(now))


def ends(sources: Iterable[Certificates], now: datetime.datetime) -> datetime.datetime | None:
    """When the next of what the sources give expires."""
    return min((certificate.not_after for contents in sources for certificate in current(contents, now)), default=None)


def also_unscoped(contents: Certificates, ders: Iterable[bytes]) -> list[certificates.Certificate]:
    """The bootstrap CAs whose key is also that of a CA which may sign for anyone: for those there is no limit."""
    bundle, _ = bundles.TrustBundle.readable(ders)
    keys = {anchor.public_key.fingerprint for anchor in bundle.anchors}
    return [certificate for certificate in contents if certificate.public_key.fingerprint in keys]


def require_in_scope(subject: names.Subject) -> None:
    """Return if a bootstrap CA may vouch for this subject, else refuse."""
    # 6. that name, and no group beyond its own
    extra = sorted(set(subject.organizations) - set(bootstrapper.GROUPS))
    if subject.common_name != bootstrapper.USER or extra:
        raise errors.Refused(
            f"a CA of bootstrap credentials signed for CN={subject.common_name!r}, O={list(subject.organizations)}: it is "
            f"good for {bootstrapper.USER} in [{', '.join(bootstrapper.GROUPS)}] alone",
            reason=OUTSIDE_SCOPE,
        )
