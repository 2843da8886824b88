# SPDX-License-Identifier: Apache-2.0
"""When a certificate is renewed, and whether it still says what its holder wants it to say.

It does not renew anything, and the chance that spreads the renewals is an argument: the doing half draws it.

1. A certificate is renewed when 70 to 90 % of its lifetime have passed, counted from notBefore, backdating included.
   `jitter` chooses the point between: a fleet that was born together does not come back together.
2. It is renewed at once when its common name is not the wanted one, or when it lacks an organization or an alternative
   name that is wanted. What it has beyond that is no reason: a signer may add names, and asking again would not help.
"""

from __future__ import annotations

import datetime

from handfast import errors
from handfast.pki import certificates, names

EARLIEST = 0.7
SPREAD = 0.2


def deadline(not_before: datetime.datetime, not_after: datetime.datetime, jitter: float) -> datetime.datetime:
    """The instant of renewal (1); `jitter` lies in [0, 1)."""
    if not 0 <= jitter < 1:
        raise errors.Misuse(f"jitter lies in [0, 1), not {jitter}")
    return not_before + (not_after - not_before) * (EARLIEST + SPREAD * jitter)


def lacking(certificate: certificates.Certificate, subject: names.Subject, sans: names.Sans) -> str | None:
    """Why the certificate does not satisfy what is wanted (2); None when it does."""
    has = certificate.subject
    if has.common_name != subject.common_name:
        return f"the certificate's common name is {has.common_name!r}, wanted is {subject.common_name!r}"
    organizations = [wanted for wanted in subject.organizations if wanted not in has.organizations]
    if organizations:
        return f"the certificate lacks the organizations {', '.join(organizations)}"
    present = frozenset(certificate.sans.texts())
    missing = [wanted for wanted in sans.texts() if wanted not in present]
    if missing:
        return f"the certificate lacks the alternative names {', '.join(missing)}"
    return None
