# SPDX-License-Identifier: Apache-2.0
"""Who is let in to a configuration, and who is not. The names of the table in `requester.py` are here."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from handfast.pki import authority, bundles, chains, keys, names, profiles
from handfast.rules import networks, revocation, user_names
from handfast.rules.machine_config import ignition_secrets, requester
from handfast.rules.machines import inventory

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(hours=24)
CA = authority.self_signed_ca(names.Subject(common_name="ca"), keys.generate(), NOW)
SPACE = "openshift-machine-api"


def machine(name: str, role: str = "worker", **more: Any) -> inventory.Machine:
    address = inventory.Address(inventory.INTERNAL_DNS, f"{name}.example")
    facts = {"uid": f"uid-{name}", "addresses": (address,), "role": role, **more}
    return inventory.Machine(group=inventory.OPENSHIFT, namespace=SPACE, name=name, **facts)


def index(*machines: inventory.Machine) -> inventory.Index:
    known = inventory.Index()
    for each in machines:
        known.put(each)
    return known


def entry(text: str, **more: Any) -> ignition_secrets.Entry:
    return ignition_secrets.Entry(**{"digest": ignition_secrets.digest(text), "pool": "worker", "secret": "s", **more})


def of_machine(name: str, **more: Any) -> ignition_secrets.Entry:
    return entry(f"of-{name}", machine=f"{SPACE}/{name}", machine_uid=f"uid-{name}", **more)


def known(*entries: ignition_secrets.Entry, **more: Any) -> requester.Known:
    pools = {"n1": "worker", "m1": "master", "lost": ""}
    facts = {
        "machines": index(machine("w1", annotations={inventory.MAC: "52:54:00:00:00:01", inventory.SERIAL: "S1"})),
        "revocations": revocation.Index(),
        "networks": networks.Networks.parse("none"),
        "pool_of": pools.get,
        **more,
    }
    return requester.Known(secrets={each.digest: each for each in entries}, **facts)


def asking(**more: Any) -> requester.Request:
    return requester.Request(**{"pool": "worker", "address": "192.0.2.7", **more})


def certificate(subject: names.Subject) -> chains.Verified:
    key = keys.generate()
    issued = CA.issue(key.public, subject, names.Sans(), profiles.CLIENT, NOW)
    return chains.verify([issued.der], bundles.TrustBundle.of([CA.certificate.der]), chains.Client(), NOW)


NODE = certificate(user_names.node_subject("n1"))


def judged(request: requester.Request, facts: requester.Known, now: datetime.datetime = NOW) -> tuple[int, str]:
    verdict = requester.judge(request, facts, now)
    return (verdict.status, verdict.reason) if isinstance(verdict, requester.Refusal) else (200, verdict.proof)


def allowed(request: requester.Request, facts: requester.Known) -> requester.Allowed:
    verdict = requester.judge(request, facts, NOW)
    assert isinstance(verdict, requester.Allowed)
    return verdict


def test_nothing_shown_is_401():
    verdict = requester.judge(asking(), known(), NOW)
    assert isinstance(verdict, requester.Refusal)
    assert (verdict.status, verdict.reason) == (401, "NoProof")
    assert verdict.sentence == ("no secret and no certificate was shown, and no networks are named")


def test_a_network_that_the_operator_named_is_a_proof():
    named = known(networks=networks.Networks.parse("192.0.2.0/24"))
    assert allowed(asking(), named).who == "192.0.2.7"
    verdict = requester.judge(asking(address="198.51.100.7"), named, NOW)
    assert isinstance(verdict, requester.Refusal)
    assert verdict.sentence.endswith("the address 198.51.100.7 is not in 192.0.2.0/24")


def test_a_balancer_that_does_not_say_who_asks_proves_nothing():
    named = known(networks=networks.Networks.parse("192.0.2.0/24"))
    verdict = requester.judge(asking(of_balancer=True), named, NOW)
    assert isinstance(verdict, requester.Refusal)
    assert (verdict.status, verdict.reason) == (401, "NoProof")
    assert verdict.sentence.endswith("the balancer 192.0.2.7 does not say whose connection it is")


def test_what_is_shown_and_not_good_is_not_made_good_by_an_address():
    named = known(networks=networks.Networks.parse("192.0.2.0/24"))
    assert judged(asking(secret="wrong"), named) == (401, "UnknownSecret")
    assert judged(asking(refused="of another CA"), named) == (401, "CertificateRefused")


def test_a_secret_that_nobody_has_is_401():
    assert judged(asking(secret="wrong"), known(entry("right"))) == (401, "UnknownSecret")
    assert judged(asking(secret="x" * 513), known(entry("x" * 513))) == (401, "UnknownSecret")


def test_a_digest_is_no_secret():
    kept = entry("right")
    assert judged(asking(secret=kept.digest), known(kept)) == (401, "UnknownSecret")


def test_a_request_does_not_print_its_secret():
    assert "hush" not in repr(asking(secret="hush"))


def test_a_pools_secret_is_for_that_pool_only():
    facts = known(entry("right"))
    assert allowed(asking(secret="right"), facts).who == "pool worker"
    assert judged(asking(secret="right", pool="master"), facts) == (403, "OtherPool")


def test_the_secret_before_ends_after_the_overlap():
    facts = known(entry("new"), entry("before", until=LATER))
    assert judged(asking(secret="before"), facts) == (200, "pool-secret")
    assert judged(asking(secret="before"), facts, LATER) == (401, "SecretEnded")
    assert judged(asking(secret="new"), facts, LATER) == (200, "pool-secret")


def test_a_machines_secret_lets_that_machine_in():
    verdict = allowed(asking(secret="of-w1"), known(of_machine("w1")))
    assert (verdict.proof, verdict.who) == ("machine-secret", f"Machine {SPACE}/w1")
    assert verdict.hostname == "w1.example"


@pytest.mark.parametrize("joined", [{"approved_key": "abc"}, {"node": "w1.example"}])
def test_a_machines_secret_ends_with_its_first_certificate(joined):
    facts = known(of_machine("w1"), machines=index(machine("w1", **joined)))
    assert judged(asking(secret="of-w1"), facts) == (401, "MachineHasJoined")


def test_a_machines_secret_is_for_its_pool_only():
    assert judged(asking(secret="of-w1", pool="master"), known(of_machine("w1"))) == (403, "OtherPool")


@pytest.mark.parametrize("now", [{"uid": "another"}, {"deleting": True}])
def test_a_machine_that_was_made_anew_is_another(now):
    facts = known(of_machine("w1"), machines=index(machine("w1", **now)))
    assert judged(asking(secret="of-w1"), facts) == (401, "NoMachine")


def test_while_machines_are_not_known_no_machine_is_let_in():
    facts = known(of_machine("w1"), entry("right"), machines=None)
    assert judged(asking(secret="of-w1"), facts) == (503, "MachinesUnknown")
    assert judged(asking(secret="right"), facts) == (200, "pool-secret")
    assert judged(asking(secret="right", serial="S1"), facts) == (503, "MachinesUnknown")


def test_a_nodes_certificate_is_for_its_pool_only():
    assert allowed(asking(certificate=NODE), known()).node == "n1"
    assert judged(asking(certificate=NODE, pool="master"), known()) == (403, "OtherPool")
    lost = certificate(user_names.node_subject("lost"))
    assert judged(asking(certificate=lost), known()) == (403, "OtherPool")


def test_a_certificate_counts_before_a_secret():
    facts = known(entry("right"))
    assert judged(asking(certificate=NODE, secret="wrong"), facts) == (200, "node-certificate")


def test_a_node_that_is_gone_is_401():
    gone = certificate(user_names.node_subject("gone"))
    assert judged(asking(certificate=gone), known()) == (401, "NoNode")


@pytest.mark.parametrize(
    "subject",
    [
        names.Subject(common_name="system:node:n1"),
        names.Subject(common_name="kubernetes-admin", organizations=("system:masters",)),
        names.Subject(common_name="system:node:", organizations=("system:nodes",)),
    ],
)
def test_only_nodes_ask_by_certificate(subject):
    assert judged(asking(certificate=certificate(subject)), known()) == (401, "NotANode")


@pytest.mark.parametrize(
    "revoked",
    [
        revocation.Revocation(name="r", node="n1"),
        revocation.Revocation(name="r", serial=revocation.normal_serial(NODE.serial)),
        revocation.Revocation(name="r", key_fingerprint=NODE.key_fingerprint),
    ],
)
def test_a_revoked_node_is_refused(revoked):
    revocations = revocation.Index()
    revocations.add(revoked)
    assert judged(asking(certificate=NODE), known(revocations=revocations)) == (401, "Revoked")


def test_while_revocations_are_not_known_no_certificate_counts():
    assert judged(asking(certificate=NODE), known(revocations=None)) == (503, "RevocationsUnknown")


def test_a_certificate_that_was_refused_is_401():
    assert judged(asking(refused="of another CA"), known()) == (401, "CertificateRefused")


def test_a_certificate_that_has_ended_since_it_was_verified_is_401():
    ended = NODE.valid_until + datetime.timedelta(seconds=1)
    assert judged(asking(certificate=NODE), known(), ended) == (401, "CertificateRefused")


FLEET = index(
    machine("w1", annotations={inventory.MAC: "52:54:00:00:00:01", inventory.SERIAL: "S1"}),
    machine("w2", annotations={inventory.MAC: "52:54:00:00:00:02"}, node="n2"),
    machine("m1", "master", annotations={inventory.MAC: "52:54:00:00:00:03"}),
)


def test_hardware_chooses_a_machine_and_proves_nothing():
    facts = known(entry("right"), machines=FLEET)
    assert judged(asking(mac="52:54:00:00:00:01"), facts) == (401, "NoProof")
    chosen = allowed(asking(secret="right", mac="52:54:00:00:00:01", serial="S1"), facts)
    assert (chosen.hostname, chosen.proof) == ("w1.example", "pool-secret")
    assert allowed(asking(secret="right", serial="S1"), facts).machine == chosen.machine
    assert allowed(asking(secret="right", serial="unknown"), facts).machine is None
    assert allowed(asking(secret="right"), facts).hostname == ""


def test_hardware_of_another_machine_is_403():
    facts = known(of_machine("w1"), entry("right"), machines=FLEET)
    assert judged(asking(secret="of-w1", mac="52:54:00:00:00:02"), facts) == (403, "OtherMachine")
    assert judged(asking(secret="of-w1", mac="52:54:00:00:00:01"), facts) == (200, "machine-secret")
    assert judged(asking(certificate=NODE, mac="52:54:00:00:00:02"), facts) == (403, "OtherMachine")
    assert judged(asking(secret="right", mac="52:54:00:00:00:02", serial="S1"), facts) == (403, "OtherMachine")


def test_hardware_of_another_role_is_403():
    facts = known(entry("right"), entry("masters", pool="master"), machines=FLEET)
    assert judged(asking(secret="right", mac="52:54:00:00:00:03"), facts) == (403, "OtherMachine")
    assert judged(asking(secret="masters", pool="master", serial="S1"), facts) == (403, "OtherMachine")
    assert judged(asking(secret="masters", pool="master", mac="52:54:00:00:00:03"), facts) == (200, "pool-secret")


def test_a_node_is_given_no_hostname():
    facts = known(machines=FLEET)
    assert allowed(asking(certificate=NODE, serial="S1"), facts).hostname == ""


def test_a_name_that_is_no_hostname_is_not_given():
    odd = dataclasses.replace(machine("w1"), addresses=(inventory.Address(inventory.INTERNAL_DNS, "w1\nx"),))
    assert allowed(asking(secret="of-w1"), known(of_machine("w1"), machines=index(odd))).hostname == ""
