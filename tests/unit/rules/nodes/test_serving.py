# SPDX-License-Identifier: Apache-2.0
"""What nodes serve with: the newest certificate of each node that is there counts, and is late when its renewal is."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import signer_names
from handfast.rules import revocation
from handfast.rules.ledger import entries
from handfast.rules.nodes import overview, serving
from tests.unit.rules.nodes.test_overview import NOW, entry, node, read


def served(name: str = "w1", **more: Any) -> entries.Entry:
    return entry(name, signer=signer_names.KUBELET_SERVING, rule=entries.SERVING, **more)


def stand(*issued: entries.Entry) -> serving.Standing:
    return serving.standing([node(), node("w2")], issued, (), NOW)


@pytest.mark.parametrize(("age", "late"), [(1, 0), (21, 0), (22, 1), (24, 1), (400, 1)])
def test_a_certificate_is_late_once_its_renewal_is(age, late):
    standing = stand(served(age=age))
    assert (standing.count, len(standing.late)) == (1, late)
    assert standing.first is not None


def test_the_newest_counts_and_what_ends_first_is_named_first():
    standing = stand(served(age=23), served("w2", age=25), served(age=22), served(age=30))
    assert [(each.node, each.issued) for each in standing.late] == [
        ("w2", served(age=25).issued_at),
        ("w1", served(age=22).issued_at),
    ]
    assert standing.first == standing.late[0]


@pytest.mark.parametrize(
    "issued",
    [
        served("gone", age=25),
        entry(age=25),
        served(age=25, names=()),
        served(age=25, names=("CN=jane",)),
    ],
)
def test_what_is_of_no_node_that_is_there_or_no_serving_certificate_counts_nothing(issued):
    assert (stand(issued).count, stand(issued).first, [*stand(issued).late]) == (0, None, [])


@pytest.mark.parametrize("field", ["node", "serial", "key_fingerprint"])
def test_a_node_that_is_revoked_needs_nobody(field):
    client = entry()
    named: dict[str, Any] = {"node": "w1", "serial": client.serial, "key_fingerprint": client.key_fingerprint}
    index = revocation.Index()
    known = read(nodes=[node()], issued=[client], serving=[served(age=25)], revocations=index)
    assert overview.standing(known, NOW).serving.count == 1
    index.add(revocation.Revocation(name="r", reason="stolen", **{field: named[field]}))
    assert overview.standing(known, NOW).serving.count == 0


def test_without_a_ledger_nothing_is_known():
    assert not serving.standing([node()], None, (), NOW).whole
