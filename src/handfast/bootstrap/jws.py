# SPDX-License-Identifier: Apache-2.0
"""Signs a content with the secret half of a bootstrap token, and checks such signatures: detached JWS with HS256.

It does not know what the content says, nor whether the token still counts. A key never stands in an error.

Written: `base64url({"alg":"HS256","kid":"<id>"})..base64url(HMAC-SHA256(secret, header.base64url(content)))`, in these
octets, because others compare whole texts. `verify` returns only when all of this holds:

1. The text is the compact form with nothing between the two dots; header and MAC are base64url without padding, and
   the header is a JSON object without a key twice. What JWS calls critical extensions (`crit`) is not known here.
2. `alg` is HS256, in these letters. `none` is no algorithm, and neither is one that the peer would like better.
3. `kid` is the id of the token.
4. The MAC is that of this header and this content. Its key is the secret half, as every release of Kubernetes has it,
   or the whole token, as its first documentation had it. Both are tried, always, and compared in constant time.

| who | holding | tries | stopped by | shown in tests/unit/bootstrap/test_jws.py |
|---|---|---|---|---|
| one in the middle | a signed content | change the content | 4 | test_another_content_is_refused |
| one in the middle | nothing | `alg: none`, no MAC | 1, 2 | test_a_signature_of_another_form_algorithm_or_key_is_refused |
| one in the middle | a token of his own | sign with that, `kid` swapped or not | 3, 4 | test_another_token_is_refused |
| anyone | many tries | learn the MAC octet by octet | 4: constant time | test_macs_are_compared_in_constant_time |
| a reader of logs | errors | find a secret in them | nothing prints it | test_no_error_shows_a_secret |
"""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any, Final

from handfast import errors
from handfast.bootstrap import tokens

ALGORITHM: Final = "HS256"
_MAX_LENGTH: Final = 4096
_HINT_FORM: Final = "a signature is HEADER..MAC, both in base64url without padding; the JSON form of JWS is not read"


def sign(content: bytes, token_id: str, secret: str) -> str:
    """The detached signature of `content`."""
    header = _encoded(json.dumps({"alg": ALGORITHM, "kid": token_id}, separators=(",", ":")).encode())
    return f"{header}..{_encoded(_mac(header, content, secret))}"


def verify(signature: str, content: bytes, token: tokens.Token) -> None:
    """Checks 1 to 4; Refused says which one failed."""
    # 1. the compact form, detached
    header, mac = _parts(signature)
    fields = _header(header)
    # 2. the algorithm
    algorithm = fields.get("alg")
    if algorithm != ALGORITHM:
        raise errors.Refused(
            f"the signature's algorithm is {_shown(algorithm)}; it must be {ALGORITHM}", reason="WrongAlgorithm"
        )
    # 3. this token's id
    key_id = fields.get("kid")
    if key_id != token.id:
        raise errors.Refused(
            f"the signature is that of token id {_shown(key_id)}, not of {_shown(token.id)}", reason="WrongKeyID"
        )
    # 4. the MAC; `|`, not `or`: both comparisons are made
    by_secret = hmac.compare_digest(mac, _mac(header, content, token.secret))
    by_token = hmac.compare_digest(mac, _mac(header, content, token.text))
    if not by_secret | by_token:
        raise errors.Refused(
            f"the signature of token id {_shown(token.id)} does not match: "
            "the content was changed, or the secret half of the token is another one",
            reason="SignatureMismatch",
        )


def _mac(header: str, content: bytes, key: str) -> bytes:
    signed = f"{header}.{_encoded(content)}".encode("ascii")
    return hmac.digest(key.encode("utf-8", "surrogatepass"), signed, "sha256")


def _parts(signature: str) -> tuple[str, bytes]:
    if len(signature) > _MAX_LENGTH:
        raise _malformed(f"{len(signature)} characters; at most {_MAX_LENGTH} are read")
    header, dots, mac = signature.partition("..")
    if not dots or not header or not mac:
        raise _malformed("not of the form HEADER..MAC")
    return header, _decoded(mac, "MAC")


def _header(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(_decoded(text, "header"), object_pairs_hook=_without_repeats)
    # Not quoted: what a peer sends may be anything. The nesting of hostile JSON ends in a RecursionError.
    except (ValueError, RecursionError):
        raise _malformed("the header is not one JSON object") from None
    if not isinstance(fields, dict):
        raise _malformed("the header is not one JSON object")
    if "crit" in fields:
        raise _malformed("the header demands extensions (crit), and none is known")
    return fields


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _encoded(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode("ascii").rstrip("=")


def _decoded(text: str, what: str) -> bytes:
    try:
        octets = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        octets = b""
    # One text for each value: padding, other alphabets and left-over bits do not come back the same.
    if _encoded(octets) != text:
        raise _malformed(f"the {what} is not base64url without padding")
    return octets


def _shown(value: object) -> str:
    return json.dumps(value[:64]) if isinstance(value, str) else "missing or not text"


def _malformed(what: str) -> errors.Refused:
    return errors.Refused(f"not a detached JWS: {what}", reason="SignatureMalformed", hint=_HINT_FORM)
