# SPDX-License-Identifier: Apache-2.0
"""The SPIFFE ID of a workload's certificate, and the trust domain that it is of. Chain, DNS name and times are judged elsewhere (`wire.certifying`).

1. The certificate has one URI and no more: X509-SVIDs have no other. None means that the mesh gives no SPIFFE IDs [NoSpiffeID].
2. It is the ID that a mesh gives to the account of the DNS name beside it (`names`), by one of the schemes, letter for letter [WrongSpiffeID].

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_svids.py |
|---|---|---|---|---|
| a confused service | its issuer | have a workload show the SPIFFE ID of another account or trust domain | 2 | test_an_id_that_is_not_of_the_name_is_refused |
| … | … | have one certificate stand for two IDs | 1 | test_a_certificate_without_exactly_one_id_is_refused |
"""

from __future__ import annotations

from typing import Final

import msgspec

from handfast import errors
from handfast.pki import names as pki_names
from handfast.rules.mesh import names

_SCHEME: Final = "spiffe://"
TURN_ON: Final = "handfast mesh install --set identity.spiffe=true"


class NoSpiffeID(errors.Refused):
    """A certificate without a SPIFFE ID: the mesh gives none (1)."""

    reason = "NoSpiffeID"


class WrongSpiffeID(errors.Refused):
    """A certificate whose URIs are not the one SPIFFE ID of its name."""

    reason = "WrongSpiffeID"


class SpiffeID(msgspec.Struct, frozen=True):
    """`text` is the whole ID."""

    text: str
    trust_domain: str

    @property
    def domain_id(self) -> str:
        """The SPIFFE ID of the trust domain itself."""
        return f"{_SCHEME}{self.trust_domain}"


def identified(sans: pki_names.Sans, name: str) -> SpiffeID:
    """The ID of a certificate with these names, whose workload is called `name`."""
    # 1. one
    if not sans.uri:
        raise NoSpiffeID(
            "the mesh gives no SPIFFE IDs: its setting identity.spiffe is false", hint=f"turn them on with: {TURN_ON}"
        )
    if len(sans.uri) > 1:
        raise WrongSpiffeID(f"the certificate of {name} has {len(sans.uri)} URIs, where one is allowed")
    text = sans.uri[0]
    trust_domain = text.removeprefix(_SCHEME).partition("/")[0]
    # 2. that of the name
    if text not in _ids(name, trust_domain):
        raise WrongSpiffeID(f"the URI in the certificate of {name} is not its SPIFFE ID")
    return SpiffeID(text, trust_domain)


def _ids(name: str, trust_domain: str) -> list[str]:
    """What a name stands for in meshes of this trust domain, by each scheme that could have made it."""
    namespace = name.removesuffix(f".{trust_domain}").rpartition(".")[2]
    ids = []
    for scheme in names.Scheme:
        try:
            mesh = names.Mesh(trust_domain, namespace, scheme)
            ids.append(mesh.spiffe(mesh.account(name)))
        except errors.Refused:
            # Not by this one.
            continue
    return ids
