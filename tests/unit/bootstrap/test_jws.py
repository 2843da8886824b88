# SPDX-License-Identifier: Apache-2.0
"""Detached JWS: vectors, an independent implementation in both directions, and everything that must be refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import traceback
from typing import Any

import pytest

from handfast import errors
from handfast.bootstrap import jws, tokens

CONTENT = b"Hello from the other side. I must have called a thousand times."
JOSHUA = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9.."
PASSCODE = "my voice is my passcode"
TOKEN = tokens.Token("07401b", "f395accd246ae52d")
BY_SECRET = "eyJhbGciOiJIUzI1NiIsImtpZCI6IjA3NDAxYiJ9..xNC07yTz4awqOP1F55KOUON7NhpQZ4huZBRtDtHRT9U"
BY_TOKEN = "eyJhbGciOiJIUzI1NiIsImtpZCI6IjA3NDAxYiJ9..xuAxPpvHbwpivxe5xu60ISuGiTnFVeSAti7XWiGwl94"


def b64(octets: bytes) -> str:
    return base64.b64encode(octets).decode().translate({43: "-", 47: "_", 61: None})


def independent(content: bytes, header: dict[str, Any] | str, key: bytes) -> str:
    """HS256 by RFC 2104 and RFC 7515, from nothing but SHA-256: what it shares with the module is the standard."""
    text = header if isinstance(header, str) else json.dumps(header)
    signed = f"{b64(text.encode())}.{b64(content)}".encode()
    block = key.ljust(64, b"\0") if len(key) <= 64 else hashlib.sha256(key).digest().ljust(64, b"\0")
    inner = hashlib.sha256(bytes(octet ^ 0x36 for octet in block) + signed).digest()
    mac = hashlib.sha256(bytes(octet ^ 0x5C for octet in block) + inner).digest()
    return f"{b64(text.encode())}..{b64(mac)}"


def header(**more: Any) -> dict[str, Any]:
    return {"alg": "HS256", "kid": TOKEN.id, **more}


def refusal(signature: str, content: bytes = b"payload", token: tokens.Token = TOKEN) -> errors.Refused:
    with pytest.raises(errors.Refused) as caught:
        jws.verify(signature, content, token)
    return caught.value


@pytest.mark.parametrize(
    ("content", "token_id", "secret", "signature"),
    [
        pytest.param(CONTENT, "joshua", PASSCODE, f"{JOSHUA}VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8", id="text"),
        pytest.param(b"", "joshua", PASSCODE, f"{JOSHUA}7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk", id="no content"),
        pytest.param(CONTENT, "joshua", "", f"{JOSHUA}UfkqvDGiIFxrMnFseDj9LYJOLNrvjW8aHhF71mvvAs8", id="no secret"),
        pytest.param(
            b"payload",
            "abc123",
            "tokenSecret",
            "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiYzEyMyJ9..QSxpUG7Q542CirTI2ECPSZjvBOJURUW5a7XqFpNI958",
            id="payload",
        ),
        pytest.param(b"payload", TOKEN.id, TOKEN.secret, BY_SECRET, id="keyed by the secret"),
    ],
)
def test_signatures_are_those_of_the_vectors(content: bytes, token_id: str, secret: str, signature: str):
    assert jws.sign(content, token_id, secret) == signature
    jws.verify(signature, content, tokens.Token(token_id, secret))


def test_a_signature_keyed_by_the_full_token_counts():
    jws.verify(BY_TOKEN, b"payload", TOKEN)


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"kubeconfig" * 1000])
def test_an_independent_implementation_agrees(content: bytes):
    exact = f'{{"alg":"HS256","kid":"{TOKEN.id}"}}'
    assert jws.sign(content, TOKEN.id, TOKEN.secret) == independent(content, exact, TOKEN.secret.encode())


@pytest.mark.parametrize("key", [TOKEN.secret, TOKEN.text])
@pytest.mark.parametrize("made", [header(), {"kid": TOKEN.id, "alg": "HS256"}, header(typ="JOSE")])
def test_what_an_independent_implementation_signs_is_accepted(key: str, made: dict[str, Any]):
    jws.verify(independent(CONTENT, made, key.encode()), CONTENT, TOKEN)


def signed(text: dict[str, Any] | str) -> str:
    return independent(b"payload", text, TOKEN.secret.encode())


NOT_JWS = "not a detached JWS: "


@pytest.mark.parametrize(
    ("signature", "reason", "says"),
    [
        pytest.param("", "SignatureMalformed", "not of the form HEADER..MAC", id="empty"),
        pytest.param(BY_SECRET.replace("..", "."), "SignatureMalformed", "not of the form", id="one dot"),
        pytest.param(BY_SECRET.replace("..", ".cGF5bG9hZA."), "SignatureMalformed", "not of the form", id="attached"),
        pytest.param(BY_SECRET.split("..", maxsplit=1)[0] + "..", "SignatureMalformed", "not of the form", id="no MAC"),
        pytest.param(".." + BY_SECRET.split("..")[1], "SignatureMalformed", "not of the form", id="no header"),
        pytest.param(BY_SECRET + "=", "SignatureMalformed", "the MAC is not base64url", id="padding"),
        pytest.param(BY_SECRET + "\n", "SignatureMalformed", "the MAC is not base64url", id="line end"),
        pytest.param(BY_SECRET[:-1] + "V", "SignatureMalformed", "the MAC is not base64url", id="left-over bits"),
        pytest.param(BY_TOKEN.replace("x", "+", 1), "SignatureMalformed", "base64url", id="other alphabet"),
        pytest.param(BY_SECRET[:-1] + "é", "SignatureMalformed", "the MAC is not base64url", id="not ASCII"),
        pytest.param(BY_SECRET + ".x", "SignatureMalformed", "the MAC is not base64url", id="a part too many"),
        pytest.param("a" + BY_SECRET, "SignatureMalformed", "the header is not", id="header not base64"),
        pytest.param(signed("[]"), "SignatureMalformed", "the header is not one JSON object", id="header is a list"),
        pytest.param(signed("{"), "SignatureMalformed", "the header is not one JSON object", id="header is not JSON"),
        pytest.param(signed("[" * 2000), "SignatureMalformed", "the header is not one JSON", id="header is deep"),
        pytest.param(
            signed('{"alg":"none","alg":"HS256","kid":"07401b"}'),
            "SignatureMalformed",
            "one JSON object",
            id="alg twice",
        ),
        pytest.param(signed(header(crit=["b64"], b64=False)), "SignatureMalformed", "crit", id="critical extension"),
        pytest.param(json.dumps({"signatures": []}), "SignatureMalformed", "not of the form", id="JSON form"),
        pytest.param("a" * 5000, "SignatureMalformed", "5000 characters; at most 4096", id="long"),
        pytest.param("a" * 4097, "SignatureMalformed", "4097 characters; at most 4096", id="one too many"),
        pytest.param("a" * 4096, "SignatureMalformed", "not of the form", id="as long as may be"),
        pytest.param(signed(header(alg="none")), "WrongAlgorithm", 'is "none"; it must be HS256', id="none"),
        pytest.param(signed(header(alg="hs256")), "WrongAlgorithm", 'is "hs256"', id="lower case"),
        pytest.param(signed(header(alg="RS256")), "WrongAlgorithm", 'is "RS256"', id="public key"),
        pytest.param(signed({"kid": TOKEN.id}), "WrongAlgorithm", "is missing or not text", id="no algorithm"),
        pytest.param(signed(header(alg=["HS256"])), "WrongAlgorithm", "is missing or not text", id="a list"),
        pytest.param(signed(header(kid="abcdef")), "WrongKeyID", 'token id "abcdef", not of "07401b"', id="other id"),
        pytest.param(signed({"alg": "HS256"}), "WrongKeyID", "missing or not text", id="no id"),
        pytest.param(
            signed(header(kid="k" * 99)),
            "WrongKeyID",
            f'token id "{"k" * 64}", not',
            id="a long id is cut in the message",
        ),
        pytest.param(f"{BY_SECRET[:-43]}{BY_SECRET[-43:][::-1][1:]}A", "SignatureMismatch", "07401b", id="other MAC"),
        pytest.param(BY_SECRET[:-11], "SignatureMismatch", "07401b", id="short MAC"),
    ],
)
def test_a_signature_of_another_form_algorithm_or_key_is_refused(signature: str, reason: str, says: str):
    refused = refusal(signature)
    assert refused.reason == reason
    assert says in refused.message
    assert refused.message.startswith(NOT_JWS) == (reason == "SignatureMalformed")


def test_another_content_is_refused():
    for content in (b"payload ", b"", b"Payload"):
        assert refusal(BY_SECRET, content).reason == "SignatureMismatch"


def test_another_token_is_refused():
    other = tokens.Token("abcdef", "f395accd246ae52d")
    assert refusal(jws.sign(b"payload", other.id, other.secret)).reason == "WrongKeyID"
    assert refusal(jws.sign(b"payload", TOKEN.id, "0" * 16)).reason == "SignatureMismatch"


def test_macs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch):
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    jws.verify(BY_SECRET, b"payload", TOKEN)
    jws.verify(BY_TOKEN, b"payload", TOKEN)
    # Both keys are tried whichever is right.
    assert len(compared) == 4


def test_no_error_shows_a_secret():
    for signature in ("", BY_SECRET[:-11], signed(header(alg="none")), signed(header(kid="x"))):
        refused = refusal(signature)
        assert TOKEN.secret not in "".join(traceback.format_exception(refused))
        assert TOKEN.secret not in f"{refused.hint}"
