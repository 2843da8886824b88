# SPDX-License-Identifier: Apache-2.0
"""CAs: of the server, and of those whom it believes."""

import pytest

from handfast.rules import check, client_ca_bundle
from handfast.rules.diagnoses import facts, trust
from tests.unit.pki import making
from tests.unit.rules.diagnoses import known

OLD = making.ca("old-ca", not_before=known.NOW - 3000 * known.DAY, not_after=known.NOW - known.DAY)
NO_CA = making.leaf(known.CA)


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
    ],
)
def test_the_cas_of_clients_last_and_believe_what_is_issued(changes, wanted):
    assert verdict(trust.client_cas, **changes) == wanted
