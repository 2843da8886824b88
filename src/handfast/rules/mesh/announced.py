# SPDX-License-Identifier: Apache-2.0
"""What an agent is told by the control plane, before it counts: version, trust anchors, deny list and policy. It is judged here, and followed elsewhere.

Who tells it has proved to be the control plane: that is the channel's to see. So this is no defence against strangers. It keeps nonsense, of a
confused replica or of another version, from opening what was closed: whatever is refused changes nothing, and what was told before holds.

1. The version is larger than the one before [OldVersion].
2. The trust anchors can be used, by the rules of the identity service (`issuer.read_anchors`, with its reasons).
3. Denied names are names, and denied certificates have the length of a SHA-256; at most `MOST_DENIED` of each [BadDenyList].
4. Who is to have signed is a few digits of a SHA-256, or nothing is said of it [BadSigner].
5. A policy has rules for port 0 first, each port once, and at most `MOST_ROWS` rows; a row is one client, by a name or by what names end in
   [BadPolicy]. Without a policy nothing is said of it: that is no permission.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from handfast import errors
from handfast.rules.envoy import judging
from handfast.rules.mesh import issuer, policy, policy_documents

MOST_DENIED: Final = 1 << 17
MOST_ROWS: Final = policy_documents.MOST_ROWS
_MOST_PORT: Final = 65535
_DIGEST_OCTETS: Final = 32
_SIGNER: Final = re.compile(r"[0-9a-f]{0,64}", re.ASCII)
_QUOTED: Final = 80


class Nonsense(errors.Refused):
    """What cannot be followed; `reason` is one of the words above."""

    reason = "BadAnnouncement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What holds from now on. Digests are hex; `compiled` is None where nothing is said of policy."""

    version: int
    anchors_pem: bytes = field(repr=False)
    denied_names: frozenset[str] = frozenset()
    denied_digests: frozenset[str] = frozenset()
    compiled: policy.Compiled | None = None
    # Who is to have signed the own certificate (`certify.issuer_tag`); empty: whoever has.
    signer: str = ""


def require(
    *,
    version: int,
    before: int,
    anchors_pem: bytes,
    names: Sequence[str],
    certificates: Sequence[bytes],
    compiled: policy.Compiled | None,
    signer: str = "",
) -> Announced:
    """What is told, if it can be followed; `before` is the version that holds."""
    # 1. newer
    if version <= before:
        raise Nonsense(f"version {version} is not newer than {before}, which holds", reason="OldVersion")
    # 2. somebody is believed
    issuer.read_anchors(anchors_pem)
    # 3. names, and digests
    if max(len(names), len(certificates)) > MOST_DENIED:
        raise Nonsense(f"the deny list has more than {MOST_DENIED} rows", reason="BadDenyList")
    _require_names(names, "a denied name", "BadDenyList")
    if any(len(digest) != _DIGEST_OCTETS for digest in certificates):
        raise Nonsense("a denied certificate is not the SHA-256 of one", reason="BadDenyList")
    # 4. who signs
    if not _SIGNER.fullmatch(signer):
        raise Nonsense(f"{signer[:_QUOTED]!r} cannot be who is to have signed", reason="BadSigner")
    # 5. rules
    if compiled is not None:
        _require_policy(compiled)
    return Announced(
        version=version,
        anchors_pem=anchors_pem,
        denied_names=frozenset(names),
        denied_digests=frozenset(digest.hex() for digest in certificates),
        compiled=compiled,
        signer=signer,
    )


def _require_policy(compiled: policy.Compiled) -> None:
    numbers = [rules.port for rules in compiled.ports]
    if numbers[:1] != [policy.OTHER_PORTS] or len({*numbers}) != len(numbers) or max(numbers) > _MOST_PORT:
        raise Nonsense("the rules are not for port 0 first, and for each port once", reason="BadPolicy")
    sets = [each for rules in compiled.ports for each in (rules.enforced, rules.audited) if each is not None]
    if sum(len(each.permits) for each in sets) > 2 * MOST_ROWS:
        raise Nonsense(f"the policy has more than {MOST_ROWS} rows", reason="BadPolicy")
    for each in sets:
        for permit in each.permits:
            if [permit.anyone, bool(permit.identity), bool(permit.suffix)].count(True) != 1:
                raise Nonsense(f"row {permit.row} of {permit.policy[:_QUOTED]} is not one client", reason="BadPolicy")
        named = (permit.identity or permit.suffix for permit in each.permits if not permit.anyone)
        _require_names(named, "a client", "BadPolicy")


def _require_names(names: Iterable[str], what: str, reason: str) -> None:
    for name in names:
        if not judging.NAME.fullmatch(name):
            raise Nonsense(f"{what} is {name[:_QUOTED]!r}, which no certificate of the mesh has", reason=reason)
