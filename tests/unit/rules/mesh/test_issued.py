# SPDX-License-Identifier: Apache-2.0
"""Certificates in force, found by whom they name, and forgotten when they end."""

import pytest

from handfast.rules.mesh import issued
from handfast.rules.mesh.holders import Holder
from tests.unit.rules.mesh.issued_cases import HOUR, NOW, entry, index, sha


def test_a_certificate_is_what_its_entry_says():
    row = issued.read(entry())
    assert row.names == ("web.shop.sa.linkerd-identity.linkerd.cluster.local",)
    assert row.holder == Holder(namespace="shop", pod="web-1", uid="u-1", node="n1")
    assert (row.fingerprint, row.serial, row.not_after) == (sha("web 1"), "01", NOW + HOUR)


@pytest.mark.parametrize(
    ("target", "count"),
    [
        (("user", "system:serviceaccount:shop:web"), 2),
        (("user", "system:serviceaccount:shop:we"), 0),
        (("node", "n1"), 3),
        (("pod", "shop/web-1/u-1"), 1),
        (("pod", "shop/web-1"), 2),
        (("pod", "shop/web-1/u-9"), 0),
        (("pod", ""), 0),
        (("serial number", "1"), 1),
        (("key", sha("key web 2")), 1),
    ],
)
def test_it_is_found_by_what_a_revocation_names(target, count):
    known = index(
        entry(),
        entry(number=2, pod="shop/web-1/u-2/n1"),
        entry("db", number=3, pod="shop/db-1/u-3/n1"),
        entry("own", number=4, pod=""),
    )
    assert len(known) == 4
    assert len(known.of([target], NOW)) == count


def test_each_is_there_once_and_the_longest_lived_first():
    known = index(entry(), entry(number=2, lives=2 * HOUR))
    both = known.of([("user", "system:serviceaccount:shop:web"), ("node", "n1")], NOW)
    assert [row.serial for row in both] == ["02", "01"]


def test_what_was_added_twice_or_has_ended_is_not_taken_in():
    known = index(entry())
    assert not known.add(issued.read(entry()), NOW)
    assert not known.add(issued.read(entry(number=2)), NOW + HOUR)
    assert len(known) == 1


def test_what_has_ended_is_forgotten():
    known = index(entry(), entry(number=2, lives=2 * HOUR))
    assert len(known.of([("node", "n1")], NOW + HOUR)) == 1
    known.forget(NOW + HOUR)
    assert len(known) == 1
    assert known.find(sha("web 1")) is None
    assert known.find(sha("web 2"))
    known.forget(NOW + 2 * HOUR)
    assert (len(known), known.of([("node", "n1")], NOW)) == (0, ())
