# SPDX-License-Identifier: Apache-2.0
"""Pins of a CA's public key, as kubeadm prints and reads them."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from handfast import errors
from handfast.pki import pins
from tests.unit.pki import making

DIGITS = "0123456789abcdef" * 4
CA = making.ca()


def test_parse_and_print():
    assert str(pins.parse(f"sha256:{DIGITS}")) == f"sha256:{DIGITS}"
    assert pins.parse(f"SHA256:{DIGITS.upper()}") == pins.parse(f"sha256:{DIGITS}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'invalid hash, expected "format:hex-value". Known format(s) are: sha256'),
        ("foo", 'invalid hash, expected "format:hex-value". Known format(s) are: sha256'),
        (f"md5:{DIGITS}", 'unknown hash format "md5"'),
        ("sha256:xyzt", "expected a 32 byte SHA-256 hash, found 2 bytes"),
        ("sha256:", "expected a 32 byte SHA-256 hash, found 0 bytes"),
        (f"sha256:{DIGITS[:-2]}", "expected a 32 byte SHA-256 hash, found 31 bytes"),
        (f"sha256:{DIGITS * 2}", "expected a 32 byte SHA-256 hash, found 64 bytes"),
        (f"sha256:{DIGITS}0", "not hexadecimal"),
        (f"sha256:{DIGITS[:-1]}g", "not hexadecimal"),
        (f"sha256: {DIGITS[1:]}", "not hexadecimal"),
        (f"sha256:{DIGITS[:-1]}\u0663", "not hexadecimal"),
    ],
)
def test_parse_refuses(text: str, words: str):
    with pytest.raises(errors.Refused) as caught:
        pins.parse(text)
    assert caught.value.message.startswith("invalid discovery token CA certificate hash: ")
    assert words in caught.value.message
    assert caught.value.reason == "BadPin"
    assert "sha256: and 64 hexadecimal digits" in str(caught.value.hint)


def test_one_certificate_that_fits_one_pin_is_enough():
    other = making.ca("other")
    pins.require_pinned([other.der, CA.der], [pins.Pin(DIGITS), pins.of_certificate(CA.der)])


def test_another_ca_is_refused():
    other = making.ca("other")
    with pytest.raises(errors.Refused) as caught:
        pins.require_pinned([other.der, other.der], [pins.of_certificate(CA.der)])
    found = pins.of_certificate(other.der)
    assert caught.value.reason == "NotPinned"
    assert caught.value.message == (
        f'cluster CA found in cluster-info ConfigMap is invalid: none of the public keys "{found}:{found}" are pinned'
    )


def test_same_names_other_key():
    with pytest.raises(errors.Refused) as caught:
        pins.require_pinned([making.ca("root").der], [pins.of_certificate(CA.der)])
    assert caught.value.reason == "NotPinned"


def test_another_certificate_of_the_same_key_is_pinned():
    pins.require_pinned([making.ca("renewed", key=CA.key).der], [pins.of_certificate(CA.der)])


def test_nothing_matches_nothing():
    for ders, wanted in (([], []), ([CA.der], []), ([], [pins.of_certificate(CA.der)])):
        with pytest.raises(errors.Refused) as caught:
            pins.require_pinned(ders, wanted)
        assert caught.value.reason == "NotPinned"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_as_the_kubeadm_manual_computes_it(tmp_path: pathlib.Path):
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    public = subprocess.run(
        ["openssl", "x509", "-pubkey", "-noout", "-in", tmp_path / "ca.pem"], check=True, capture_output=True
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"], input=public, check=True, capture_output=True
    ).stdout
    digest = subprocess.run(["openssl", "dgst", "-sha256", "-hex"], input=der, check=True, capture_output=True).stdout
    assert str(pins.of_certificate(CA.der)) == "sha256:" + digest.decode().split()[-1]
