# SPDX-License-Identifier: Apache-2.0
"""What each kind of certificate looks like: usages, lifetime and backdating, one row per kind.

It does not say who may have one: that is `rules.certificates.signers`.

| profile           | CA  | usages                                            | lifetime |
|-------------------|-----|---------------------------------------------------|----------|
| ROOT_CA           | yes | cert sign, crl sign, digital signature            | 10 years |
| INTERMEDIATE_CA   | yes | the same; signs leaves only (path length 0)       | 1 year   |
| APISERVER_SERVING | no  | digital signature, key encipherment, server auth  | 1 year   |
| CLIENT            | no  | digital signature, client auth                    | 1 year   |
| KUBELET_CLIENT    | no  | digital signature, client auth                    | 1 year   |
| KUBELET_SERVING   | no  | digital signature, server auth                    | 1 year   |

Every certificate has critical basic constraints and critical key usage, and the issuer's key identifier; only a CA has
a subject key identifier, as with Kubernetes' own signer.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from handfast import errors
from handfast.pki import usages

BACKDATE = datetime.timedelta(minutes=5)
MIN_TTL = datetime.timedelta(minutes=10)
YEAR = datetime.timedelta(days=365)

# From this lifetime on, backdating counts towards it; below, it comes on top. That is Kubernetes' rule: a short
# certificate must not be mostly past when it is issued.
_LONG = datetime.timedelta(hours=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of certificate. `lifetime` is also the most that may be asked for."""

    name: str
    usages: frozenset[str]
    lifetime: datetime.timedelta
    backdate: datetime.timedelta = BACKDATE
    is_ca: bool = False
    path_length: int | None = None

    def __post_init__(self) -> None:
        if self.path_length is not None and not self.is_ca:
            raise errors.Misuse(f"profile {self.name}: only a CA has a path length")
        if self.is_ca != (usages.CERT_SIGN in self.usages):
            raise errors.Misuse(f"profile {self.name}: a CA, and only a CA, has the usage {usages.CERT_SIGN!r}")

    def window(
        self, now: datetime.datetime, ttl: datetime.timedelta | None = None
    ) -> tuple[datetime.datetime, datetime.datetime]:
        """notBefore and notAfter for a certificate issued now, in whole seconds; `ttl` is what was asked for."""
        if now.tzinfo is None:
            raise errors.Misuse("an instant needs its time zone")
        now = now.astimezone(datetime.UTC).replace(microsecond=0)
        wanted = self.lifetime if ttl is None else max(min(ttl, self.lifetime), MIN_TTL)
        backdated = self.backdate if wanted >= _LONG else datetime.timedelta()
        return now - self.backdate, now + wanted - backdated


def for_usages(name: str, words: Iterable[str], lifetime: datetime.timedelta) -> Profile:
    """A leaf profile with the usages of an approved request; a wish to sign certificates is refused."""
    chosen = usages.canonical(words)
    if usages.CERT_SIGN in chosen:
        raise errors.Refused(f"usage {usages.CERT_SIGN!r} is not given to a request", reason="ForbiddenUsage")
    return Profile(name=name, usages=chosen, lifetime=lifetime)


_CA_USAGES = frozenset({usages.CERT_SIGN, usages.CRL_SIGN, usages.DIGITAL_SIGNATURE})
_CLIENT_USAGES = frozenset({usages.DIGITAL_SIGNATURE, usages.CLIENT_AUTH})
_SERVING_USAGES = frozenset({usages.DIGITAL_SIGNATURE, usages.SERVER_AUTH})

ROOT_CA = Profile(name="root-ca", usages=_CA_USAGES, lifetime=10 * YEAR, is_ca=True)
INTERMEDIATE_CA = Profile(name="intermediate-ca", usages=_CA_USAGES, lifetime=YEAR, is_ca=True, path_length=0)
APISERVER_SERVING = Profile(
    name="apiserver-serving",
    # kubeadm's serving certificates also name key encipherment, which clients with RSA key exchange look for.
    usages=_SERVING_USAGES | {usages.KEY_ENCIPHERMENT},
    lifetime=YEAR,
)
CLIENT = Profile(name="client", usages=_CLIENT_USAGES, lifetime=YEAR)
KUBELET_CLIENT = Profile(name="kubelet-client", usages=_CLIENT_USAGES, lifetime=YEAR)
KUBELET_SERVING = Profile(name="kubelet-serving", usages=_SERVING_USAGES, lifetime=YEAR)
