# SPDX-License-Identifier: Apache-2.0
"""Which keys are accepted, and that private ones stay private; it does not test certificates."""

from __future__ import annotations

import copy
import hashlib
import pathlib
import pickle

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519

from handfast import errors
from handfast.pki import keys, pem

VECTORS = pathlib.Path(__file__).parents[2] / "vectors" / "pki"

EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)
WEAK_RSA = rsa.generate_private_key(65537, 1024)

SEC1 = serialization.PrivateFormat.TraditionalOpenSSL
PKCS8 = serialization.PrivateFormat.PKCS8


def written(key, form=PKCS8, encryption=None):
    return key.private_bytes(serialization.Encoding.PEM, form, encryption or serialization.NoEncryption())


def spki(key):
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def test_public_keys_of_a_file():
    one, two = keys.generate().public, keys.generate(keys.Kind.P384).public
    text = b"".join(pem.encode(pem.PUBLIC_KEY, public.spki) for public in (two, one))
    assert keys.publics_from_pem(text) == [two, one]


@pytest.mark.parametrize(
    "text, message",
    [(b"", "no PUBLIC KEY block"), (pem.encode(pem.CERTIFICATE, b"x"), "must be PUBLIC KEY, found CERTIFICATE")],
)
def test_what_is_no_file_of_public_keys(text: bytes, message: str):
    with pytest.raises(errors.Refused, match=message) as caught:
        keys.publics_from_pem(text)
    assert caught.value.reason == "BadKey"


@pytest.mark.parametrize("kind", list(keys.Kind))
def test_generate_write_load_sign(kind: keys.Kind):
    key = keys.generate(kind)
    again = keys.private_from_pem(key.to_pem())
    assert again.public == key.public
    assert key.public.kind is kind
    again.public.require_signature(key.sign(b"data"), b"data")
    with pytest.raises(errors.Refused) as caught:
        key.public.require_signature(key.sign(b"data"), b"other data")
    assert caught.value.reason == "BadSignature"
    assert keys.public_from_spki(key.public.spki) == key.public
    assert key.public.fingerprint == hashlib.sha256(key.public.spki).hexdigest()


def test_default_is_p256():
    assert keys.generate().public.kind is keys.Kind.P256
    assert keys.generate().public.bits == 256


def test_every_generated_key_is_new():
    assert keys.generate().public != keys.generate().public


@pytest.mark.parametrize("bits", [1024, 2047, 8193])
def test_generate_rsa_size(bits: int):
    with pytest.raises(errors.Misuse):
        keys.generate(keys.Kind.RSA, bits)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        pytest.param(written(EC_KEY), keys.Kind.P256, id="PKCS8 EC"),
        pytest.param(written(EC_KEY, SEC1), keys.Kind.P256, id="SEC1"),
        pytest.param(written(RSA_KEY, SEC1), keys.Kind.RSA, id="PKCS1"),
        pytest.param(
            pem.encode("EC PARAMETERS", bytes.fromhex("06082a8648ce3d030107")) + written(EC_KEY, SEC1),
            keys.Kind.P256,
            id="openssl ecparam",
        ),
    ],
)
def test_every_form_of_private_key_is_read(data: bytes, kind: keys.Kind):
    assert keys.private_from_pem(data).public.kind is kind


def test_beside_a_certificate_on_request_only():
    data = pem.encode("CERTIFICATE", b"any") + written(EC_KEY)
    assert keys.private_from_pem(data, ignoring=[pem.CERTIFICATE]).public.spki == spki(EC_KEY)
    with pytest.raises(errors.Refused, match="PEM block CERTIFICATE is not a private key"):
        keys.private_from_pem(data)


@pytest.mark.parametrize(
    ("data", "reason", "words"),
    [
        pytest.param(written(WEAK_RSA), "WeakKey", "2048 to 8192 bits, not 1024", id="RSA-1024"),
        pytest.param(written(ec.generate_private_key(ec.SECP224R1())), "WeakKey", "not secp224r1", id="P-224"),
        pytest.param(written(ec.generate_private_key(ec.SECP256K1())), "WeakKey", "not secp256k1", id="secp256k1"),
        pytest.param(written(ed448.Ed448PrivateKey.generate()), "WeakKey", "not Ed448", id="Ed448"),
        pytest.param(written(x25519.X25519PrivateKey.generate()), "WeakKey", "not X25519", id="X25519"),
        pytest.param(
            written(EC_KEY, PKCS8, serialization.BestAvailableEncryption(b"x")), "BadKey", "encrypted", id="encrypted"
        ),
        pytest.param(
            written(EC_KEY, SEC1, serialization.BestAvailableEncryption(b"x")),
            "MalformedPEM",
            "headers are not accepted",
            id="encrypted, legacy",
        ),
        pytest.param(
            written(EC_KEY, serialization.PrivateFormat.OpenSSH), "BadKey", "OpenSSH's own key format", id="OpenSSH"
        ),
        pytest.param(pem.encode("DSA PRIVATE KEY", b"x"), "BadKey", "DSA keys are not accepted", id="DSA, legacy"),
        pytest.param(pem.encode("PUBLIC KEY", spki(EC_KEY)), "BadKey", "is not a private key", id="public"),
        pytest.param(written(EC_KEY) * 2, "BadKey", "exactly one private key, found 2", id="two"),
        pytest.param(b"", "BadKey", "found 0", id="none"),
        pytest.param(pem.encode("PRIVATE KEY", b"garbage"), "BadKey", "is not such a key", id="garbage"),
        pytest.param(
            pem.encode("PRIVATE KEY", pem.blocks(written(EC_KEY))[0].der + b"\0"), "BadKey", "not such", id="trailing"
        ),
        pytest.param(
            pem.encode("RSA PRIVATE KEY", pem.blocks(written(EC_KEY, SEC1))[0].der),
            "BadKey",
            "is not such a key",
            id="content is not as labelled",
        ),
        pytest.param(b"key:\n" + written(EC_KEY), "MalformedPEM", "text outside", id="text around"),
    ],
)
def test_private_refused(data: bytes, reason: str, words: str):
    with pytest.raises(errors.Refused) as caught:
        keys.private_from_pem(data)
    assert caught.value.reason == reason
    assert words in caught.value.message


def der_of(key, form=PKCS8, encryption=None):
    return key.private_bytes(serialization.Encoding.DER, form, encryption or serialization.NoEncryption())


@pytest.mark.parametrize("form", [PKCS8, SEC1])
@pytest.mark.parametrize("key", [EC_KEY, RSA_KEY], ids=["EC", "RSA"])
def test_a_private_key_is_read_from_der_too(key, form):
    again = keys.private_from_der(der_of(key, form))
    assert again.public.spki == spki(key)
    assert again.to_der() == der_of(key)


@pytest.mark.parametrize(
    "data, reason, words",
    [
        pytest.param(b"", "BadKey", "not a private key in DER", id="nothing"),
        pytest.param(b"0\x82\x01\x00secret", "BadKey", "not a private key in DER", id="cut short"),
        pytest.param(der_of(EC_KEY) + b"\0", "BadKey", "not a private key in DER", id="more behind it"),
        pytest.param(der_of(WEAK_RSA), "WeakKey", "2048", id="weak"),
        pytest.param(der_of(x25519.X25519PrivateKey.generate()), "WeakKey", "not X25519", id="X25519"),
    ],
)
def test_what_is_no_key_in_der_is_refused_and_not_quoted(data, reason, words):
    with pytest.raises(errors.Refused, match=words) as caught:
        keys.private_from_der(data)
    assert caught.value.reason == reason
    assert "secret" not in caught.value.message


def test_an_encrypted_key_is_told_apart_in_both_forms():
    password = serialization.BestAvailableEncryption(b"password")
    for read in (
        lambda: keys.private_from_der(der_of(EC_KEY, encryption=password)),
        lambda: keys.private_from_pem(written(EC_KEY, encryption=password)),
    ):
        with pytest.raises(keys.Encrypted, match="the key is encrypted; remove its passphrase first") as caught:
            read()
        assert caught.value.reason == "BadKey"


def test_dsa_refused():
    with pytest.raises(errors.Refused, match="not DSA"):
        keys.private_from_pem((VECTORS / "dsa.key.pem").read_bytes())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(spki(WEAK_RSA), "not 1024", id="RSA-1024"),
        pytest.param(spki(ed448.Ed448PrivateKey.generate()), "not Ed448", id="Ed448"),
        pytest.param(b"garbage", "not a SubjectPublicKeyInfo", id="garbage"),
        pytest.param(spki(EC_KEY) + b"\0", "not a SubjectPublicKeyInfo", id="trailing"),
        # id-ecPublicKey on Brainpool P-160r1, which no current library implements.
        pytest.param(
            spki(EC_KEY).replace(bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030177")),
            "kind or curve is not supported",
            id="unknown curve",
        ),
    ],
)
def test_public_refused(data: bytes, words: str):
    with pytest.raises(errors.Refused, match=words):
        keys.public_from_spki(data)


def test_private_key_on_unknown_curve():
    der = pem.blocks(written(EC_KEY))[0].der
    foreign = der.replace(bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030177"))
    with pytest.raises(errors.Refused, match=r"not supported|not such a key"):
        keys.private_from_pem(pem.encode("PRIVATE KEY", foreign))


def test_material_never_shows():
    key = keys.generate()
    lines = key.to_pem().decode().splitlines()[1:-1]
    assert not any(line in repr(key) or line in str(key) for line in lines)
    assert repr(key).startswith("<PrivateKey P-256 public=")
    assert "spki" not in repr(key.public)
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(errors.Misuse):
            leak(key)


def test_unjudged_public_key_is_a_bug():
    forged = keys.PublicKey(keys.Kind.ED25519, 256, spki(x25519.X25519PrivateKey.generate()))
    with pytest.raises(errors.Misuse):
        keys.for_certificate(forged)
    with pytest.raises(errors.Misuse):
        forged.require_signature(b"", b"")
