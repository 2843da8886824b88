# SPDX-License-Identifier: Apache-2.0
"""Contents of files: both encodings, gzip within its limits, hashes, and what is refused."""

from __future__ import annotations

import base64
import gzip
import hashlib

import pytest

from handfast.rules.machine_config import data_urls
from tests.unit.rules import machine_config_cases as cases

LIMIT = 1 << 20


def decode(url, compression=None, digest=None, limit=LIMIT, budget=None):
    verification = None if digest is None else data_urls.Verification(digest)
    source = data_urls.Source(compression=compression, url=url, verification=verification)
    data_urls.check(source, limit, "the file", data_urls.Budget() if budget is None else budget)
    return data_urls.decode(source, limit, "the file", budget)


def sentence(*arguments, **named):
    return cases.refusal(decode, *arguments, **named).message


def packed(data):
    return "data:;base64," + base64.b64encode(gzip.compress(data)).decode()


def test_string_encode():
    """TestStringEncode of OpenShift's server."""
    assert data_urls.encode(b"Hello, world!") == "data:,Hello%2C%20world!"


def test_every_byte_that_is_not_unreserved_is_escaped():
    data = bytes(range(256)) + b"100%25"
    text = data_urls.encode(data)
    assert text.startswith("data:,%00%01")
    assert text.endswith("100%2525")
    assert decode(text) == data


@pytest.mark.parametrize(
    ("url", "data"),
    [
        ("data:,hello", b"hello"),
        ("data:,", b""),
        (None, b""),
        ("data:text/plain,a%20b", b"a b"),
        ("data:text/plain;charset=utf-8;base64,aGVsbG8=", b"hello"),
        ("data:;base64,aGVs\nbG8=\r\n", b"hello"),
        ("data:,a,b", b"a,b"),
    ],
)
def test_a_data_url_is_read(url, data):
    assert decode(url) == data


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("data:hello", "without a comma"),
        ("https://example.org/a,b", 'comes from "https:"'),
        ("data:,50%", "% without two hexadecimal digits"),
        ("data:,50%2", "% without two hexadecimal digits"),
        ("data:,%zz", "% without two hexadecimal digits"),
        ("data:,grün", "not ASCII"),
        ("data:;base64,aGVsbG8", "is no base64"),
        ("data:;base64,a?==", "is no base64"),
        ("data:;base64,aGVsbG8=aGVsbG8=", "is no base64"),
    ],
)
def test_what_is_no_data_url_is_refused(url, words):
    assert words in sentence(url)
    assert words in cases.refusal(data_urls.decode, data_urls.Source(url=url), LIMIT, "the file").message


def test_a_file_has_a_limit():
    assert decode("data:,abcd", limit=4) == b"abcd"
    assert decode("data:,%61%62%63%64", limit=4) == b"abcd"
    assert sentence("data:,abcde", limit=4) == "the file has 5 bytes: a file may have 4"
    assert "5 bytes" in sentence("data:;base64,YWJjZGU=", limit=4)


def test_gzip_is_unpacked():
    assert decode(packed(b"hello"), "gzip") == b"hello"
    assert decode(packed(b"hello"), "") == gzip.compress(b"hello")
    two = base64.b64encode(gzip.compress(b"hel") + gzip.compress(b"lo")).decode()
    assert decode("data:;base64," + two, "gzip") == b"hello"


def test_what_is_no_gzip_is_refused():
    assert "is no gzip" in sentence("data:,hello", "gzip")
    cut = base64.b64encode(gzip.compress(b"hello")[:-4]).decode()
    assert "ends too early" in sentence("data:;base64," + cut, "gzip")
    members = base64.b64encode(gzip.compress(b"") * (data_urls.MAX_MEMBERS + 1)).decode()
    assert "more than 16 members" in sentence("data:;base64," + members, "gzip")


def test_gzip_is_unpacked_up_to_the_limit():
    budget = data_urls.Budget()
    bomb = packed(bytes(100 << 20))
    assert len(bomb) < 200_000
    assert "larger than a file may be, which is 1,048,576 bytes" in sentence(bomb, "gzip", budget=budget)
    assert budget.left == data_urls.UNPACKED_LIMIT - LIMIT - 1
    exact = packed(bytes(LIMIT))
    assert decode(exact, "gzip") == bytes(LIMIT)


def test_gzip_is_unpacked_up_to_the_budget():
    budget = data_urls.Budget(3 * LIMIT)
    source = data_urls.Source(compression="gzip", url=packed(bytes(LIMIT)))
    for _ in range(3):
        data_urls.check(source, LIMIT, "the file", budget)
    refused = cases.refusal(data_urls.check, source, LIMIT, "the file", budget)
    assert refused.message == "the file and those before it are unpacked larger than 3,145,728 bytes together"


@pytest.mark.parametrize("kind", ["sha256", "sha512"])
def test_the_hash_is_of_what_is_written(kind):
    digest = f"{kind}-{hashlib.new(kind, b'hello').hexdigest()}"
    assert decode("data:,hello", digest=digest) == b"hello"
    assert decode(packed(b"hello"), "gzip", digest) == b"hello"
    assert "does not have the contents" in sentence("data:,hullo", digest=digest)


@pytest.mark.parametrize("digest", ["sha256", "sha256-abc", "md5-5d41402abc4b2a76b9719d911017c592", ""])
def test_a_hash_has_a_kind_and_its_length(digest):
    assert "sha256-<64 hexadecimal digits> or sha512-<128 hexadecimal digits>" in sentence("data:,hello", digest=digest)


def test_contents_are_not_printed():
    header = data_urls.Header("Authorization", "Bearer secret")
    assert "secret" not in repr(data_urls.Source(url="data:,secret", http_headers=[header]))
    assert "secret" not in repr(header)
    assert repr(data_urls.Source()) == "Source(…)"
