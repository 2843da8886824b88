# SPDX-License-Identifier: Apache-2.0
"""Requests of nodes that recover: one at a time, and for their own certificate."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from handfast.api import kinds, signer_names
from handfast.apiserver import identity
from handfast.apiserver.admission import node_recovery, plugin
from handfast.pki import keys, names, requests
from handfast.rules import decision
from tests.unit.apiserver.access.test_node_recovery import USER, World
from tests.unit.pki.making import NOW

CSR = next(row for row in kinds.builtin() if row.kind == "CertificateSigningRequest")
PREFIX = "certificates.k8s.io/certificatesigningrequests/"


@pytest.fixture
def world() -> World:
    return World()


def csr(node: str = "a") -> dict[str, Any]:
    body = requests.build(
        names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",)), names.Sans(), keys.generate()
    )
    spec = {"request": base64.b64encode(body).decode(), "signerName": signer_names.KUBELET_CLIENT}
    return {"metadata": {"name": "new"}, "spec": spec}


def admit(world: World, document: dict[str, Any], user: identity.User = USER, subresource: str = "") -> str:
    write = plugin.Write(plugin.CREATE, CSR, subresource, "", "new", document, None, user, dry_run=False)

    def decide(_: Any) -> decision.Decision:
        raise AssertionError("nobody is asked")

    try:
        node_recovery.ROW.plugin(write, plugin.Context(world.copy, decide, lambda: NOW))
    except plugin.Refusal as refused:
        return refused.why
    return ""


def test_a_recovering_node_may_file_a_request_for_its_own_certificate_only(world: World) -> None:
    assert admit(world, csr()) == ""
    assert admit(world, csr("b")) == "WrongSubject"
    # Of others, and of subresources, nothing is said.
    assert admit(world, csr("b"), identity.User("jane", ("system:authenticated",))) == ""
    assert admit(world, csr("b"), subresource="status") == ""


def test_a_recovering_node_has_one_request_waiting_at_a_time(world: World) -> None:
    # Not its own, and the same one again, which the store refuses.
    world.put(PREFIX, "theirs", spec={"username": "jane", "extra": {"x": [USER.name]}})
    world.put(PREFIX, "new", spec={"username": USER.name})
    assert admit(world, csr()) == ""
    world.put(PREFIX, "done", spec={"username": USER.name}, status={"certificate": "x"})
    assert admit(world, csr()) == ""
    world.put(PREFIX, "waiting", spec={"username": USER.name})
    assert admit(world, csr()) == "RequestWaiting"
