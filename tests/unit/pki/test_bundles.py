# SPDX-License-Identifier: Apache-2.0
"""Trust bundles as sets; it does not test chains, but for the rotation."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.pki import bundles, certificates, chains
from tests.unit.pki import making
from tests.unit.pki.making import DAY, NOW

OLD = making.ca("ca", not_before=NOW - 5 * DAY)
NEW = making.ca("ca", not_before=NOW - DAY, not_after=NOW + 9 * DAY)


def mark(made: making.Made) -> str:
    return certificates.fingerprint(made.der)


def test_equal_sets_are_equal_bundles():
    one, two = bundles.TrustBundle.of([OLD.der, NEW.der]), bundles.TrustBundle.of([NEW.der, OLD.der, NEW.der])
    assert one == two
    assert one.to_pem() == two.to_pem() == OLD.pem + NEW.pem
    assert one.digest == two.digest != bundles.TrustBundle.of([OLD.der]).digest
    assert bundles.TrustBundle.from_pem(b"# two\n" + NEW.pem + b"\n" + OLD.pem) == one


def test_an_empty_bundle_has_no_anchor_and_takes_one():
    empty = bundles.TrustBundle.of([])
    assert (empty.anchors, empty.to_pem()) == ((), b"")
    assert empty.add(OLD.der) == bundles.TrustBundle.of([OLD.der])


def test_during_a_rotation_both_cas_are_trusted_and_then_only_the_new_one():
    old_leaf, new_leaf = making.leaf(OLD, making.CLIENT), making.leaf(NEW, making.CLIENT)
    before = bundles.TrustBundle.of([OLD.der])
    during = before.add(NEW.der)
    after = during.retire(mark(OLD))
    for bundle, leaf, good in (
        (before, old_leaf, True),
        (before, new_leaf, False),
        (during, old_leaf, True),
        (during, new_leaf, True),
        (after, old_leaf, False),
        (after, new_leaf, True),
    ):
        if good:
            chains.verify([leaf.der], bundle, chains.Client(), NOW)
        else:
            with pytest.raises(chains.ChainRefused) as caught:
                chains.verify([leaf.der], bundle, chains.Client(), NOW)
            assert caught.value.reason == "UnknownAuthority"
    assert len({before.digest, during.digest, after.digest}) == 3


def test_in_force():
    both = bundles.TrustBundle.of([OLD.der, NEW.der])
    assert [anchor.fingerprint for anchor in both.in_force(NOW)] == [mark(OLD), mark(NEW)]
    assert [anchor.fingerprint for anchor in both.in_force(NOW - 2 * DAY)] == [mark(OLD)]
    assert [anchor.fingerprint for anchor in both.in_force(NOW + 2 * DAY)] == [mark(NEW)]


def test_a_key_is_retired_with_all_its_certificates():
    renewed = making.ca("ca", key=OLD.key, not_before=NOW - DAY, not_after=NOW + 99 * DAY)
    crossed = making.ca("another name", NEW, key=OLD.key)
    every = bundles.TrustBundle.of([OLD.der, renewed.der, crossed.der, NEW.der])
    public = certificates.read(OLD.der).public_key.fingerprint
    for fingerprints in ((mark(OLD),), (mark(renewed),), (public,), (mark(crossed), public)):
        assert {anchor.der for anchor in every.of_key(*fingerprints)} == {OLD.der, renewed.der, crossed.der}
        assert every.retire(*fingerprints) == bundles.TrustBundle.of([NEW.der])
    # Also where the one that names it is not there.
    assert bundles.TrustBundle.of([renewed.der, NEW.der]).retire(mark(OLD), public).ders == (NEW.der,)
    assert every.of_key() == ()


def test_retire_refused():
    bundle = bundles.TrustBundle.of([OLD.der])
    with pytest.raises(errors.Refused) as caught:
        bundle.retire(mark(NEW))
    assert caught.value.reason == "UnknownAnchor"
    for fingerprints in ((mark(OLD),), (certificates.read(OLD.der).public_key.fingerprint,)):
        with pytest.raises(errors.Refused) as caught:
            bundle.retire(*fingerprints)
        assert caught.value.reason == "LastAnchor"


@pytest.mark.parametrize(
    ("der", "words"),
    [
        (making.certificate("x").der, "certificate 2: the certificate is not one of a CA"),
        (b"x", "certificate 2: not a"),
    ],
)
def test_anchor_refused(der: bytes, words: str):
    with pytest.raises(errors.Refused, match=words):
        bundles.TrustBundle.of([OLD.der, der])
