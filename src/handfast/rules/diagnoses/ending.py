# SPDX-License-Identifier: Apache-2.0
"""How the end of a certificate is judged: near it is a failure already, since nobody mends it by waiting. It reads nothing.

1. A certificate that a program renews is renewed before 90 % of its lifetime have passed (`pki.renewal`). After that it fails.
2. A CA is replaced by people. It warns when less than a third of its lifetime and less than 60 days are left, and fails when less than a tenth
   and less than 30 days are.
3. Of several CAs those count by whose keys somebody is believed now, each with its certificate that ends last. Where nobody knows which those are, the one that ends
   last counts, and another that is near its end is a warning.
4. One that is over, beside another that is not, is a warning: somebody forgot it.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from handfast.api import durations, objects
from handfast.pki import certificates
from handfast.rules import check
from handfast.rules.mesh import expiry

ROTATE: Final = "replace it while it lasts: handfast ca rotate, or with the tools of whoever made it"


def leaf(
    name: str, title: str, certificate: certificates.Certificate, now: datetime.datetime, hint: str
) -> check.Check:
    """Of a certificate that a program renews (1)."""
    end = objects.timestamp(certificate.not_after)
    if now < certificate.not_before:
        begins = objects.timestamp(certificate.not_before)
        said = f"{title} is good from {begins} on, and it is {objects.timestamp(now)}"
        return check.Check(name, check.Verdict.FAILED, said, "CertificateNotYetValid", "compare the clocks")
    if now >= certificate.not_after:
        return check.Check(name, check.Verdict.FAILED, f"{title} ended at {end}", "CertificateExpired", hint)
    # 1. the last tenth is for renewals that went wrong
    if expiry.is_late(certificate, now):
        said = f"{title} ends at {end}, in {_left(certificate, now)}, and should have been renewed"
        return check.Check(name, check.Verdict.FAILED, said, "CertificateEndsSoon", hint)
    return check.Check(name, check.Verdict.OK, f"{title} ends at {end}")


def cas(
    name: str,
    title: str,
    anchors: Sequence[certificates.Certificate],
    now: datetime.datetime,
    keys: frozenset[str] = frozenset(),
    *,
    hint: str = ROTATE,
) -> check.Check:
    """Of a bundle of CAs (2, 3); `keys` are the fingerprints of the keys that count, none: nobody knows."""
    alive = [each for each in anchors if each.not_before <= now < each.not_after]
    if not alive:
        said = f"{title}: none of {len(anchors)} CAs is in force"
        return check.Check(name, check.Verdict.FAILED, said, "CAExpired", hint)
    # 3. those that count, the first of them to end
    by_key: dict[str, certificates.Certificate] = {}
    for each in sorted(alive, key=_end):
        by_key[each.public_key.fingerprint] = each
    counting = [each for key, each in by_key.items() if key in keys]
    last = min(counting, key=_end) if counting else max(alive, key=_end)
    said = f"{title}: {last.subject} ends at {objects.timestamp(last.not_after)}, in {_left(last, now)}"
    # 2. people need time
    if expiry.fails(last, now):
        return check.Check(name, check.Verdict.FAILED, said, "CAEndsSoon", hint)
    if expiry.stage(last, now) is not expiry.Stage.FAR:
        return check.Check(name, check.Verdict.WARNING, said, "CAEndsSoon", hint)
    near = [str(each.subject) for each in by_key.values() if not counting and expiry.fails(each, now)]
    if near:
        told = f"{said}; near its end, and nobody here knows which of them signs: {check.several(near)}"
        return check.Check(name, check.Verdict.WARNING, told, "CAEndsSoon", hint)
    # 4. one that is over was forgotten
    over = [f"{each.subject}" for each in anchors if each.not_after <= now]
    if over:
        told = f"{said}; over, and still there: {check.several(over)}"
        return check.Check(name, check.Verdict.WARNING, told, "CAExpired", "take away what is over")
    return check.Check(name, check.Verdict.OK, said)


def _end(certificate: certificates.Certificate) -> datetime.datetime:
    return certificate.not_after


def _left(certificate: certificates.Certificate, now: datetime.datetime) -> str:
    return durations.short(certificate.not_after - now)
