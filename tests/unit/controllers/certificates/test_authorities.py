# SPDX-License-Identifier: Apache-2.0
"""Pairs of files as CAs: what is refused at the start, and what is taken up or passed over later."""

from __future__ import annotations

import datetime
import pathlib

import pytest

from handfast import errors
from handfast.controllers.certificates import authorities
from handfast.pki import authority, keys, names, profiles
from tests.world.clock import MovableClock

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def made(name: str) -> tuple[authority.Authority, keys.PrivateKey]:
    key = keys.generate(keys.Kind.P256)
    return authority.self_signed_ca(names.Subject(common_name=name), key, NOW), key


class Place:
    def __init__(self, directory: pathlib.Path, *, bundle: bool = False) -> None:
        self.files = authorities.Files(certificate=directory / "ca.crt", key=directory / "ca.key", bundle=bundle)

    def write(self, certificate: bytes, key: bytes = b"", mode: int = 0o600) -> None:
        self.files.certificate.write_bytes(certificate)
        if key:
            self.files.key.write_bytes(key)
            self.files.key.chmod(mode)

    def load(self) -> authorities.SigningAuthorities:
        return authorities.SigningAuthorities({"a.b/c": self.files, "a.b/d": self.files}, MovableClock())


def name(found: authorities.SigningAuthorities) -> str:
    return found.current("a.b/c").certificate.subject.common_name


def test_signers_with_the_same_files_share_them(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    ca, key = made("one")
    place.write(ca.pem, key.to_pem())
    found = place.load()
    assert found.current("a.b/c") is found.current("a.b/d")
    assert ("a.b/c" in found, "a.b/d" in found, "a.b/x" in found) == (True, True, False)


@pytest.mark.parametrize("bundle", [False, True])
def test_several_certificates(tmp_path: pathlib.Path, bundle: bool) -> None:
    place = Place(tmp_path, bundle=bundle)
    (one, _), (two, key) = made("one"), made("two")
    place.write(one.pem + two.pem, key.to_pem())
    if bundle:
        assert name(place.load()) == "two"
        return
    with pytest.raises(errors.Refused, match=r"ca\.crt and .*ca\.key: ") as caught:
        place.load()
    assert (caught.value.reason, "exactly one certificate" in (caught.value.hint or "")) == (
        "BadSigningAuthority",
        True,
    )


def test_refused_at_the_start(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    ca, key = made("one")
    with pytest.raises(errors.HandfastError, match=r"ca\.key"):
        place.load()
    place.write(ca.pem, made("two")[1].to_pem())
    with pytest.raises(errors.Refused, match="do not belong together"):
        place.load()
    place.write(ca.pem, b"-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n")
    with pytest.raises(errors.Refused, match=r"ca\.key: ") as caught:
        place.load()
    assert "secret" not in caught.value.message
    place.write(ca.pem, key.to_pem(), mode=0o644)
    with pytest.raises(errors.Refused) as caught:
        place.load()
    assert caught.value.reason == "FileNotPrivate"
    leaf = ca.issue(key.public, names.Subject(common_name="leaf"), names.Sans(), profiles.CLIENT, NOW)
    place.write(leaf.pem, key.to_pem(), mode=0o600)
    with pytest.raises(errors.Refused, match="not one of a CA"):
        place.load()


def test_another_pair_is_taken_up_when_it_fits(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    ca, key = made("one")
    place.write(ca.pem, key.to_pem())
    found = place.load()
    first = found.current("a.b/c")
    assert found.current("a.b/c") is first
    other, other_key = made("two")
    place.write(other.pem)
    # Between the two writes they do not fit, and the last good pair signs on.
    assert found.current("a.b/c") is first
    place.files.key.write_bytes(other_key.to_pem())
    assert name(found) == "two"
    place.files.key.unlink()
    assert name(found) == "two"
    place.write(ca.pem, key.to_pem())
    assert name(found) == "one"
