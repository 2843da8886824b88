# SPDX-License-Identifier: Apache-2.0
"""What a store or a backup holds is looked at as a server would read it."""

from __future__ import annotations

import pytest

from handfast.apiserver.state import envelope, verification
from handfast.pki import seal
from handfast.rules.ledger import segments
from handfast.store import protocol

SEALED = ("core/secrets/",)
SEALER = seal.Sealer.from_text(seal.generate_line("key-1"))
ENVELOPES = envelope.Envelopes(SEALER, SEALED)


def stored(key: str, api_version: str = "v1", wrapped_for: str = "", **metadata: str) -> protocol.Entry:
    """The entry of an object with this metadata, as a server writes it."""
    kind = "Secret" if "secrets" in key else "ConfigMap"
    document = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    value = ENVELOPES.wrap(wrapped_for or key, api_version, envelope.encode_document(document))
    return protocol.Entry(key, value, 1, 1)


MAP = stored("core/configmaps/default/a", namespace="default", name="a")
SECRET = stored("core/secrets/default/s", namespace="default", name="s")
NODE = stored("core/nodes/n", name="n")


def looked_at(*entries: protocol.Entry, sealer: seal.Sealer | None = SEALER) -> verification.Verification:
    looked = verification.Verification(sealer, SEALED)
    looked.look(entries)
    looked.finish()
    return looked


def test_what_a_server_wrote_is_good_and_counted() -> None:
    looked = looked_at(MAP, SECRET, NODE, stored("apps/deployments/x/d", "apps/v1", namespace="x", name="d"))
    assert (looked.wrong, looked.objects, looked.seal_keys, looked.unopened) == (0, 4, {"key-1": 1}, 0)
    assert looked.resources["core/configmaps"] == 1


def test_without_keys_sealed_values_are_counted_and_not_opened() -> None:
    looked = looked_at(MAP, SECRET, sealer=None)
    assert (looked.wrong, looked.unopened, looked.unreadable) == (0, 1, {SECRET.key})


@pytest.mark.parametrize(
    "entry, reason",
    [
        (protocol.Entry("stray", b"", 1, 1), "UnknownKey"),
        (protocol.Entry("core//x", b"", 1, 1), "UnknownKey"),
        (protocol.Entry(MAP.key, b"", 1, 1), "EnvelopeBroken"),
        (protocol.Entry(MAP.key, b"\x03" + MAP.value[1:], 1, 1), "EnvelopeBroken"),
        (protocol.Entry(MAP.key, b"\x01v1", 1, 1), "EnvelopeBroken"),
        (protocol.Entry(MAP.key, b"\x01v1\0\0{}", 1, 1), "DocumentBroken"),
        (protocol.Entry(MAP.key, MAP.value[:-2], 1, 1), "DocumentBroken"),
        (protocol.Entry("core/configmaps/default/b", MAP.value, 1, 1), "WrongPlace"),
        (protocol.Entry("core/configmaps/a", MAP.value, 1, 1), "WrongPlace"),
        (protocol.Entry("apps/configmaps/default/a", MAP.value, 1, 1), "WrongPlace"),
        (protocol.Entry("core/secrets/default/a", MAP.value, 1, 1), "EnvelopeBroken"),
        (protocol.Entry("core/secrets/default/t", SECRET.value, 1, 1), "SealBroken"),
        (protocol.Entry(SECRET.key, SECRET.value.replace(b"key-1", b"key-2"), 1, 1), "UnknownSealKey"),
    ],
)
def test_what_could_not_be_served_is_named(entry: protocol.Entry, reason: str) -> None:
    looked = looked_at(MAP, entry)
    assert [(finding.key, finding.reason) for finding in looked.findings] == [(entry.key, reason)]
    assert looked.findings[0].sentence.startswith(entry.key)
    assert looked.unreadable == {entry.key}


def test_findings_beyond_a_number_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MOST_FINDINGS", 2)
    looked = looked_at(*(protocol.Entry(f"stray{n}", b"", 1, 1) for n in range(5)))
    assert (looked.wrong, len(looked.findings)) == (5, 2)


def test_a_changed_ledger_is_found_where_it_is_looked_for() -> None:
    segment = segments.sealed(segments.extended(segments.following(None), ["{}"]))
    spec = segments.spec_of(segment) | {"hash": "f" * 64}
    name = segments.segment_name(segment.sequence)
    api_version = "handfast.dev/v1alpha1"
    document = {"apiVersion": api_version, "kind": "IssuanceLog", "metadata": {"name": name}, "spec": spec}
    key = f"handfast.dev/issuancelogs/{name}"
    entry = protocol.Entry(key, ENVELOPES.wrap(key, api_version, envelope.encode_document(document)), 1, 1)
    for with_ledger in (False, True):
        looked = verification.Verification(SEALER, SEALED, with_ledger=with_ledger)
        looked.look([entry])
        looked.finish()
        assert bool(looked.wrong) is with_ledger
