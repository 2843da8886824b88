# SPDX-License-Identifier: Apache-2.0
"""Sealed values open where they were put, and nowhere else."""

from __future__ import annotations

import base64
import copy
import pickle

import pytest
from cryptography.hazmat.primitives.ciphers import aead

from handfast import errors
from handfast.pki import seal

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
SEALER = seal.Sealer({"old": OLD, "new": NEW}, "new")
PLACE = b"/secrets/default/a"


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_round_trip():
    key_id, sealed = SEALER.seal(b"value", PLACE)
    assert key_id == "new"
    assert SEALER.unseal(key_id, sealed, PLACE) == b"value"
    assert len(sealed) == 12 + len(b"value") + 16


def test_the_format_is_plain_aes_gcm():
    _, sealed = SEALER.seal(b"value", PLACE)
    context = b"handfast seal v1\x00new\x00" + PLACE
    assert aead.AESGCM(NEW).decrypt(sealed[:12], sealed[12:], context) == b"value"


def test_nothing_shows():
    first, second = SEALER.seal(b"value" * 9, PLACE)[1], SEALER.seal(b"value" * 9, PLACE)[1]
    assert first != second
    assert first[:12] != second[:12]
    assert b"value" not in first


def test_old_keys_still_open():
    key_id, sealed = seal.Sealer({"old": OLD}, "old").seal(b"value", PLACE)
    assert SEALER.unseal(key_id, sealed, PLACE) == b"value"


def test_every_bit_counts():
    key_id, sealed = SEALER.seal(b"v", PLACE)
    for bit in range(len(sealed) * 8):
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.Refused) as caught:
            SEALER.unseal(key_id, bytes(flipped), PLACE)
        assert caught.value.reason == "SealBroken"


@pytest.mark.parametrize("length", [0, 12, 27])
def test_cut_short(length: int):
    key_id, sealed = SEALER.seal(b"value", PLACE)
    with pytest.raises(errors.Refused) as caught:
        SEALER.unseal(key_id, sealed[:length], PLACE)
    assert caught.value.reason == "SealBroken"


def test_bound_to_its_place():
    key_id, sealed = SEALER.seal(b"value", PLACE)
    with pytest.raises(errors.Refused) as caught:
        SEALER.unseal(key_id, sealed, b"/secrets/default/b")
    assert caught.value.reason == "SealBroken"


def test_bound_to_its_key_id():
    # The same key under another id, as a careless rename would have it.
    _, sealed = SEALER.seal(b"value", PLACE)
    with pytest.raises(errors.Refused) as caught:
        seal.Sealer({"renamed": NEW}, "renamed").unseal("renamed", sealed, PLACE)
    assert caught.value.reason == "SealBroken"


def test_unknown_key():
    with pytest.raises(errors.Refused) as caught:
        SEALER.unseal("gone", b"x" * 40, PLACE)
    assert caught.value.reason == "UnknownSealKey"
    assert caught.value.hint


def test_key_file():
    text = seal.generate_line("k2") + seal.generate_line("k1")
    sealer = seal.Sealer.from_text(text)
    assert sealer.active == "k2"
    assert repr(sealer) == "<Sealer active=k2 keys=['k1', 'k2']>"
    assert seal.parse_keys(text.removesuffix("\n")) == seal.parse_keys(text)
    assert seal.generate_line("k1") != seal.generate_line("k1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "line 1: expected id:base64", id="empty"),
        pytest.param("\n", "line 1: expected id:base64", id="empty line"),
        pytest.param(f"a:{encoded(OLD)}\n\n", "line 2: expected id:base64", id="empty line at the end"),
        pytest.param(f"# comment\na:{encoded(OLD)}\n", "line 1: expected id:base64", id="comment"),
        pytest.param(encoded(OLD), "line 1: expected id:base64", id="key without id"),
        pytest.param(f":{encoded(OLD)}", "line 1: a key id is", id="empty id"),
        pytest.param(f"A:{encoded(OLD)}", "line 1: a key id is", id="upper case"),
        pytest.param(f"a-:{encoded(OLD)}", "line 1: a key id is", id="dash at the end"),
        pytest.param(f"{'a' * 33}:{encoded(OLD)}", "line 1: a key id is", id="long id"),
        pytest.param(f"a:{encoded(OLD)}\na:{encoded(NEW)}", "line 2: key id a occurs twice", id="id twice"),
        pytest.param(f"a:{encoded(OLD)}\nb:{encoded(OLD)}", "under two ids", id="key twice"),
        pytest.param("a:!", "line 1: the key is not base64", id="not base64"),
        pytest.param("a:ü", "line 1: the key is not base64", id="not ASCII"),
        pytest.param(f"a:{encoded(OLD)} ", "line 1: the key is not base64", id="blank"),
        pytest.param(f"a:{encoded(OLD)[:-2]}9=", "not canonical", id="stray bits"),
        pytest.param(f"a:{encoded(OLD[:31])}", "the key has 31 bytes; it must have 32", id="short key"),
        pytest.param("a:", "the key has 0 bytes", id="no key"),
    ],
)
def test_key_file_refused(text: str, words: str):
    with pytest.raises(errors.Refused) as caught:
        seal.Sealer.from_text(text)
    assert words in caught.value.message
    assert caught.value.reason == "BadSealKey"
    assert encoded(OLD)[:8] not in caught.value.message


@pytest.mark.parametrize(
    ("given", "active"),
    [({"a": OLD}, "b"), ({}, "a"), ({"a": OLD[:16]}, "a"), ({"A": OLD}, "A"), ({"a b": OLD}, "a b")],
)
def test_sealer_refused(given: dict[str, bytes], active: str):
    with pytest.raises(errors.Refused) as caught:
        seal.Sealer(given, active)
    assert caught.value.reason == "BadSealKey"


@pytest.mark.parametrize(("given", "there"), [({}, "none"), ({"b": OLD, "a": NEW}, "a, b")])
def test_the_keys_there_are_told(given: dict[str, bytes], there: str):
    with pytest.raises(errors.Refused) as caught:
        seal.Sealer(given, "other")
    assert caught.value.message == f"the active seal key 'other' is not among the keys: {there}"


def test_new_id_refused():
    with pytest.raises(errors.Refused, match="a key id is") as caught:
        seal.generate_line("Not an id")
    assert caught.value.reason == "BadSealKey"


def test_keys_never_print():
    assert repr(SEALER) == "<Sealer active=new keys=['new', 'old']>"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(errors.Misuse):
            leak(SEALER)
