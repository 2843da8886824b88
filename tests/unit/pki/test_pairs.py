# SPDX-License-Identifier: Apache-2.0
"""Certificates with their keys in one file: what is read back and what is refused. It does not test the files."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from handfast import errors
from handfast.pki import authority, keys, names, pairs, pem, profiles
from tests.unit.pki import making
from tests.unit.pki.making import NOW

NODE = names.Subject(common_name="system:node:a", organizations=("system:nodes",))
ROOT = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), NOW)
KEY = keys.generate()
LEAF = ROOT.issue(KEY.public, NODE, names.Sans(), profiles.KUBELET_CLIENT, NOW)
CA = ROOT.certificate.der


def kubelet_key() -> bytes:
    signing, _ = KEY.for_builder()
    return signing.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def test_written_and_read_back():
    pair = pairs.join(LEAF.pem, KEY)
    assert pair.leaf.subject == NODE
    assert pair.pem == pair.certificate_pem + pair.key_pem
    again = pairs.read(pair.pem)
    assert again == pair
    assert again.key.public == KEY.public
    assert again.pem == pair.pem


def test_what_the_kubelet_writes_is_read():
    assert b"BEGIN EC PRIVATE KEY" in kubelet_key()
    assert pairs.read(LEAF.pem + kubelet_key()) == pairs.join(LEAF.pem, KEY)
    assert pairs.read(kubelet_key() + LEAF.pem) == pairs.join(LEAF.pem, KEY)


def test_two_certificates_leaf_first():
    pair = pairs.read(LEAF.pem + ROOT.pem + kubelet_key())
    assert pair.chain == (LEAF.der, CA)
    assert pair.leaf.subject == NODE
    with pytest.raises(errors.Refused) as caught:
        pairs.read(ROOT.pem + LEAF.pem + kubelet_key())
    assert caught.value.reason == "KeyMismatch"


def weak(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return making.leaf(making.ca(), key=key).pem + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


REFUSED = [
    pytest.param(b"", "MalformedPair", "exactly one private key", id="empty"),
    pytest.param(b"bad data", "MalformedPair", "text outside a block", id="no PEM"),
    pytest.param(LEAF.pem, "MalformedPair", "exactly one private key, found 0", id="no key"),
    pytest.param(KEY.to_pem(), "MalformedPair", "no CERTIFICATE block", id="no certificate"),
    pytest.param(LEAF.pem + KEY.to_pem() + KEY.to_pem(), "MalformedPair", "found 2", id="two keys"),
    pytest.param((LEAF.pem + KEY.to_pem())[:-40], "MalformedPair", "no END line", id="half written"),
    pytest.param(
        LEAF.pem + pem.encode("CERTIFICATE", b"\x30\x00") + KEY.to_pem(),
        "MalformedPair",
        "certificate 2: not a certificate",
        id="a broken chain",
    ),
    pytest.param(LEAF.pem + keys.generate().to_pem(), "KeyMismatch", "do not belong together", id="another key"),
    pytest.param(weak(rsa.generate_private_key(65537, 1024)), "WeakKey", "2048", id="RSA-1024"),
    pytest.param(weak(ec.generate_private_key(ec.SECP224R1())), "WeakKey", "secp224r1", id="P-224"),
]


@pytest.mark.parametrize(("data", "reason", "said"), REFUSED)
def test_a_pair_that_is_not_one_is_refused_with_its_reason(data: bytes, reason: str, said: str):
    with pytest.raises(errors.Refused, match=said) as caught:
        pairs.read(data)
    assert caught.value.reason == reason


def test_a_certificate_for_a_weak_key_is_refused_as_weak():
    with pytest.raises(errors.Refused, match="certificate 1") as caught:
        pairs.join(making.leaf(making.ca(), key=ec.generate_private_key(ec.SECP224R1())).pem, KEY)
    assert caught.value.reason == "WeakKey"


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        pytest.param(b"", "MalformedPair", id="nothing"),
        pytest.param(LEAF.pem + KEY.to_pem(), "MalformedPair", id="a key among the certificates"),
        pytest.param(ROOT.pem, "KeyMismatch", id="another's certificate"),
    ],
)
def test_what_a_signer_may_not_answer(certificate: bytes, reason: str):
    with pytest.raises(errors.Refused) as caught:
        pairs.join(certificate, KEY)
    assert caught.value.reason == reason


def test_an_empty_chain_is_no_pair():
    with pytest.raises(errors.Refused, match="no certificate"):
        pairs.Pair((), KEY)


def test_the_key_never_shows():
    shown = repr(pairs.join(LEAF.pem, KEY))
    assert "PRIVATE KEY" not in shown
    assert KEY.to_pem().decode().splitlines()[1] not in shown
