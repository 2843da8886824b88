# SPDX-License-Identifier: Apache-2.0
"""Who may have a node's name. The names of the table in `rules/nodes/claim.py` are here."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import objects
from handfast.rules.certificates import kubelet
from handfast.rules.nodes import claim, liveness
from tests.unit.rules.csr_cases import KUBELET_SERVING, MINUTE, NOW, SERVING, csr

TOKEN = "system:bootstrap:abcdef"
RECOVERING = {"user": "system:node-recovery:a", "groups": ["system:node-recovery", "system:authenticated"]}


def facts(**more: Any) -> kubelet.Facts:
    return kubelet.read(csr(**{"user": TOKEN, "groups": ["system:bootstrappers"], **more}))


def pulse(ago: float) -> liveness.Pulse:
    return liveness.Pulse(renewed=NOW - MINUTE, seconds=40, at=100.0 - ago, beat=True)


@pytest.mark.parametrize(
    ("more", "concerned"),
    [
        pytest.param({}, True, id="a bootstrap token"),
        pytest.param({"user": "joe", "groups": ["system:masters"]}, True, id="a person"),
        pytest.param({"user": "system:node:b", "groups": ["system:nodes"]}, True, id="another node"),
        pytest.param({"user": "system:node:a", "groups": ["system:nodes"]}, False, id="the node itself"),
        pytest.param(RECOVERING, False, id="the node on its way back"),
        pytest.param({**RECOVERING, "groups": []}, True, id="one of its name"),
        pytest.param({**RECOVERING, "user": "system:node-recovery:b"}, True, id="another on its way back"),
        pytest.param({"cn": "joe"}, False, id="no node's name"),
        pytest.param({"cn": "system:node:"}, False, id="an empty name"),
        pytest.param({"signer": KUBELET_SERVING, "usages": SERVING}, False, id="a serving certificate"),
    ],
)
def test_whom_it_concerns(more: dict[str, Any], concerned: bool):
    assert claim.concerns(facts(**more)) is concerned


def test_a_living_node_keeps_its_name():
    found = claim.check(facts(), pulse(10), NOW, 100.0)
    assert (found.name, found.passed) == ("living node", False)
    assert found.compared == (
        'the Node "a" is alive: its Lease was renewed at 2026-06-01T11:59:00Z; judged again when that has ended, '
        "at 2026-06-01T12:00:31Z or later"
    )


@pytest.mark.parametrize("seen", [pulse(40), pulse(4000), None])
def test_a_dead_node_gives_its_name_up(seen: liveness.Pulse | None):
    found = claim.check(facts(), seen, NOW, 100.0)
    assert (found.passed, found.compared) == (True, 'nobody renews the Lease of the Node "a"')


def test_what_a_node_says_of_itself():
    def said(*conditions: dict[str, Any]) -> str | None:
        return claim.seems_alive({"status": {"conditions": list(conditions)}})

    since = objects.timestamp(NOW)
    assert said({"type": "Ready", "status": "True", "lastTransitionTime": since}) == since
    assert said({"type": "Ready", "status": "True"}) == ""
    assert said({"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "Unknown"}) is None
    assert said() is None
    assert claim.seems_alive(None) is None
