# SPDX-License-Identifier: Apache-2.0
"""The keys of a data directory go into a backup and come back, and nothing else does."""

from __future__ import annotations

import pathlib

import pytest

from handfast import errors
from handfast.datadir import kept_keys, layout

KEYS = {"encryption.key": b"seal", "pki/ca.crt": b"ca", "pki/ca-rotation/new.key": b"next"}


@pytest.fixture
def place(tmp_path: pathlib.Path) -> layout.Layout:
    place = layout.Layout.at(tmp_path / "d")
    place.root.mkdir(mode=0o700)
    return place


def test_what_was_taken_is_put_back_and_is_private(place: layout.Layout, tmp_path: pathlib.Path) -> None:
    assert kept_keys.put_back(place, KEYS) == list(KEYS)
    (place.root / "store.db").write_bytes(b"x")
    (place.pki / ".ca.crt.1.tmp").write_bytes(b"unfinished")
    assert kept_keys.taken(place) == KEYS
    assert {(place.root / name).stat().st_mode & 0o777 for name in KEYS} == {0o600}
    # What is there already is not written again.
    assert kept_keys.put_back(place, KEYS) == []
    assert kept_keys.taken(layout.Layout.at(tmp_path / "none")) == {}


def test_another_key_is_never_replaced(place: layout.Layout) -> None:
    place.encryption_key.write_bytes(b"mine")
    with pytest.raises(errors.Refused, match="another one is there than in the backup") as refusal:
        kept_keys.put_back(place, {"pki/ca.crt": b"ca", "encryption.key": b"theirs"})
    assert refusal.value.reason == "KeyExists"
    assert not place.pki.exists()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "pki/../../x", "pki/.hidden", "pki/", "store.db", "pki/a/b/c", "pki//x", "pki/a\n"]
)
def test_only_plain_names_are_put_back(place: layout.Layout, name: str) -> None:
    with pytest.raises(errors.Refused, match="which no data directory has"):
        kept_keys.put_back(place, {name: b"x"})
    assert list(place.root.iterdir()) == []
