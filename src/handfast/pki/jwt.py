# SPDX-License-Identifier: Apache-2.0
"""Signs and verifies JSON Web Tokens (RFC 7519) as compact JWS (RFC 7515), with the keys this program holds.

It does not judge claims (issuer, audience and times belong to `rules`) and never takes a key from a token.

A token verifies when all of this holds:

1. It has at most `MAX_TOKEN` characters, in three parts.
2. Each part is canonical base64url: no padding, no foreign characters, no stray bits. The same bytes have one spelling.
3. Header and claims are JSON objects in UTF-8 in which no key occurs twice.
4. The header has no `crit`: extensions that must be understood are not understood here.
5. `alg` is ES256, ES384, ES512 or RS256. `none` and the HMACs are not in the table.
6. `kid` names one of our keys; without `kid` each key that `alg` fits is tried, as Kubernetes does.
7. `alg` is the one algorithm of that key: the key chooses, the token only agrees.
8. The signature is the key's. An ECDSA signature has exactly the length of its curve (RFC 7518, 3.4).

| who            | holding                  | tries                               | check | shown by (test_jwt.py)              |
| -------------- | ------------------------ | ----------------------------------- | ----- | ----------------------------------- |
| anyone         | nothing                  | `alg: none`                         | 5     | test_algorithms_that_are_not_ours   |
| anyone         | our public key           | HS256, with it as the shared secret | 5     | test_hmac_with_the_public_key       |
| a token holder | a good token             | changes claims, header or signature | 8     | test_every_character_counts         |
| a token holder | a good token             | a second spelling of it             | 2     | test_one_token_has_one_spelling     |
| a key holder   | a key of their own       | sends the key along (`jwk`)         | 6     | test_keys_in_the_token_are_ignored  |
| a key holder   | a key of their own       | names our `kid`                     | 8     | test_a_foreign_key_under_our_kid    |
| anyone         | our RSA and EC keys      | crosses the algorithms              | 7     | test_the_key_chooses_the_algorithm  |
| anyone         | time                     | a megabyte, or deep nesting         | 1, 3  | test_a_malformed_token_is_refused_with_its_reason |
| a token holder | two readers of JSON      | repeats a claim                     | 3     | test_repeated_keys                  |
| a log reader   | logs and tracebacks      | finds a key or token                | repr  | test_keys_never_print               |
"""

from __future__ import annotations

import binascii
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

import msgspec
from cryptography import exceptions
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric import utils as signatures

from handfast import errors
from handfast.pki import keys

MAX_TOKEN = 16 << 10
# Where an API server publishes the keys of its service account tokens.
JWKS_PATH = "/openid/v1/jwks"

Claims = dict[str, Any]


class _Algorithm(msgspec.Struct, frozen=True):
    """One row of RFC 7518: `size` is that of an EC coordinate in bytes, 0 for RSA."""

    name: str
    digest: hashes.HashAlgorithm
    size: int = 0
    # Of the curve, in a JWK.
    curve: str = ""


_ALGORITHMS = {
    keys.Kind.P256: _Algorithm("ES256", hashes.SHA256(), 32, "P-256"),
    keys.Kind.P384: _Algorithm("ES384", hashes.SHA384(), 48, "P-384"),
    keys.Kind.P521: _Algorithm("ES512", hashes.SHA512(), 66, "P-521"),
    keys.Kind.RSA: _Algorithm("RS256", hashes.SHA256()),
}
ALGORITHMS = frozenset(row.name for row in _ALGORITHMS.values())

_encode = msgspec.json.Encoder().encode
# RFC 4648, section 5, and what is left out at the end.
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_PADDING = (b"", b"===", b"==", b"=")


def key_id(public: keys.PublicKey) -> str:
    """The `kid` of a key, as Kubernetes makes it: SHA-256 of the SubjectPublicKeyInfo."""
    return _to_text(hashlib.sha256(public.spki).digest())


class Signer:
    """Signs claims with one key. It never prints or pickles the key."""

    __slots__ = ("_header", "_key", "_size", "public")

    def __init__(self, key: keys.PrivateKey) -> None:
        row = _algorithm(key.public)
        self.public = key.public
        self._key = key
        self._size = row.size
        self._header = _header(row.name, key_id(key.public))

    def __repr__(self) -> str:
        return f"<Signer kid={key_id(self.public)}>"

    def __reduce__(self) -> NoReturn:
        raise errors.Misuse("a signer is not pickled or copied: its key stays where it is")

    def sign(self, claims: bytes | Mapping[str, Any]) -> str:
        """The token for claims, or for the JSON of claims."""
        body = claims if isinstance(claims, bytes) else _encode(claims)
        signed = f"{self._header}.{_to_text(body)}"
        signature = self._key.sign(signed.encode())
        if self._size:
            r, s = signatures.decode_dss_signature(signature)
            signature = r.to_bytes(self._size, "big") + s.to_bytes(self._size, "big")
        return f"{signed}.{_to_text(signature)}"


class _Key:
    """One public key, loaded once: loading costs as much as verifying."""

    __slots__ = ("_key", "_row", "_verify", "header", "kid")

    def __init__(self, public: keys.PublicKey) -> None:
        self._row = _algorithm(public)
        self._key = keys.for_certificate(public)
        self._verify = _verification(self._key, self._row)
        self.kid = key_id(public)
        # As our own signer writes it.
        self.header = _header(self._row.name, self.kid)

    @property
    def algorithm(self) -> str:
        return self._row.name

    def require_signature(self, signature: bytes, data: bytes) -> None:
        """Return if the signature over the data is this key's, else refuse (8)."""
        if self._row.size and len(signature) != 2 * self._row.size:
            raise _refused("BadSignature", "the token's signature does not have the length of its algorithm")
        try:
            self._verify(signature, data)
        except exceptions.InvalidSignature:
            raise _refused("BadSignature", "the token's signature was not made by the key") from None

    def jwk(self) -> Mapping[str, str]:
        """RFC 7517, and RFC 7518 section 6."""
        common = {"use": "sig", "kid": self.kid, "alg": self.algorithm}
        if isinstance(self._key, rsa.RSAPublicKey):
            numbers = self._key.public_numbers()
            pair = {name: _number(value) for name, value in (("n", numbers.n), ("e", numbers.e))}
            return {**common, "kty": "RSA", **pair}
        point = keys.spki_of(self._key)[-2 * self._row.size :]
        x, y = point[: self._row.size], point[self._row.size :]
        return {**common, "kty": "EC", "crv": self._row.curve, "x": _to_text(x), "y": _to_text(y)}


class KeySet:
    """The public keys whose signatures count. The first one is tried first where a token does not name its key."""

    def __init__(self, public: Sequence[keys.PublicKey]) -> None:
        if not public:
            raise errors.Misuse("a key set needs at least one key")
        self._keys = {key.kid: key for key in map(_Key, public)}
        # For the headers that our signer writes, checks 2 to 7 are known to hold. Nearly every token has one of these.
        self._own = {key.header: [key] for key in self._keys.values()}

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Of the keys, in alphabetical order."""
        return tuple(sorted({key.algorithm for key in self._keys.values()}))

    def jwks(self) -> Mapping[str, Any]:
        """The JSON Web Key Set."""
        return {"keys": [key.jwk() for key in self._keys.values()]}

    def verify(self, token: str | Unverified) -> Claims:
        """The claims of a token that passes all the checks. What they mean is not judged here."""
        text, claims = (token.text, token.claims) if isinstance(token, Unverified) else (token, None)
        # 1. not too long, and in three parts
        if len(text) > MAX_TOKEN:
            raise _refused("TokenTooLarge", f"the token has {len(text)} characters; at most {MAX_TOKEN} are allowed")
        parts = text.split(".")
        if len(parts) != 3:
            raise _refused("MalformedToken", f"a token has three parts, not {len(parts)}")
        # 2. canonical base64url; that of the header is checked with it
        claims_json = _from_text(parts[1]) if claims is None else b""
        signature = _from_text(parts[2])
        candidates = self._own.get(parts[0]) or self._candidates(parts[0])
        # 8. the signature is that of a key
        _require_any(candidates, signature, text[: text.rindex(".")].encode())
        # 3. the claims are a JSON object: with a good signature they are worth reading
        return _object(claims_json, "claims") if claims is None else claims

    def _candidates(self, text: str) -> Sequence[_Key]:
        """The keys that a header allows, at least one."""
        # 2. canonical base64url, and 3. a JSON object without a key that occurs twice
        header = _object(_from_text(text), "header")
        # 4. no extension that must be understood
        if "crit" in header:
            raise _refused("UnsupportedHeader", "the token's header has `crit`, which is not supported")
        # 5. an algorithm of the table
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            allowed = ", ".join(sorted(ALGORITHMS))
            raise _refused("UnsupportedAlgorithm", f"the token's alg is {_shown(algorithm)}; allowed are: {allowed}")
        # 6. a key of ours
        kid = header.get("kid", "")
        if kid != "":
            key = self._keys.get(kid) if isinstance(kid, str) else None
            if key is None:
                raise _refused("UnknownKey", f"the token's kid {_shown(kid)} is none of our keys")
            candidates = [key]
        else:
            candidates = list(self._keys.values())
        # 7. the one algorithm of that key
        fitting = [key for key in candidates if key.algorithm == algorithm]
        if not fitting:
            raise _refused("WrongAlgorithm", f"the token's alg {algorithm} is not that of the key")
        return fitting


class Unverified:
    """A token whose claims have been read, and of which nothing is believed. It does not print them."""

    __slots__ = ("claims", "text")

    def __init__(self, text: str, claims: Claims) -> None:
        self.text = text
        self.claims = claims

    def __repr__(self) -> str:
        return "<Unverified>"

    @property
    def issuer(self) -> str | None:
        """Anyone can write it: it only says whom to ask."""
        issuer = self.claims.get("iss")
        return issuer if isinstance(issuer, str) else None


def read(token: str) -> Unverified | None:
    """The token with its claims read, for `KeySet.verify`; None if it does not look like one."""
    if len(token) > MAX_TOKEN or token.count(".") != 2:
        return None
    try:
        return Unverified(token, _object(_from_text(token.split(".")[1]), "claims"))
    except errors.Refused:
        return None


def _require_any(candidates: Sequence[_Key], signature: bytes, data: bytes) -> None:
    *others, last = candidates
    for key in others:
        try:
            key.require_signature(signature, data)
        except errors.Refused:
            continue
        return
    last.require_signature(signature, data)


def _algorithm(public: keys.PublicKey) -> _Algorithm:
    row = _ALGORITHMS.get(public.kind)
    if row is None:
        allowed = ", ".join(sorted(_ALGORITHMS))
        raise errors.Refused(f"{public.kind} keys do not sign tokens; allowed are: {allowed}", reason="BadKey")
    return row


def _header(algorithm: str, kid: str) -> str:
    return _to_text(_encode({"alg": algorithm, "kid": kid}))


def _verification(key: keys.Verifying, row: _Algorithm) -> Callable[[bytes, bytes], None]:
    """A function of a signature as RFC 7518 has it, and data. What it needs of the key is prepared once."""
    if isinstance(key, rsa.RSAPublicKey):
        scheme, rsa_key = padding.PKCS1v15(), key
        return lambda signature, data: rsa_key.verify(signature, data, scheme, row.digest)
    # There are rows for these two only.
    ec_key = cast("ec.EllipticCurvePublicKey", key)
    algorithm, size = ec.ECDSA(row.digest), row.size

    def verify(signature: bytes, data: bytes) -> None:
        r, s = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
        ec_key.verify(signatures.encode_dss_signature(r, s), data, algorithm)

    return verify


def _object(body: bytes, part: str) -> Claims:
    """The JSON object that a part of a token holds, with no key twice (3)."""
    try:
        decoded = _decode(body.decode())
    except (ValueError, RecursionError):
        raise _refused("MalformedToken", f"the token's {part} is not JSON") from None
    if not isinstance(decoded, dict):
        raise _refused("MalformedToken", f"the token's {part} is not a JSON object")
    return decoded


def _unique(pairs: Sequence[tuple[str, Any]]) -> Claims:
    decoded = dict(pairs)
    if len(decoded) != len(pairs):
        raise _refused("RepeatedKey", "a key occurs twice in the token's JSON")
    return decoded


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("the number is out of range")
    return number


_decode = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite).decode


def _to_text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).translate(_TO_URL, b"=").decode()


def _from_text(text: str) -> bytes:
    """The octets of a part. A spelling that this program would not write is refused (2)."""
    try:
        data = binascii.a2b_base64(text.encode("ascii").translate(_FROM_URL) + _PADDING[len(text) % 4])
    except ValueError:
        raise _refused("MalformedToken", "a part of the token is not base64url") from None
    if _to_text(data) != text:
        raise _refused("MalformedToken", "a part of the token is not canonical base64url")
    return data


def _number(value: int) -> str:
    return _to_text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _shown(value: object) -> str:
    """A peer's value in a message: in ASCII, and short."""
    return ascii(value)[:80]


def _refused(reason: str, message: str) -> errors.Refused:
    return errors.Refused(message, reason=reason)
