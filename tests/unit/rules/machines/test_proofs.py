# SPDX-License-Identifier: Apache-2.0
"""The proofs that an operator can ask for: from where a request came, and with what it was made."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import user_names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import (
    approval,
    bootstrapper,
    inventory,
    machine_tokens,
    proofs,
    readmission,
    source_address,
)
from tests.unit.rules.csr_cases import csr

ADDRESSES = (inventory.Address("InternalIP", "10.0.0.5"), inventory.Address("ExternalIP", "2001:DB8:0::5"))
MACHINE = inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="w1", uid="u-1", addresses=ADDRESSES)
OTHER = inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="w2", uid="u-2", addresses=ADDRESSES)
TOKEN = machine_tokens.Credential("node-bootstrapper-w1", "fleet/w1", "u-1", "JTI=own")


def facts(**extra: list[str]) -> kubelet.Facts:
    return kubelet.read(csr(user=bootstrapper.USER, extra=extra))


@pytest.mark.parametrize(
    ("stamp", "sharing", "reason"),
    [
        pytest.param(["10.0.0.5"], [MACHINE], "", id="its InternalIP"),
        pytest.param(["2001:db8::5"], [MACHINE], "", id="its ExternalIP, in another form"),
        pytest.param(["10.0.0.6"], [], proofs.WRONG_ADDRESS, id="another address"),
        pytest.param(["10.0.0.5"], [MACHINE, OTHER], proofs.SHARED_ADDRESS, id="an address of two Machines"),
        pytest.param([], [], proofs.NO_ADDRESS, id="another API server"),
        pytest.param(["10.0.0.5", "10.0.0.6"], [], proofs.NO_ADDRESS, id="two addresses"),
    ],
)
def test_an_address_is_that_machines_own(stamp: list[str], sharing: list[inventory.Machine], reason: str):
    step = proofs.came_from(facts(**({source_address.KEY: stamp} if stamp else {})), MACHINE, sharing)
    assert (step.check.name, step.check.passed, step.reason) == (proofs.FROM, not reason, reason)
    assert bool(step.change) == bool(reason)


def test_an_unstamped_request_says_why_it_may_be_so():
    step = proofs.came_from(facts(), MACHINE, [])
    assert "its API server is not Handfast's" in step.check.compared


def test_a_machine_without_addresses_is_nowhere():
    bare = inventory.Machine(group=inventory.OPENSHIFT, namespace="fleet", name="w1")
    step = proofs.came_from(facts(**{source_address.KEY: ["10.0.0.5"]}), bare, [])
    assert step.reason == proofs.WRONG_ADDRESS


def but(**change: Any) -> machine_tokens.Credential:
    fields = {"secret": TOKEN.secret, "machine": TOKEN.machine, "machine_uid": TOKEN.machine_uid, "id": TOKEN.id}
    return machine_tokens.Credential(**{**fields, **change})


@pytest.mark.parametrize(
    ("shown", "credential", "reason"),
    [
        pytest.param(["JTI=own"], TOKEN, "", id="its own"),
        pytest.param([], TOKEN, proofs.SHARED_CREDENTIAL, id="the shared token"),
        pytest.param(["X509SHA256=ab"], TOKEN, proofs.SHARED_CREDENTIAL, id="a certificate"),
        pytest.param(["JTI=own", "JTI=more"], TOKEN, proofs.SHARED_CREDENTIAL, id="two ids"),
        pytest.param(["JTI=own"], None, proofs.NO_CREDENTIAL, id="revoked since"),
        pytest.param(["JTI=own"], but(machine_uid="u-0"), proofs.OTHER_CREDENTIAL, id="of a Machine made anew"),
        pytest.param(["JTI=others"], TOKEN, proofs.OTHER_CREDENTIAL, id="another machine's"),
        pytest.param(["JTI="], but(id=""), proofs.OTHER_CREDENTIAL, id="not issued yet"),
    ],
)
def test_a_credential_is_that_machines_own(shown: list[str], credential: machine_tokens.Credential | None, reason: str):
    step = proofs.came_with(facts(**({user_names.CREDENTIAL_ID: shown} if shown else {})), MACHINE, credential)
    assert (step.check.name, step.check.passed, step.reason) == (proofs.WITH, not reason, reason)
    assert bool(step.change) == bool(reason)


def test_a_credential_that_may_not_be_read_proves_nothing():
    step = proofs.unreadable(facts(), MACHINE, "secrets is forbidden")
    assert (step.check.passed, step.reason) == (False, proofs.FORBIDDEN)
    assert "--print-manifest" in step.change


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        pytest.param((), "Machine fleet/w1", id="by the shared credential alone"),
        pytest.param((proofs.FROM,), "Machine fleet/w1, proven by its source address", id="one proof"),
        pytest.param(
            (proofs.FROM, proofs.WITH),
            "Machine fleet/w1, proven by its source address and its own credential",
            id="both proofs",
        ),
        pytest.param(
            (readmission.KNOWN, proofs.WITH), "Machine fleet/w1, readmitted by its own credential", id="come back"
        ),
    ],
)
def test_what_proved_a_machine_is_recorded(names: tuple[str, ...], sentence: str):
    steps = tuple(approval.Step(kubelet.Check(name, True, "")) for name in names)
    assert proofs.recorded(approval.Verdict(steps, MACHINE), MACHINE) == sentence
