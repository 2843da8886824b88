# SPDX-License-Identifier: Apache-2.0
"""PEM is read strictly; it does not test what is inside the blocks."""

from __future__ import annotations

import base64

import pytest

from handfast import errors
from handfast.pki import pem

A = pem.encode("CERTIFICATE", b"certificate a")
B = pem.encode("CERTIFICATE", b"certificate b" * 10)
KEY = pem.encode("PRIVATE KEY", b"very secret key")


def test_encode_wraps_at_64():
    lines = B.decode().splitlines()
    assert lines[0] == "-----BEGIN CERTIFICATE-----"
    assert {len(line) for line in lines[1:-2]} == {64}
    assert B.endswith(b"-----END CERTIFICATE-----\n")


def test_bundle_with_comments_and_crlf():
    data = b"# our root\r\n" + A.replace(b"\n", b"\r\n") + b"\nSubject: CN=\xc3\xa4\n  " + B
    assert pem.certificates_from_pem(data) == [b"certificate a", b"certificate b" * 10]
    assert pem.certificates_to_pem(pem.certificates_from_pem(data)) == A + B


def test_indented_block_as_in_yaml():
    assert pem.certificates_from_pem(A.replace(b"\n", b"\n    ")) == [b"certificate a"]


def test_key_beside_certificate():
    assert pem.certificates_from_pem(A + KEY, ignoring=pem.KEY_LABELS) == [b"certificate a"]


def test_the_only_block_is_returned():
    assert pem.one(A, "CERTIFICATE") == b"certificate a"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", "no CERTIFICATE block", id="empty"),
        pytest.param(b"# only a comment\n", "no CERTIFICATE block", id="comment only"),
        pytest.param(KEY, "PEM block 1: expected CERTIFICATE, found PRIVATE KEY", id="key instead"),
        pytest.param(A + b"-----BEGIN CERTIFICATE-----\nAAAA\n", "PEM block 2 (CERTIFICATE): no END line", id="no end"),
        pytest.param(b"-----END CERTIFICATE-----\n", "boundary line that opens no block", id="end only"),
        pytest.param(b"-----BEGIN certificate-----\n", "boundary line that opens no block", id="lower-case label"),
        pytest.param(b"-----BEGIN CERTIFICATE----\n", "boundary line that opens no block", id="short dashes"),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END X-----\n", "another boundary line", id="labels differ"
        ),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END CERTIFICATE-----\n",
            "headers are not accepted",
            id="header",
        ),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\n\nAAAA\n-----END CERTIFICATE-----\n", "empty line", id="empty line"
        ),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nAA!A\n-----END CERTIFICATE-----\n", "not base64", id="foreign"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n", "not base64", id="padding"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nAB==\n-----END CERTIFICATE-----\n", "not canonical", id="bits"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", ": empty", id="no content"),
        pytest.param(A * (pem.MAX_BLOCKS + 1), "more than 512 blocks", id="too many"),
        pytest.param(b" " * (pem.MAX_BYTES + 1), "at most 1048576 are read", id="too large"),
    ],
)
def test_malformed_pem_is_refused_in_words(data: bytes, words: str):
    with pytest.raises(errors.Refused) as caught:
        pem.certificates_from_pem(data)
    assert words in caught.value.message
    assert caught.value.reason == "MalformedPEM"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (A + B, "exactly one PEM block of type CERTIFICATE, found 2"),
        (b"", "found 0"),
        (KEY, "PEM block type must be CERTIFICATE, found PRIVATE KEY"),
        (b"hello\n" + A, "after PEM block 0: text outside a block"),
        (A + b"hello\n", "after PEM block 1: text outside a block"),
    ],
)
def test_one_refuses(data: bytes, words: str):
    with pytest.raises(errors.Refused, match=words):
        pem.one(data, "CERTIFICATE")


def test_content_never_shows():
    block = pem.blocks(KEY)[0]
    assert block == pem.Block("PRIVATE KEY", b"very secret key")
    assert "secret" not in repr(block)
    broken = KEY.replace(b"-----END", b"!\n-----END")
    with pytest.raises(errors.Refused) as caught:
        pem.blocks(broken)
    assert base64.b64encode(b"very secret key").decode() not in str(caught.value)
