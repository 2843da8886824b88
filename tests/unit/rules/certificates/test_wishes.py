# SPDX-License-Identifier: Apache-2.0
"""Which request is ours, and which certificate is the one that was asked for."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from handfast import errors
from handfast.api import signing_requests
from handfast.pki import authority, keys, names, pairs, pem, profiles, requests
from handfast.rules import user_names
from handfast.rules.certificates import wishes
from tests.unit.pki.making import NOW

KEY = keys.generate()
RSA = keys.generate(keys.Kind.RSA)
HOUR = datetime.timedelta(hours=1)
CA = authority.self_signed_ca(names.Subject(common_name="ca"), keys.generate(), NOW - 48 * HOUR)
CLIENT = wishes.node_client("n1")
SERVING = wishes.node_serving("n1", names.Sans(dns=("n1",)))


def issued(
    key: keys.PublicKey = KEY.public,
    node: str = "n1",
    *,
    at: datetime.datetime = NOW,
    profile: profiles.Profile = profiles.KUBELET_CLIENT,
) -> bytes:
    return CA.issue(key, user_names.node_subject(node), names.Sans(), profile, at, HOUR).pem


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def filed(
    wanted: wishes.Wanted = CLIENT, key: keys.PrivateKey = KEY, *, certificate: str = "", **other: Any
) -> signing_requests.Request:
    spec = {
        "request": base64_of(requests.build(wanted.subject, wanted.sans, key)),
        "signer_name": wanted.signer,
        "usages": list(wanted.usages_of(key.public)),
    }
    return signing_requests.Request(
        signing_requests.Meta(),
        signing_requests.Spec(**{**spec, **other}),
        signing_requests.Status(certificate=certificate),
    )


def test_the_name_of_upstreams_vector() -> None:
    """Private scalar 1: the generator itself."""
    key = keys.PrivateKey(ec.derive_private_key(1, ec.SECP256R1()))
    name = wishes.name_of(key.public, wishes.node_client("node-1"))
    assert name == "node-csr-_v0uUYH0FxEZl7ih8xa2llEqEdqKgeMs3eas458m8EE"


class TestOurs:
    @pytest.mark.parametrize("wanted", [CLIENT, SERVING])
    @pytest.mark.parametrize("key", [KEY, RSA])
    def test_what_we_filed(self, wanted: wishes.Wanted, key: keys.PrivateKey) -> None:
        wishes.require_ours(filed(wanted, key), key.public, wanted, NOW)

    def test_with_a_certificate_that_is_in_force(self) -> None:
        wishes.require_ours(filed(certificate=base64_of(issued())), KEY.public, CLIENT, NOW)

    @pytest.mark.parametrize(
        ("found", "why"),
        [
            (filed(key=keys.generate()), "it is for another key"),
            (
                filed(wishes.node_client("n2")),
                "its subject is CN=system:node:n2,O=system:nodes, not CN=system:node:n1,O=system:nodes",
            ),
            (
                filed(signer_name="example.com/x"),
                "its signer is example.com/x, not kubernetes.io/kube-apiserver-client-kubelet",
            ),
            (filed(usages=["client auth"]), "its usages differ"),
            (filed(request="%%"), "its request cannot be read"),
            (filed(request="AAAA"), "its request cannot be read"),
            (
                filed(certificate=base64_of(issued(at=NOW - 2 * HOUR))),
                f"its certificate expired at {NOW - HOUR:%FT%TZ}",
            ),
        ],
        ids=["key", "subject", "signer", "usages", "no base64", "no request", "expired"],
    )
    def test_not_ours(self, found: signing_requests.Request, why: str) -> None:
        with pytest.raises(errors.Refused) as caught:
            wishes.require_ours(found, KEY.public, CLIENT, NOW)
        assert caught.value.message == f"retrieved csr is not compatible: {why}"
        assert caught.value.reason == "IncompatibleRequest"

    def test_other_alternative_names(self) -> None:
        other = wishes.node_serving("n1", names.Sans(dns=("n2",)))
        with pytest.raises(errors.Refused, match="its alternative names differ"):
            wishes.require_ours(filed(other), KEY.public, SERVING, NOW)


class TestGranted:
    def test_the_one_wanted(self) -> None:
        certificate = issued()
        assert wishes.granted(base64_of(certificate), KEY.public, CLIENT, NOW) == certificate

    def test_what_cannot_be_read_of_a_chain_is_left_out(self) -> None:
        garbage = pem.certificates_to_pem([b"\x30\x03abc"])
        chain = base64_of(issued() + garbage + CA.pem + garbage)
        found = pairs.join(wishes.granted(chain, KEY.public, CLIENT, NOW), KEY)
        assert len(found.chain) == 2
        assert found.chain[1] == CA.certificate.der

    @pytest.mark.parametrize(
        ("certificate", "says"),
        [
            (base64_of(issued(keys.generate().public)), "it is for a different key than the one requested for"),
            (
                base64_of(issued(node="n2")),
                "the certificate's common name is 'system:node:n2', wanted is 'system:node:n1'",
            ),
            (base64_of(issued(profile=profiles.KUBELET_SERVING)), "it lacks the usages client auth"),
            (base64_of(b"garbage"), "it cannot be read: "),
            ("%", "status.certificate is not base64"),
            (base64_of(issued() * 600), "it is longer than 262144 bytes"),
            (base64_of(issued(at=NOW - 2 * HOUR)), f"it expired at {NOW - HOUR:%FT%TZ}, and it is {NOW:%FT%TZ} here"),
        ],
        ids=["key", "subject", "usages", "no certificate", "no base64", "long", "expired"],
    )
    def test_a_certificate_that_is_not_the_one_wanted_is_refused(self, certificate: str, says: str) -> None:
        with pytest.raises(errors.Refused) as caught:
            wishes.granted(certificate, KEY.public, CLIENT, NOW)
        assert caught.value.reason == "WrongCertificate"
        assert caught.value.message.startswith(f"the certificate returned is refused: {says}")

    def test_alternative_names_that_are_missing(self) -> None:
        certificate = base64_of(issued(profile=profiles.KUBELET_SERVING))
        with pytest.raises(errors.Refused, match="lacks the alternative names DNS:n1") as caught:
            wishes.granted(certificate, KEY.public, SERVING, NOW)
        assert caught.value.reason == "WrongCertificate"

    def test_one_that_begins_later_may_become_good(self) -> None:
        with pytest.raises(errors.Unavailable, match="is not valid before") as caught:
            wishes.granted(base64_of(issued(at=NOW + 24 * HOUR)), KEY.public, CLIENT, NOW)
        assert caught.value.reason == "CertificateNotYetValid"
        assert "clock" in (caught.value.hint or "")
