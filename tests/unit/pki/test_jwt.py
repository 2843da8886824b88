# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from handfast import errors
from handfast.pki import jwt, keys

KEY = keys.generate()
OTHER = keys.generate()
RSA = keys.generate(keys.Kind.RSA)
ALL = [KEY, RSA, keys.generate(keys.Kind.P384), keys.generate(keys.Kind.P521)]
SIGNER = jwt.Signer(KEY)
KEYS = jwt.KeySet([KEY.public])
EVERYTHING = jwt.KeySet([key.public for key in ALL])
CLAIMS = {"iss": "https://issuer", "sub": "someone", "aud": ["a", "b"], "exp": 4102444800}


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def bytes_of(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def forge(header: Any, claims: Any = CLAIMS, key: keys.PrivateKey = KEY) -> str:
    """A token whose signature is right for the key, whatever its header says."""
    header_json = header if isinstance(header, bytes) else json.dumps(header).encode()
    claims_json = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    whole = jwt.Signer(key)
    whole._header = text(header_json)
    return whole.sign(claims_json)


def refused(token: str, keyset: jwt.KeySet = KEYS) -> str:
    with pytest.raises(errors.Refused) as caught:
        keyset.verify(token)
    assert len(caught.value.message) < 300
    return caught.value.reason


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.public.kind)
def test_what_is_signed_verifies(key: keys.PrivateKey):
    token = jwt.Signer(key).sign(CLAIMS)
    assert jwt.KeySet([key.public]).verify(token) == CLAIMS
    assert EVERYTHING.verify(token) == CLAIMS
    assert token == token.strip()
    assert EVERYTHING.verify(jwt.Signer(key).sign(json.dumps(CLAIMS).encode())) == CLAIMS


def test_the_library_verifies_ours():
    """Straight from RFC 7515 and 7518, with nothing of the module under test."""
    header, claims, signature = SIGNER.sign(CLAIMS).split(".")
    spki = KEY.public.spki
    kid = text(hashlib.sha256(spki).digest())
    assert json.loads(bytes_of(header)) == {"alg": "ES256", "kid": kid}
    assert json.loads(bytes_of(claims)) == CLAIMS
    raw = bytes_of(signature)
    assert len(raw) == 64
    public = serialization.load_der_public_key(spki)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public.verify(der, f"{header}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))


@pytest.mark.slow
@pytest.mark.parametrize("key", ALL, ids=lambda key: key.public.kind)
def test_openssl_verifies_ours(key: keys.PrivateKey, tmp_path: Path):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command here")
    header, claims, signature = jwt.Signer(key).sign(CLAIMS).split(".")
    raw = bytes_of(signature)
    if key.public.kind is not keys.Kind.RSA:
        half = len(raw) // 2
        raw = encode_dss_signature(int.from_bytes(raw[:half], "big"), int.from_bytes(raw[half:], "big"))
    (tmp_path / "key.der").write_bytes(key.public.spki)
    (tmp_path / "signature").write_bytes(raw)
    (tmp_path / "signed").write_text(f"{header}.{claims}")
    digest = {"ES384": "-sha384", "ES512": "-sha512"}.get(json.loads(bytes_of(header))["alg"], "-sha256")
    command = [openssl, "dgst", digest, "-verify", "key.der", "-keyform", "DER", "-signature", "signature", "signed"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Verified OK", done.stderr


def test_the_example_of_rfc_7515_verifies():
    """Appendix A.3: ES256, no kid, and claims with their line ends as printed there."""
    x, y = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
    numbers = ec.EllipticCurvePublicNumbers(
        int.from_bytes(bytes_of(x), "big"), int.from_bytes(bytes_of(y), "big"), ec.SECP256R1()
    )
    public = keys.judge(numbers.public_key())
    token = (
        "eyJhbGciOiJFUzI1NiJ9"
        ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
        ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    )
    expected = {"iss": "joe", "exp": 1300819380, "http://example.com/is_root": True}
    assert jwt.KeySet([public]).verify(token) == expected
    assert refused(token) == "BadSignature"
    jwk = jwt.KeySet([public]).jwks()["keys"][0]
    assert (jwk["x"], jwk["y"]) == (x, y)


def test_rsa_made_by_the_library_verifies():
    header = text(json.dumps({"alg": "RS256", "kid": jwt.key_id(RSA.public)}).encode())
    signed = f"{header}.{text(json.dumps(CLAIMS).encode())}"
    key = serialization.load_pem_private_key(RSA.to_pem(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    assert EVERYTHING.verify(f"{signed}.{text(signature)}") == CLAIMS


@pytest.mark.parametrize(
    "alg", ["none", "None", "NONE", "", "HS256", "HS512", "ES256K", "PS256", "EdDSA", None, 7, ["ES256"]]
)
def test_algorithms_that_are_not_ours(alg: Any):
    kid = jwt.key_id(KEY.public)
    assert refused(forge({"alg": alg, "kid": kid})) == "UnsupportedAlgorithm"
    unsigned = f"{text(json.dumps({'alg': alg}).encode())}.{text(json.dumps(CLAIMS).encode())}."
    assert refused(unsigned) == "UnsupportedAlgorithm"
    assert refused(forge({"kid": kid})) == "UnsupportedAlgorithm"


@pytest.mark.parametrize("secret", ["spki", "pem"])
def test_hmac_with_the_public_key(secret: str):
    spki = KEY.public.spki
    pem = b"-----BEGIN PUBLIC KEY-----\n" + base64.encodebytes(spki) + b"-----END PUBLIC KEY-----\n"
    for alg in ("HS256", "ES256"):
        header = text(json.dumps({"alg": alg, "kid": jwt.key_id(KEY.public)}).encode())
        signed = f"{header}.{text(json.dumps(CLAIMS).encode())}"
        tag = hmac.digest(spki if secret == "spki" else pem, signed.encode(), "sha256")
        assert refused(f"{signed}.{text(tag)}") == ("UnsupportedAlgorithm" if alg == "HS256" else "BadSignature")


def test_the_key_chooses_the_algorithm():
    for key in ALL:
        kid = jwt.key_id(key.public)
        own = jwt._algorithm(key.public).name
        for alg in jwt.ALGORITHMS - {own}:
            assert refused(forge({"alg": alg, "kid": kid}, key=key), EVERYTHING) == "WrongAlgorithm"
    # Without a kid, too: no key of that algorithm.
    assert refused(forge({"alg": "RS256"})) == "WrongAlgorithm"


def test_unknown_keys():
    assert refused(jwt.Signer(OTHER).sign(CLAIMS)) == "UnknownKey"
    for kid in ("x", "k" * 5000, 5, ["a"], None, {"a": 1}, "\ud800"):
        assert refused(forge({"alg": "ES256", "kid": kid})) == "UnknownKey"


def test_a_foreign_key_under_our_kid():
    assert refused(forge({"alg": "ES256", "kid": jwt.key_id(KEY.public)}, key=OTHER)) == "BadSignature"


def test_without_a_kid_every_fitting_key_is_tried():
    several = jwt.KeySet([RSA.public, OTHER.public, KEY.public])
    for header in ({"alg": "ES256"}, {"alg": "ES256", "kid": ""}):
        assert several.verify(forge(header)) == CLAIMS
        assert several.verify(forge(header, key=OTHER)) == CLAIMS
        assert refused(forge(header, key=keys.generate()), several) == "BadSignature"


def test_keys_in_the_token_are_ignored():
    jwk = dict(jwt.KeySet([OTHER.public]).jwks()["keys"][0])
    x5c = [base64.b64encode(OTHER.public.spki).decode()]
    for extra in ({"jwk": jwk}, {"x5c": x5c}, {"jku": "https://evil/jwks"}):
        assert refused(forge({"alg": "ES256", "kid": jwk["kid"], **extra}, key=OTHER)) == "UnknownKey"
        assert refused(forge({"alg": "ES256", **extra}, key=OTHER)) == "BadSignature"


def test_critical_extensions():
    for crit in (["b64"], [], None):
        assert refused(forge({"alg": "ES256", "crit": crit, "b64": False})) == "UnsupportedHeader"


def test_every_character_counts():
    token = SIGNER.sign(CLAIMS)
    for at, character in enumerate(token):
        other = "A" if character != "A" else "B"
        refused(token[:at] + other + token[at + 1 :])
        refused(token[:at])
        refused(token[:at] + token[at + 1 :])


def test_one_token_has_one_spelling():
    token = SIGNER.sign(CLAIMS)
    header, claims, signature = token.split(".")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # 64 bytes leave four stray bits in the last character.
    spellings = [signature[:-1] + other for other in alphabet if other != signature[-1]]
    same = [other for other in spellings if bytes_of(other) == bytes_of(signature)]
    assert len(same) == 15
    standard = base64.b64encode(bytes_of(signature)).decode()
    for other in (
        *same,
        signature + "==",
        signature + "=",
        signature + "\n",
        " " + signature,
        "!" + signature,
        standard,
    ):
        assert refused(f"{header}.{claims}.{other}") == "MalformedToken"
    assert refused(token + "\n") == refused(f"{header}=.{claims}.{signature}") == "MalformedToken"


def test_signature_lengths():
    header, claims, signature = SIGNER.sign(CLAIMS).split(".")
    raw = bytes_of(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    longer = raw[:32] + b"\0" + raw[32:]
    for other in (
        b"",
        raw[:-1],
        raw + b"\0",
        longer,
        b"\0" + raw[:32] + b"\0" + raw[32:],
        der,
        bytes(64),
        b"\xff" * 64,
    ):
        assert refused(f"{header}.{claims}.{text(other)}") == "BadSignature"


MALFORMED = [
    ("", "MalformedToken"),
    ("abcdef.0123456789abcdef", "MalformedToken"),
    ("a.b.c.d", "MalformedToken"),
    ("..", "MalformedToken"),
    ("A.A.A", "MalformedToken"),
    ("é.é.é", "MalformedToken"),
    ("\udc80.a.a", "MalformedToken"),
    ('{"payload":"","signatures":[]}', "MalformedToken"),
    ("a" * (1 << 20), "TokenTooLarge"),
    (SIGNER.sign({"sub": "x" * jwt.MAX_TOKEN}), "TokenTooLarge"),
    (forge(b"[]"), "MalformedToken"),
    (forge(b"\xff"), "MalformedToken"),
    (forge('{"alg":"ES256"}'.encode("utf-16")), "MalformedToken"),
    (forge(b"[" * 8000), "MalformedToken"),
    (forge({"alg": "ES256"}, b'"text"'), "MalformedToken"),
    (forge({"alg": "ES256"}, b"[1]"), "MalformedToken"),
    (forge({"alg": "ES256"}, b""), "MalformedToken"),
    (forge({"alg": "ES256"}, b'{"exp":NaN}'), "MalformedToken"),
    (forge({"alg": "ES256"}, b'{"exp":-Infinity}'), "MalformedToken"),
    (forge({"alg": "ES256"}, b'{"exp":1e999}'), "MalformedToken"),
    (forge({"alg": "ES256"}, b'{"sub":"\\n","exp":-1e999}'), "MalformedToken"),
    (forge({"alg": "ES256"}, b'{"sub":"\\n","exp":NaN}'), "MalformedToken"),
    (forge({"alg": "ES256"}, b'{"exp":' + b"9" * 5000 + b"}"), "MalformedToken"),
    (forge({"alg": "ES256"}, b'{"a":' * 1500 + b"1" + b"}" * 1500), "MalformedToken"),
    (forge({"alg": "ES256"}, b'{"a":1}{}'), "MalformedToken"),
]


def issuer(token: str) -> str | None:
    found = jwt.read(token)
    return None if found is None else found.issuer


# Numbered, because signatures differ from process to process and names of tests must not.
@pytest.mark.parametrize("row", range(len(MALFORMED)))
def test_a_malformed_token_is_refused_with_its_reason(row: int):
    token, reason = MALFORMED[row]
    assert refused(token) == reason
    claims = [*token.split("."), "", ""][1]
    # Whoever broke only the header has named an issuer all the same.
    assert issuer(token) == ("https://issuer" if claims == text(json.dumps(CLAIMS).encode()) else None)


def test_repeated_keys():
    for claims in (b'{"iss":"a","iss":"b"}', b'{"k":{"a":1,"a":1}}', b'{"iss":"a","\\u0069ss":"b"}'):
        token = forge({"alg": "ES256"}, claims)
        assert refused(token) == "RepeatedKey"
        assert issuer(token) is None
    assert refused(forge(b'{"alg":"none","alg":"ES256"}')) == "RepeatedKey"


def test_numbers_with_a_fraction_are_numbers():
    assert KEYS.verify(forge({"alg": "ES256"}, b'{"exp":1.5}')) == {"exp": 1.5}


def test_claims_are_read_after_the_signature():
    token = forge({"alg": "ES256", "kid": jwt.key_id(KEY.public)}, b"{}{}", key=OTHER)
    assert refused(token) == "BadSignature"


def test_the_issuer_is_seen_without_a_key():
    assert issuer(jwt.Signer(OTHER).sign(CLAIMS)) == "https://issuer"
    for claims in ({"sub": "x"}, {"iss": 5}, {"iss": ["a"]}, {"iss": None}):
        assert issuer(SIGNER.sign(claims)) is None


def test_a_token_that_was_read_verifies_as_its_text_does():
    token = SIGNER.sign(CLAIMS)
    found = jwt.read(token)
    assert found is not None
    assert (found.text, found.issuer) == (token, "https://issuer")
    assert jwt.KeySet([KEY.public]).verify(found) == jwt.KeySet([KEY.public]).verify(token) == CLAIMS
    # What was read is not what is believed.
    with pytest.raises(errors.Refused, match="was not made by the key"):
        jwt.KeySet([KEY.public]).verify(found.__class__(forge({"alg": "ES256"}, key=OTHER), found.claims))
    assert repr(found) == "<Unverified>"


def test_the_key_set_document():
    found = EVERYTHING.jwks()["keys"]
    assert [(key["kty"], key["alg"], key["use"]) for key in found] == [
        ("EC", "ES256", "sig"),
        ("RSA", "RS256", "sig"),
        ("EC", "ES384", "sig"),
        ("EC", "ES512", "sig"),
    ]
    assert [key["kid"] for key in found] == [jwt.key_id(key.public) for key in ALL]
    curves: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    for key, made in zip(found, ALL, strict=True):
        number = {name: int.from_bytes(bytes_of(key[name]), "big") for name in ("n", "e", "x", "y") if name in key}
        public: Any
        if key["kty"] == "RSA":
            public = rsa.RSAPublicNumbers(number["e"], number["n"]).public_key()
        else:
            public = ec.EllipticCurvePublicNumbers(number["x"], number["y"], curves[key["crv"]]).public_key()
            # RFC 7518, 6.2.1.2: the full size of a coordinate, leading zeros included.
            assert len(bytes_of(key["x"])) == len(bytes_of(key["y"])) == (public.key_size + 7) // 8
        assert keys.spki_of(public) == made.public.spki
    assert EVERYTHING.algorithms == ("ES256", "ES384", "ES512", "RS256")
    assert len(jwt.KeySet([KEY.public, KEY.public]).jwks()["keys"]) == 1


def test_keys_that_do_not_fit():
    ed25519 = keys.generate(keys.Kind.ED25519)
    with pytest.raises(errors.Refused, match="Ed25519 keys do not sign tokens; allowed are: P-256") as caught:
        jwt.Signer(ed25519)
    assert caught.value.reason == "BadKey"
    with pytest.raises(errors.Refused, match="Ed25519"):
        jwt.KeySet([KEY.public, ed25519.public])
    with pytest.raises(errors.Misuse):
        jwt.KeySet([])


def test_keys_never_print():
    assert repr(SIGNER) == f"<Signer kid={jwt.key_id(KEY.public)}>"
    with pytest.raises(errors.Misuse):
        pickle.dumps(SIGNER)
    with pytest.raises(errors.Misuse):
        copy.copy(SIGNER)
    token = SIGNER.sign({"sub": "hidden"})
    with pytest.raises(errors.Refused) as caught:
        jwt.KeySet([OTHER.public]).verify(token)
    assert not any(part in caught.value.message for part in (token, token.split(".")[1], token.split(".")[2]))
