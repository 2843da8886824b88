# SPDX-License-Identifier: Apache-2.0
"""Which first client certificates are approved, and what is said of the others. Row names are the real product's."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, inventory, settings
from tests.unit.rules.csr_cases import CLIENT, csr

# As in the real product's tests.
BASE = datetime.datetime(2020, 11, 19, tzinfo=datetime.UTC)
GROUPS = [*bootstrapper.GROUPS, "system:authenticated"]
USAGES = (*CLIENT, "key encipherment")


def minutes(number: float) -> datetime.timedelta:
    return datetime.timedelta(minutes=number)


def machine(name: str = "panda", *names: str, type_: str = inventory.INTERNAL_DNS, **more: Any) -> inventory.Machine:
    """A Machine with these names, or with its own."""
    rows = tuple(inventory.Address(type_, text) for text in names or (name,))
    facts: dict[str, Any] = {"created": BASE, "addresses": rows, **more}
    return inventory.Machine(**{"group": inventory.OPENSHIFT, "namespace": "fleet", "name": name, **facts})


def index(*machines: inventory.Machine) -> inventory.Index:
    there = inventory.Index()
    for each in machines:
        there.put(each)
    return there


ZOO = (machine("tigers"), machine("panda"))


def judge(
    *machines: inventory.Machine,
    created: datetime.datetime = BASE,
    node_exists: bool = False,
    chosen: settings.Settings = settings.DEFAULT,
    further: tuple[approval.Further, ...] = (),
    **request: Any,
) -> approval.Verdict:
    good = {"cn": "system:node:panda", "usages": USAGES, "user": bootstrapper.USER, "groups": GROUPS}
    facts = kubelet.read(csr(**{**good, **request}))
    return approval.judge(
        facts, created, settings=chosen, machines=index(*machines), node_exists=node_exists, further=further
    )


def reason(verdict: approval.Verdict) -> str:
    """The reason of the first check that failed; `approve` where none did."""
    return "approve" if verdict.failed is None else verdict.failed.reason


@pytest.mark.parametrize(
    ("machines", "more", "expected"),
    [
        pytest.param(ZOO, {}, "approve", id="client good"),
        pytest.param([machine("p", "PANDA")], {}, "approve", id="client good with upper case DNS"),
        pytest.param([machine("p", "panda.")], {}, "approve", id="client good with trailing dot in DNS"),
        pytest.param(ZOO, {"o": ("bamboo", "system:nodes")}, "NotRecognised", id="client extra O"),
        pytest.param(ZOO, {"sans": ("DNS:banana",)}, "NotRecognised", id="client with DNS"),
        pytest.param(ZOO, {"usages": (*USAGES, "server auth")}, "NotRecognised", id="client good but extra usage"),
        pytest.param(
            ZOO,
            {"usages": ("key encipherment", "digital signature", "server auth")},
            "NotRecognised",
            id="client good but wrong usage",
        ),
        pytest.param(
            ZOO, {"usages": ("key encipherment", "client auth")}, "NotRecognised", id="client good but missing usage"
        ),
        pytest.param(ZOO, {"cn": "system:notnode:zebra"}, "NotRecognised", id="client good but wrong CN"),
        pytest.param(
            ZOO, {"user": f"{bootstrapper.USER}-not"}, "NotABootstrapIdentity", id="client good but wrong user"
        ),
        pytest.param(
            ZOO, {"groups": [*GROUPS, "extra-group"]}, "NotABootstrapIdentity", id="client good but wrong user group"
        ),
        pytest.param(ZOO, {"cn": "system:node:"}, "NotRecognised", id="client good but empty name"),
        pytest.param(ZOO, {"node_exists": True}, "NodeExists", id="client good but node exists"),
        pytest.param(
            [machine("p", "panda", type_=inventory.EXTERNAL_DNS)], {}, "NoMachine", id="client good but missing machine"
        ),
        pytest.param([machine(node="other")], {}, "MachineLinked", id="client good but machine has node ref"),
        pytest.param(
            ZOO,
            {"chosen": settings.Settings(disabled=True)},
            "FlowDisabled",
            id="client good but auto approval is disabled",
        ),
        pytest.param(
            [machine(created=BASE + minutes(2))],
            {"created": BASE + minutes(10)},
            "approve",
            id="client good with proper timing",
        ),
        pytest.param(
            [machine(created=BASE + minutes(3))],
            {"created": BASE + minutes(2.85)},
            "approve",
            id="client good with proper timing 2",
        ),
        pytest.param(
            [machine(created=BASE + minutes(3))],
            {"created": BASE + minutes(2)},
            "OutsideJoinWindow",
            id="client good but CSR too early",
        ),
        pytest.param(
            [machine(created=BASE + minutes(3))],
            {"created": BASE + minutes(25 * 60)},
            "OutsideJoinWindow",
            id="client good but CSR too late",
        ),
        # What the real product does not test, and where it errs.
        pytest.param(ZOO, {"groups": [*GROUPS, GROUPS[0]]}, "approve", id="a group twice is the group"),
        pytest.param(ZOO, {"groups": GROUPS[::-1]}, "approve", id="groups in another order"),
        pytest.param(ZOO, {"sans": ("URI:spiffe://a/b",)}, "NotRecognised", id="client with URI"),
        pytest.param(ZOO, {"sans": ("email:a@b.example",)}, "NotRecognised", id="client with e-mail address"),
        pytest.param([machine(deleting=True)], {}, "MachineDeleting", id="a Machine that is being deleted"),
        pytest.param([machine(phase="Failed")], {}, "MachineFailed", id="a Machine that has failed"),
        pytest.param([machine(phase="Provisioned")], {}, "approve", id="a Machine with a phase"),
        pytest.param(
            [machine("p", "panda."), machine("q", "x")], {"cn": "system:node:panda."}, "NotRecognised", id="dot"
        ),
    ],
)
def test_client_rows(machines, more, expected):
    verdict = judge(*machines, **more)
    assert reason(verdict) == expected
    assert bool(verdict.change) is (expected != "approve")


def test_every_check_is_there_in_order():
    names = [check.name for check in judge(*ZOO).checks]
    assert names == [
        kubelet.SIGNER,
        kubelet.ORGANIZATION,
        kubelet.COMMON_NAME,
        kubelet.NO_SANS,
        kubelet.USAGES,
        approval.IS_NEW,
        bootstrapper.CHECK,
        approval.IS_ON,
        approval.NO_NODE,
        approval.HAS_MACHINE,
        approval.IS_UNLINKED,
        approval.IS_WANTED,
        approval.IS_WELL,
        approval.IN_TIME,
        approval.IS_FIRST_KEY,
        approval.IS_AFTER,
    ]
    # Those that cannot be made for want of a Machine are there, too, and say so.
    assert [check.name for check in judge().checks] == names
    assert judge().checks[-1].compared == "not compared: no one Machine has this name"


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(datetime.timedelta(seconds=-10), "OutsideJoinWindow", id="exactly ten seconds before"),
        pytest.param(datetime.timedelta(seconds=-9), "approve", id="nine seconds before"),
        pytest.param(datetime.timedelta(hours=2, seconds=-1), "approve", id="a second before two hours"),
        pytest.param(datetime.timedelta(hours=2), "OutsideJoinWindow", id="exactly two hours"),
    ],
)
def test_the_window_is_open_strictly_between_its_ends(offset, expected):
    verdict = judge(machine(), created=BASE + offset)
    assert reason(verdict) == expected
    check = next(check for check in verdict.checks if check.name == approval.IN_TIME)
    assert "between 2020-11-18T23:59:50Z and 2020-11-19T02:00:00Z" in check.compared
    if verdict.failed is not None:
        assert verdict.failed.waits_for == {approval.MACHINE, approval.SETTINGS}
        early = offset < datetime.timedelta()
        assert ("within 15 minutes" in verdict.change, "raise joinWithin" in verdict.change) == (early, not early)


def test_how_long_the_window_is_open_is_a_setting():
    late = BASE + datetime.timedelta(hours=5)
    assert reason(judge(machine(), created=late)) == "OutsideJoinWindow"
    longer = settings.Settings(join_within=datetime.timedelta(hours=6))
    assert reason(judge(machine(), created=late, chosen=longer)) == "approve"


def test_an_intruder_without_a_machine_gets_nothing():
    verdict = judge(machine("tigers"))
    assert reason(verdict) == "NoMachine"
    assert verdict.machine is None
    assert verdict.failed is not None
    assert verdict.failed.waits_for == {approval.MACHINE}
    assert 'make a Machine with the InternalDNS name "panda"' in verdict.change
    assert "handfast csr approve csr-1" in verdict.change
    assert "nodeclient" not in verdict.change


def test_a_machine_that_joined_is_not_joined_again():
    verdict = judge(machine(node="panda"), node_exists=True)
    assert reason(verdict) == "NodeExists"
    assert 'delete the Node "panda"' in verdict.change
    assert "clear status.nodeRef of Machine fleet/panda" in verdict.change


def test_a_second_key_for_a_known_machine_gets_nothing():
    own = approval.key_of(kubelet.read(csr()))
    assert reason(judge(machine(approved_key=own))) == "approve"
    verdict = judge(machine(approved_key="ab" * 32))
    assert reason(verdict) == "AnotherKeyApproved"
    assert "handfast machine readmit panda" in verdict.change
    assert verdict.failed is not None
    assert own[:16] in verdict.failed.check.compared


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-11-18T23:59:59Z", "approve"),
        ("2020-11-19T00:00:00Z", "BeforeReadmission"),
        ("2020-11-19T00:00:01Z", "BeforeReadmission"),
        ("soon", "BeforeReadmission"),
        ("", "approve"),
    ],
)
def test_what_waited_when_its_machine_was_readmitted_does_not_count(text, expected):
    verdict = judge(machine(annotations={inventory.REQUESTS_AFTER: text}))
    assert reason(verdict) == expected
    if expected != "approve":
        assert "handfast csr approve csr-1" in verdict.change
        assert "kubectl delete csr csr-1" in verdict.change


def test_a_key_that_is_on_the_machine_goes_on_after_a_readmission():
    own = approval.key_of(kubelet.read(csr()))
    marks = {inventory.REQUESTS_AFTER: "2020-11-19T00:00:01Z"}
    assert reason(judge(machine(approved_key=own, annotations=marks))) == "approve"


def test_of_two_machines_of_one_name_neither_counts():
    verdict = judge(machine("one", "panda"), machine("two", "PANDA."))
    assert reason(verdict) == "AmbiguousMachine"
    assert verdict.machine is None
    assert "Machine fleet/one, Machine fleet/two" in verdict.change
    many = judge(*(machine(f"m{number}", "panda") for number in range(8)))
    assert "Machine fleet/m4 and 3 more" in many.change
    # A stale one with a nodeRef does not decide for the fresh one, nor the other way round.
    assert reason(judge(machine("one", "panda", node="panda"), machine("two", "panda"))) == "AmbiguousMachine"


@pytest.mark.parametrize(
    ("near", "said"),
    [
        pytest.param(
            machine("m1", "panda", type_=inventory.EXTERNAL_DNS),
            "Machine fleet/m1 has it as ExternalDNS, which does not count",
            id="another type of address",
        ),
        pytest.param(
            machine("m1", "Panda.", type_=inventory.HOSTNAME), "has it as Hostname, which does not count", id="Hostname"
        ),
        pytest.param(
            machine("panda", "panda-1.example"),
            "Machine fleet/panda is called so, and its InternalDNS name is panda-1.example",
            id="the Machine's own name",
        ),
        pytest.param(
            machine("panda", "10.0.0.1", type_=inventory.INTERNAL_IP),
            "Machine fleet/panda is called so, and it reports no InternalDNS name",
            id="no addresses yet",
        ),
        pytest.param(
            machine("m1", "panda.example", "panda.test"),
            "Machine fleet/m1 has the InternalDNS name panda.example",
            id="a full name",
        ),
    ],
)
def test_near_misses_are_named_and_do_not_count(near, said):
    verdict = judge(near)
    assert reason(verdict) == "NoMachine"
    assert verdict.failed is not None
    assert said in verdict.failed.check.compared


def test_a_short_name_is_near_a_full_one():
    verdict = judge(machine("m1", "panda"), cn="system:node:panda.example")
    assert verdict.failed is not None
    assert "Machine fleet/m1 has the InternalDNS name panda" in verdict.failed.check.compared


@pytest.mark.parametrize("name", ["localhost", "localhost.localdomain", "localhost4"])
def test_localhost_is_nobodys_name(name):
    verdict = judge(machine("m1", name), cn=f"system:node:{name}")
    assert (reason(verdict), verdict.machine) == ("LocalhostName", None)
    assert verdict.failed is not None
    assert verdict.failed.waits_for == approval.NOTHING
    assert "host name" in verdict.change


def test_a_renewal_is_not_judged_by_the_inventory():
    verdict = judge(*ZOO, user="system:node:panda", groups=["system:nodes", "system:authenticated"])
    assert reason(verdict) == "Renewal"


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (GROUPS[1:], f"{GROUPS[0]} is missing"),
        ([*GROUPS, "system:masters"], "system:masters is one too many"),
    ],
)
def test_a_group_added_or_missing_is_named(groups, said):
    verdict = judge(*ZOO, groups=groups)
    assert reason(verdict) == "NotABootstrapIdentity"
    assert verdict.failed is not None
    assert said in verdict.failed.check.compared
    assert verdict.failed.waits_for == {approval.SETTINGS}


def test_the_operators_identities_count():
    other = settings.Settings(identities=(bootstrapper.Identity("joiner", frozenset({"fleet"})),))
    mine: dict[str, Any] = {"user": "joiner", "groups": ["fleet", "system:authenticated"]}
    assert reason(judge(*ZOO, chosen=other, **mine)) == "approve"
    assert reason(judge(*ZOO, chosen=other)) == "NotABootstrapIdentity"


def test_further_checks_stand_between_the_key_and_the_approval():
    asked: list[str] = []

    def fails(facts: kubelet.Facts, matched: inventory.Machine) -> approval.Step:
        asked.append(f"{facts.node_name} {matched.title}")
        return approval.Step(kubelet.Check("proof", False, "none"), "NoProof", frozenset({approval.CLOCK}), "wait")

    verdict = judge(*ZOO, further=(fails,))
    assert (reason(verdict), verdict.change, verdict.checks[-1].name) == ("NoProof", "wait", "proof")
    assert asked == ["panda Machine fleet/panda"]
    # Without a Machine there is nothing to prove.
    assert reason(judge(further=(fails,))) == "NoMachine"
    assert len(asked) == 1


def test_reasons_are_told_apart_by_what_can_turn_them():
    waits = {
        "NodeExists": {approval.NODE},
        "FlowDisabled": {approval.SETTINGS},
        "MachineDeleting": {approval.MACHINE},
        "NotRecognised": set(),
    }
    verdicts = [
        judge(*ZOO, node_exists=True),
        judge(*ZOO, chosen=settings.Settings(disabled=True)),
        judge(machine(deleting=True)),
        judge(*ZOO, o=()),
    ]
    assert {reason(verdict): set(verdict.failed.waits_for) for verdict in verdicts if verdict.failed} == waits


def test_a_later_look_adds_its_check():
    step = approval.Step(
        kubelet.Check("living node", False, "alive"), "NodeIsAlive", frozenset({approval.CLOCK}), "wait"
    )
    verdict = judge(*ZOO).with_step(step, 40.0)
    assert (reason(verdict), verdict.again, verdict.machine) == ("NodeIsAlive", 40.0, ZOO[1])


def test_many_near_misses_are_not_all_named():
    verdict = judge(*(machine(f"m{number}", f"panda.z{number}") for number in range(50)))
    assert verdict.failed is not None
    assert " and others has the InternalDNS name panda.z" in verdict.failed.check.compared
