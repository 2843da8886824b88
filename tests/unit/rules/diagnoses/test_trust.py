# SPDX-License-Identifier: Apache-2.0
"""CAs: of the server, and of those whom it believes."""

import pytest

from handfast.pki import certificates
from handfast.rules import check, client_ca_bundle
from handfast.rules.diagnoses import facts, trust
from tests.unit.pki import making
from tests.unit.rules.diagnoses import known

OLD = making.ca("old-ca", not_before=known.NOW - 3000 * known.DAY, not_after=known.NOW - known.DAY)
NO_CA = making.leaf(known.CA)


# In force for a quarter of an hour more.
SHORT = making.ca("short", not_before=known.NOW - 3000 * known.DAY, not_after=known.NOW + known.DAY / 96)
SHORT_LEAF = known.leaf(SHORT, age=1, lasts=2)


def read(ca: making.Made) -> certificates.Certificate:
    return certificates.read(ca.der)


def shown_by(ca: making.Made) -> dict[str, facts.Reach]:
    """The server shows a certificate of this CA."""
    return {"reach": known.reach(certificate=known.server_certificate(ca))}


def verdict(judge, **changes):
    row = judge(known.good(**changes))
    return row.verdict.value, row.reason


def issued(*ders):
    return facts.Requests([known.request(f"csr-{number}", der) for number, der in enumerate(ders)])


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ("ok", "")),
        ({"own_ca": None, "cluster_info": None}, ("ok", "")),
        ({"own_ca": b"broken"}, ("failed", "MalformedPEM")),
        ({"own_ca": known.pem_of(OLD), "cluster_info": known.info(OLD)}, ("failed", "CAExpired")),
        ({"cluster_info": known.info(OLD)}, ("warning", "CAExpired")),
        ({"cluster_info": check.Unread("no")}, ("ok", "")),
        ({"own_ca": known.pem_of(known.CA, SHORT)}, ("ok", "")),
        ({"own_ca": known.pem_of(known.CA, SHORT), **shown_by(SHORT)}, ("failed", "CAEndsSoon")),
        # Nobody here knows who signs.
        ({"own_ca": known.pem_of(known.CA, SHORT), **shown_by(OLD)}, ("warning", "CAEndsSoon")),
        (
            {"own_ca": known.pem_of(known.CA, SHORT), "reach": known.reach(certificate=known.certificate())},
            ("warning", "CAEndsSoon"),
        ),
        (
            {"own_ca": known.pem_of(known.CA, SHORT), "reach": known.reach(certificate=check.Unread("no"))},
            ("warning", "CAEndsSoon"),
        ),
    ],
)
def test_the_cas_of_the_server_can_be_read_and_last(changes, wanted):
    assert verdict(trust.server_cas, **changes) == wanted


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ("ok", "")),
        ({"client_cas": check.Unread("no")}, ("unknown", "Unknown")),
        ({"client_cas": None}, ("failed", "NoBundle")),
        ({"client_cas": {"data": {client_ca_bundle.KEY: "broken"}}}, ("failed", "MalformedPEM")),
        ({"client_cas": known.bundle(OLD)}, ("failed", "CAExpired")),
        ({"client_cas": known.bundle(OLD, known.CA)}, ("warning", "CAExpired")),
        ({"client_cas": known.bundle(known.CA, NO_CA)}, ("warning", "BadAnchor")),
        ({"client_cas": known.bundle(known.OTHER_CA)}, ("failed", "SignerNotTrusted")),
        # Only the newest counts, and only what is in force.
        ({"requests": issued(known.leaf(age=1), known.leaf(known.OTHER_CA, age=2))}, ("ok", "")),
        ({"requests": issued(known.leaf(known.OTHER_CA, age=1), known.leaf(age=2))}, ("failed", "SignerNotTrusted")),
        ({"requests": issued(known.leaf(known.OTHER_CA, age=9, lasts=3))}, ("ok", "")),
        ({"requests": facts.Requests([known.request(der=b"broken"), known.request()])}, ("ok", "")),
        ({"requests": facts.Requests([known.request(der=known.leaf(known.OTHER_CA), signerName="a/b")])}, ("ok", "")),
        ({"requests": check.Unread("no")}, ("ok", "")),
        ({"client_cas": known.bundle(known.CA, SHORT)}, ("ok", "")),
        ({"client_cas": known.bundle(known.CA, SHORT), "requests": issued(SHORT_LEAF)}, ("failed", "CAEndsSoon")),
        ({"client_cas": known.bundle(known.CA, SHORT), "signer_ca": read(SHORT)}, ("failed", "CAEndsSoon")),
        ({"client_cas": known.bundle(known.CA, SHORT), "requests": issued()}, ("ok", "")),
        (
            {
                "client_cas": known.bundle(known.CA, SHORT),
                "requests": issued(),
                "credential": certificates.read(SHORT_LEAF),
            },
            ("failed", "CAEndsSoon"),
        ),
        (
            {"client_cas": known.bundle(known.CA, SHORT), "requests": issued(), "credential": None},
            ("warning", "CAEndsSoon"),
        ),
        ({"signer_ca": read(known.CA), "requests": issued()}, ("ok", "")),
        ({"signer_ca": read(known.OTHER_CA), "requests": issued()}, ("failed", "SignerNotTrusted")),
    ],
)
def test_the_cas_of_clients_last_and_believe_what_is_issued(changes, wanted):
    assert verdict(trust.client_cas, **changes) == wanted
