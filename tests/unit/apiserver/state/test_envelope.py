# SPDX-License-Identifier: Apache-2.0
"""What stored values look like, which are sealed, and what is said of those that cannot be read."""

from __future__ import annotations

import zlib
from typing import Any, ClassVar

import msgspec
import pytest

from handfast import errors
from handfast.apiserver.state import envelope
from handfast.pki import seal

KEY = "core/secrets/default/a"
PAYLOAD = b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"k":"dmFsdWU="}}'
SEALED = ("core/secrets/",)


def sealing() -> envelope.Envelopes:
    return envelope.Envelopes(seal.Sealer.from_text(seal.generate_line("k1")), SEALED)


class TestPlain:
    def test_round_trip(self) -> None:
        plain = envelope.Envelopes()
        wrapped = plain.wrap(KEY, "v1", PAYLOAD)
        assert wrapped == b"\x01v1\x00\x00" + PAYLOAD
        assert plain.open(KEY, wrapped) == PAYLOAD

    def test_other_kinds_are_not_sealed(self) -> None:
        assert PAYLOAD in sealing().wrap("core/configmaps/default/a", "v1", PAYLOAD)

    def test_a_value_may_hold_nul(self) -> None:
        assert envelope.Envelopes().open("k", b"\x01v1\x00\x00a\x00b") == b"a\x00b"


class TestSealed:
    def test_round_trip(self) -> None:
        envelopes = sealing()
        wrapped = envelopes.wrap(KEY, "v1", PAYLOAD)
        assert b"dmFsdWU=" not in wrapped
        assert envelopes.open(KEY, wrapped) == PAYLOAD

    def test_does_not_open_under_another_key(self) -> None:
        envelopes = sealing()
        wrapped = envelopes.wrap(KEY, "v1", PAYLOAD)
        with pytest.raises(errors.HandfastError) as caught:
            envelopes.open("core/secrets/default/b", wrapped)
        assert "dmFsdWU=" not in str(caught.value)

    def test_does_not_open_when_changed(self) -> None:
        envelopes = sealing()
        wrapped = bytearray(envelopes.wrap(KEY, "v1", PAYLOAD))
        wrapped[-1] ^= 1
        with pytest.raises(errors.HandfastError) as caught:
            envelopes.open(KEY, bytes(wrapped))
        assert caught.value.reason == "SealBroken"

    def test_without_keys(self) -> None:
        wrapped = sealing().wrap(KEY, "v1", PAYLOAD)
        with pytest.raises(envelope.EnvelopeBroken, match="no sealing keys are configured"):
            envelope.Envelopes().open(KEY, wrapped)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "stored in format nothing, this version reads 1"),
        (b"\x03v1\x00\x00{}", "stored in format 3, this version reads 1, 2"),
        (b"{}", "stored in format 123"),
        (b"\x01", "no complete header"),
        (b"\x01v1", "no complete header"),
        (b"\x01v1\x00", "no complete header"),
    ],
)
def test_a_value_with_a_broken_header_is_not_opened(value: bytes, why: str) -> None:
    with pytest.raises(envelope.EnvelopeBroken, match=why):
        envelope.Envelopes().open(KEY, value)


class TestDocument:
    DOCUMENT: ClassVar[dict[str, Any]] = {
        "data": {"metadata": '"metadata":{'},
        "metadata": {"resourceVersion": "7", "name": "a", "labels": {'"metadata":{': "x"}},
        "kind": "ConfigMap",
        "apiVersion": "v1",
    }

    def test_type_and_metadata_come_first_and_the_version_is_left_out(self) -> None:
        encoded = envelope.encode_document(self.DOCUMENT)
        assert encoded.startswith(b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"')
        assert "resourceVersion" not in msgspec.json.decode(encoded)["metadata"]
        assert self.DOCUMENT["metadata"]["resourceVersion"] == "7"

    def test_the_version_goes_where_it_belongs(self) -> None:
        encoded = envelope.encode_document(self.DOCUMENT)
        served = msgspec.json.decode(envelope.with_resource_version(encoded, envelope.metadata_at(encoded), 12))
        assert served == {**self.DOCUMENT, "metadata": {**self.DOCUMENT["metadata"], "resourceVersion": "12"}}


class Squeezed:
    """A second form, which takes less room."""

    def pack(self, payload: bytes) -> bytes:
        return zlib.compress(payload)

    def unpack(self, packed: bytes) -> bytes:
        return zlib.decompress(packed)


@pytest.mark.parametrize("key", [KEY, "core/configmaps/default/c"])
def test_a_form_that_is_known_is_read_and_written_only_when_it_is_said(key: str) -> None:
    sealer = seal.Sealer.from_text(seal.generate_line("k1"))
    older = envelope.Envelopes(sealer, SEALED)
    newer = envelope.Envelopes(sealer, SEALED, {**envelope.FORMS, 3: Squeezed()})
    payload = b'{"metadata":{"name":"' + b"n" * 400 + b'"}}'
    first = newer.wrap(key, "v1", payload)
    assert (first[0], older.open(key, first)) == (1, payload)
    newer.write_as(3)
    second = newer.wrap(key, "v1", payload)
    assert (second[0], len(second) < len(first)) == (3, True)
    assert [newer.open(key, value) for value in (first, second)] == [payload, payload]
    with pytest.raises(envelope.EnvelopeBroken, match="stored in format 3, this version reads 1, 2"):
        older.open(key, second)
    with pytest.raises(errors.Misuse, match="form: 4 is not known; known are 1-3"):
        newer.write_as(4)
