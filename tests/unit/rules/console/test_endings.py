# SPDX-License-Identifier: Apache-2.0
"""What ends and is not counted by days: CAs, certificates of servers, tokens."""

from __future__ import annotations

import datetime

from handfast.pki import certificates, pem
from handfast.rules.console import endings
from handfast.rules.mesh import issuer

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def test_every_certificate_of_a_bundle_ends():
    material = issuer.generate(NOW)
    [root] = endings.of_bundle("The mesh's root", material.anchors, "/mesh")
    made = certificates.read(pem.certificates_from_pem(material.anchors)[0])
    assert (root.what, root.at, root.link) == ("The mesh's root", made.not_after, "/mesh")
    assert len(endings.of_bundle("x", material.anchors + issuer.generate(NOW).anchors)) == 2


def test_a_bundle_that_cannot_be_read_has_no_end():
    assert endings.of_bundle("x", None) == []
    assert endings.of_bundle("x", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n") == []


def test_of_tokens_the_first_is_told_and_how_many_more():
    assert endings.of_tokens([None, NOW - DAY, NOW + 31 * DAY], NOW) == []
    assert endings.of_tokens([NOW + DAY], NOW) == [endings.Ending("A token", NOW + DAY, "/tokens", short=True)]
    [several] = endings.of_tokens([NOW + 3 * DAY, NOW + DAY, NOW + 2 * DAY], NOW)
    assert (several.what, several.at) == ("A token, and 2 more within 30 days", NOW + DAY)


def test_the_first_to_end_stands_first_and_what_is_soon_is_marked():
    late, soon = endings.Ending("late", NOW + 31 * DAY), endings.Ending("soon", NOW + 29 * DAY)
    token = endings.Ending("token", NOW + DAY, short=True)
    assert endings.ordered([late, soon, token, late], NOW) == [(token, False), (soon, True), (late, False)]
