# SPDX-License-Identifier: Apache-2.0
"""When a certificate is renewed, and whether it still says what its holder wants it to say.

It does not renew anything, and draws no random number: chance is an argument. How a CA is replaced is decided in
`rules.trust_rotation`.

1. A certificate is renewed when 70 to 90 % of its lifetime have passed, counted from notBefore, backdating included.
   `renewal_point` chooses the point between: a fleet that was born together does not come back together.
2. Every holder has instants of its own, one every cycle of 80 % of a lifetime; `place_in_cycle` says where in it. If one of
   them lies between 70 and 90 %, it is chosen. If none does, a random point is chosen, in the half that is nearer to one.
   So a fleet that was born together spreads evenly at once, and after a dozen lifetimes every holder renews at its own
   instants. Independent draws would come out badly in some hour of some years. A holder that had to wait through an
   outage of a tenth of a lifetime is back at its own instant with the next certificate: the rush after an outage has no
   echo.
3. The cycle is computed from the lifetime rounded to about a hundredth. The instants are counted from 1970, and a second
   more in each of 25,000 cycles would put them anywhere. The rounding does not move the limits of 70 and 90 %.
4. It is renewed at once when its common name is not the wanted one, or when it lacks an organization or an alternative
   name that is wanted. What it has beyond that is no reason: a signer may add names, and asking again would not help.
"""

from __future__ import annotations

import datetime
import hashlib
import math

from handfast import errors
from handfast.pki import certificates, names

EARLIEST = 0.7
SPREAD = 0.2
_MIDDLE = EARLIEST + SPREAD / 2
# Never at the very end of the window: an outage of a tenth of the lifetime must leave room for one more attempt.
LATEST = 63 / 64
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_HOUR = datetime.timedelta(hours=1)
# Lifetimes that people choose are whole steps or about half ones (90 days, a year): the border is far from both.
_ROUNDS_UP = 1 / 4


def deadline(not_before: datetime.datetime, not_after: datetime.datetime, point: float) -> datetime.datetime:
    """The instant of renewal (1); `point` lies in [0, 1)."""
    if not 0 <= point < 1:
        raise errors.Misuse(f"the point of renewal lies in [0, 1), not {point}")
    return not_before + (not_after - not_before) * (EARLIEST + SPREAD * point)


def place_in_cycle(holder: str) -> float:
    """Where in its cycle the instants of a holder lie, in [0, 1): it takes no agreement and no memory, and the names of a fleet spread evenly."""
    return int.from_bytes(hashlib.sha256(holder.encode()).digest()[:6]) / 2**48


def cycle(lifetime: datetime.timedelta) -> datetime.timedelta:
    """How far apart the instants of a holder are (3): 80 % of the lifetime in steps of 1/64 of a power of two in hours."""
    mantissa, exponent = math.frexp(lifetime / _HOUR)
    rounded = math.ldexp(math.floor(mantissa * 128 + _ROUNDS_UP) / 128, exponent)
    return _HOUR * rounded * _MIDDLE


def renewal_point(
    not_before: datetime.datetime, not_after: datetime.datetime, own_place: float, chance: float
) -> float:
    """The point for `deadline` (2); `own_place` and `chance` lie in [0, 1)."""
    lifetime = not_after - not_before
    apart = cycle(lifetime)
    if apart <= datetime.timedelta():
        return chance * LATEST
    middle = not_before + lifetime * _MIDDLE
    # From there to the nearest of the holder's instants.
    away = (_EPOCH - middle + apart * own_place + apart / 2) % apart - apart / 2
    wanted = 0.5 + away / (lifetime * SPREAD)
    # 2. its own instant, if that lies in the window; else by chance, in the half that is nearer to it
    if 0 <= wanted <= LATEST:
        return wanted
    return chance / 2 if away < datetime.timedelta() else 0.5 + chance * (LATEST - 0.5)


def lacking(certificate: certificates.Certificate, subject: names.Subject, sans: names.Sans) -> str | None:
    """Why the certificate does not satisfy what is wanted (4); None when it does."""
    has = certificate.subject
    if has.common_name != subject.common_name:
        return f"the certificate's common name is {has.common_name!r}, wanted is {subject.common_name!r}"
    organizations = [wanted for wanted in subject.organizations if wanted not in has.organizations]
    if organizations:
        return f"the certificate lacks the organizations {', '.join(organizations)}"
    # Most have just what they want, and need no texts for that.
    if sans == certificate.sans:
        return None
    present = frozenset(certificate.sans.texts())
    missing = [wanted for wanted in sans.texts() if wanted not in present]
    if missing:
        return f"the certificate lacks the alternative names {', '.join(missing)}"
    return None
