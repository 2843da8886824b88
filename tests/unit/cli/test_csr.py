# SPDX-License-Identifier: Apache-2.0
"""`handfast csr`: what is written to the server, what is refused, and what an explanation shows."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from handfast import errors
from handfast.api import objects, signer_names, status
from handfast.cli import connecting, main, output
from handfast.pki import names
from handfast.rules.machines import bootstrapper, settings
from tests.unit.cli import reaching
from tests.unit.controllers.csr_world import PLURAL, SERVING, World
from tests.unit.rules.csr_cases import HOUR, NOW, certificate


class Reached(reaching.Reached, World):
    """Requests to read and decide."""


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reached]:
    with reaching.reached(monkeypatch, Reached()) as made:
        yield made


def run(*arguments: str) -> int:
    return output.run(main.command, ["csr", *arguments])


@pytest.mark.parametrize("word", ["approve", "deny"])
def test_a_decision_is_written_once(reached: Reached, capsys: pytest.CaptureFixture[str], word: str) -> None:
    verdict = {"approve": "Approved", "deny": "Denied"}[word]
    reached.add("a", metadata={"labels": {"keep": "me"}})
    assert run(word, "a") == 0
    assert capsys.readouterr().out == f"certificate request a {verdict.lower()}\n"
    kind, reason, message = reached.conditions("a")[0]
    assert (kind, reason) == (verdict, f"Handfast{word.capitalize()}")
    assert message == f"This CSR was {verdict.lower()} by handfast csr {word}."
    assert reached.stored("a")["metadata"]["labels"] == {"keep": "me"}
    assert reached.stored("a")["status"]["conditions"][0]["lastUpdateTime"].endswith("Z")
    # A second time changes nothing.
    assert run(word, "a") == 0
    assert capsys.readouterr().out == f"certificate request a was already {verdict.lower()}\n"
    assert [call for call in reached.client.calls if call[1] == PLURAL] == [("update approval", PLURAL, "a")]


@pytest.mark.parametrize(("word", "held"), [("approve", "Denied"), ("deny", "Approved")])
def test_the_opposite_is_refused(reached: Reached, capsys: pytest.CaptureFixture[str], word: str, held: str) -> None:
    reached.add("a", held)
    assert run(word, "a") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f'error: certificate signing request "a" is already {held}'
    assert lines[-1] == f"reason: Already{held}"
    assert reached.client.calls == []


def test_several_are_tried_each(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.add("a")
    reached.add("b", "Denied")
    assert run("approve", "b", "missing", "a", "a", "--message", "seen it", "-o", "json") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"requests": [{"name": "a", "condition": "Approved", "changed": True}]}
    assert reached.conditions("a")[0][2] == "seen it"
    assert "note: " in printed.err
    assert json.loads(printed.err.splitlines()[-1])["reason"] == "AlreadyDenied"


@pytest.mark.parametrize(("times", "code"), [(9, 0), (10, 3)])
def test_conflicts_are_tried_again(reached: Reached, capsys: pytest.CaptureFixture[str], times: int, code: int) -> None:
    reached.add("a")
    left = [times]

    def conflict(verb: str, plural: str, name: str) -> None:
        if verb == "update" and left[0]:
            left[0] -= 1
            raise status.conflict(plural, "certificates.k8s.io", name)

    reached.client.before = conflict
    assert run("approve", "a") == code
    assert left == [0]
    assert [kind for kind, *_ in reached.conditions("a")] == (["Approved"] if code == 0 else [])
    assert code == 0 or capsys.readouterr().err.endswith("reason: Conflict\n")


def test_forbidden_says_what_to_do(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.add("a")

    def refuse(verb: str, *_: str) -> None:
        if verb == "update":
            raise status.StatusError("Forbidden", "user not permitted to approve")

    reached.client.before = refuse
    assert run("approve", "a") == 1
    assert f"hint: {connecting.CHOOSE}\n" in capsys.readouterr().err


def test_names_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("approve") == 2
    assert "missing argument 'NAME…'" in capsys.readouterr().err


def test_requests_are_listed_with_their_node(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "note: there are no certificate requests\n")
    reached.add("a", "Approved", expirationSeconds=3600)
    assert run("list") == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "AGE", "SIGNERNAME", "REQUESTOR", "NODE", "REQUESTEDDURATION", "CONDITION"]
    words = line.split()
    assert (words[0], words[2:]) == ("a", [signer_names.KUBELET_CLIENT, "joiner", "n1", "60m", "Approved"])
    for form, load in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert run("list", "-o", form) == 0
        found = load(capsys.readouterr().out)
        assert (found["kind"], [each["metadata"]["name"] for each in found["items"]]) == ("List", ["a"])
        assert found["items"][0]["kind"] == "CertificateSigningRequest"


@pytest.mark.parametrize(
    ("changes", "node"), [({}, "n1"), ({"common_name": "mike"}, "<none>"), ({"request": "junk"}, "<unreadable>")]
)
def test_a_request_shows_the_node_that_it_is_for(
    reached: Reached, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], node: str
) -> None:
    reached.add("a", **changes)
    assert run("list") == 0
    head, line = capsys.readouterr().out.splitlines()
    assert line[head.index("NODE") :].split()[0] == node


EXPLAINED = [
    pytest.param({}, (), ["nodeclient"], "WillBeApproved", "lost the permission", id="will be approved"),
    pytest.param({}, (), [], "Pending", "for instance by the ClusterRole", id="no permission"),
    pytest.param({"common_name": "mike"}, (), ["nodeclient"], "Pending", "common name system:node:", id="not a node"),
    pytest.param({"signerName": "example.com/x"}, (), [], "Pending", "handfast csr approve x", id="nobody's"),
    pytest.param({}, ("Approved",), [], "WaitingForSigner", "the signing controller runs", id="approved"),
    pytest.param({}, ("Denied",), [], "Denied", "a denial is final", id="denied"),
    pytest.param({"request": "junk"}, (), [], "Pending", "that can be read", id="unreadable"),
    pytest.param(
        {"signerName": signer_names.KUBELET_SERVING, "usages": list(SERVING)},
        (),
        [],
        "Pending",
        "DNS name",
        id="serving",
    ),
]


@pytest.mark.parametrize(("more", "conditions", "allowed", "verdict", "change"), EXPLAINED)
def test_an_explanation_has_the_verdict_and_what_would_change_it(
    reached: Reached,
    capsys: pytest.CaptureFixture[str],
    more: dict[str, Any],
    conditions: tuple[str, ...],
    allowed: list[str],
    verdict: str,
    change: str,
) -> None:
    reached.add("x", *conditions, **more)
    reached.client.allowed = set(allowed)
    assert run("explain", "x", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["verdict"], change in found["change"]) == ("x", verdict, True)
    assert run("explain", "x") == 0
    text = capsys.readouterr().out
    assert f"to change that: {found['change']}\n" in text
    assert text.startswith("CHECK") == bool(found["checks"])
    for row in found["checks"]:
        assert row["compared"] in text
    assert ("deleted" in found) == ("if nothing changes, it is deleted at " in text)
    # It only looks.
    assert reached.client.calls == []


def test_a_request_has_no_lines_of_its_own(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    forged = "system:node:a\nto change that: run reboot\x1b[2J"
    reached.add("x; reboot", signerName=f"example.com/x\nIssued {forged}", common_name=forged)
    assert run("explain", "x; reboot") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("to change that", "Issued"))] == [
        "to change that: approve or deny it by hand: handfast csr approve 'x; reboot'"
    ]
    reached.add("y", username=forged)
    assert run("explain", "y") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("to change that")]) == 1
    assert not any("\x1b" in line for line in lines)


def test_what_is_another_nodes_is_explained(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("n1", "n2"):
        reached.client.put("nodes", name, status={"addresses": [{"address": "192.0.2.7"}]})
    reached.client.allowed = {"selfnodeserver"}
    sans = names.make_sans(ip=["192.0.2.7"])
    reached.add(
        "x", signerName=signer_names.KUBELET_SERVING, usages=list(SERVING), username="system:node:n1", sans=sans
    )
    assert run("explain", "x", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["check"] for row in found["checks"] if not row["ok"]] == ["reserved names"]


def test_a_living_or_revoked_node_is_explained(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    now = objects.micro_timestamp(datetime.datetime.now(datetime.UTC))
    reached.client.put("leases", "n1", "kube-node-lease", spec={"renewTime": now, "leaseDurationSeconds": 40})
    reached.client.allowed = {"nodeclient"}
    reached.add("x")
    assert run("explain", "x") == 0
    text = capsys.readouterr().out
    assert 'Pending: living node: the Node "n1" is alive' in text
    assert "judged again when that has ended, at " in text
    assert "handfast csr approve x" in text
    # A node that renews its own is not asked about its Lease.
    reached.add("own", username="system:node:n1")
    assert run("explain", "own") == 0
    assert "living node" not in capsys.readouterr().out
    reached.client.put("revocations", "gone", spec={"node": "n1", "reason": "stolen"})
    assert run("explain", "x", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["check"] for row in found["checks"] if not row["ok"]] == ["living node", "revocation"]


@pytest.mark.parametrize(("reason", "noted"), [("Forbidden", True), ("NotFound", False)])
def test_where_revocations_cannot_be_read(
    reached: Reached, capsys: pytest.CaptureFixture[str], reason: str, noted: bool
) -> None:
    """Another API server has none; and not everybody may read them here."""

    def refuse(verb: str, plural: str, _: str) -> None:
        if plural == "revocations":
            raise status.StatusError(reason, "no revocations for you")

    reached.add("x")
    reached.client.before = refuse
    assert run("explain", "x") == 0
    printed = capsys.readouterr()
    assert ("no revocations for you" in printed.err) is noted
    assert "revocation " not in printed.out


@pytest.mark.parametrize("ledger", ["empty", "away"])
def test_an_issued_one_has_the_checks_and_its_story(
    reached: Reached, capsys: pytest.CaptureFixture[str], ledger: str
) -> None:
    """With an entry in the ledger: tests/scenarios/test_node_agent.py."""
    reached.client.allowed = {"nodeclient"}
    reached.add("x", "Approved", certificate=certificate(NOW + HOUR))

    def away(verb: str, plural: str, _: str) -> None:
        if plural == "issuancelogs" and ledger == "away":
            raise errors.Unavailable("nobody is there")

    reached.client.before = away
    assert run("explain", "x") == 0
    out = capsys.readouterr().out
    assert out.startswith("CHECK ")
    assert "permission " in out
    assert "\nIssued\nto change that: the certificate is issued" in out
    assert "asked by        joiner (groups: " in out
    assert f"ledger          {'has no entry for it' if ledger == 'empty' else 'was not read: nobody is there'}" in out
    assert run("explain", "x", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["issued"].keys() == {"asked by", "approved", "serial", "until", "ledger"}
    assert found["checks"]


def test_an_issued_one_that_cannot_be_read(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.add("x", "Approved", certificate="YWJj")
    assert run("explain", "x") == 0
    assert "certificate     cannot be read: " in capsys.readouterr().out


def test_who_may_not_ask_is_told(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.add("x")

    def refuse(verb: str, plural: str, _: str) -> None:
        if plural == "subjectaccessreviews":
            raise status.StatusError("Forbidden", "cannot create subjectaccessreviews")

    reached.client.before = refuse
    assert run("explain", "x") == 0
    printed = capsys.readouterr()
    assert "not asked" in printed.out
    assert "note: some checks are missing: cannot create subjectaccessreviews\n" in printed.err

    def fail(verb: str, plural: str, _: str) -> None:
        if plural == "subjectaccessreviews":
            raise status.StatusError("InternalError", "broken")

    reached.client.before = fail
    assert run("explain", "x") == 1


def event(reached: Reached, name: str, at: str, message: str) -> None:
    about = {"uid": reached.stored()["metadata"]["uid"]}
    reached.client.put(
        "events", name, "default", involvedObject=about, reason="NoLedger", message=message, lastTimestamp=at
    )


def test_what_controllers_said_of_it_is_shown(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.add("x", "Approved")
    event(reached, "b", "2030-01-01T00:00:02Z", "later")
    event(reached, "a", "2030-01-01T00:00:01Z", "not\nsigned")
    assert run("explain", "x") == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("LAST SEEN              EVENT      MESSAGE")
    assert lines[at + 1 : at + 3] == [
        "2030-01-01T00:00:01Z   NoLedger   not\\u000asigned",
        "2030-01-01T00:00:02Z   NoLedger   later",
    ]
    assert run("explain", "x", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)["events"]
    assert found[0] == {"at": "2030-01-01T00:00:01Z", "reason": "NoLedger", "message": "not\nsigned"}


def test_without_the_right_to_read_events(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.add("x")

    def refuse(verb: str, plural: str, _: str) -> None:
        if plural == "events":
            raise status.StatusError("Forbidden", "cannot list events")

    reached.client.before = refuse
    assert run("explain", "x") == 0
    assert "note: its Events could not be read: cannot list events\n" in capsys.readouterr().err


def test_one_that_is_not_there(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "x") == 1
    assert capsys.readouterr().err.endswith("reason: NotFound\n")


BOOTSTRAPPER: dict[str, Any] = {
    "username": bootstrapper.USER,
    "groups": [*bootstrapper.GROUPS, "system:authenticated"],
}


def test_a_machines_request_is_explained_by_its_judge(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.client.put("configmaps", settings.NAME, settings.NAMESPACE, data={settings.KEY: "joinWithin: soon"})
    reached.add("a", **BOOTSTRAPPER)
    assert run("explain", "a", "-o", "json") == 0
    printed = capsys.readouterr()
    explained = json.loads(printed.out)
    assert (explained["verdict"], explained["judge"]) == ("Pending", "machine-approver")
    assert [row["check"] for row in explained["checks"]][5:10] == [
        "not a renewal",
        "bootstrap identity",
        "client approval on",
        "no such Node",
        "Machine",
    ]
    assert 'make a Machine with the InternalDNS name "n1"' in explained["change"]
    assert 'the defaults are assumed: joinWithin: "soon" is not allowed' in printed.err
    assert reached.client.reviews == []


def test_without_a_machine_approver_nobody_is_told_to_grant_anything(
    reached: Reached, capsys: pytest.CaptureFixture[str]
) -> None:
    reached.add("a", **BOOTSTRAPPER)
    assert run("explain", "a") == 0
    printed = capsys.readouterr().out
    assert "judged by: csrapproving" in printed
    change = next(line for line in printed.splitlines() if line.startswith("to change that: "))
    assert "run the machine-approver" in change
    assert "nodeclient" not in change


def test_machines_that_may_not_be_read_are_missing_checks(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.client.put("configmaps", settings.NAME, settings.NAMESPACE, data={})
    reached.add("a", **BOOTSTRAPPER)

    def refuse(verb: str, plural: str, _: str) -> None:
        if (verb, plural) == ("list", "machines"):
            raise status.StatusError("Forbidden", "machines is forbidden")

    reached.client.before = refuse
    assert run("explain", "a") == 0
    assert "note: some checks are missing: machines is forbidden" in capsys.readouterr().err


def test_what_policies_say_is_shown(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["certificatesigningrequests"]}
    validation = {"expression": "size(object.spec.usages) > 0 && object.spec.username == 'x'", "message": "not x"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    reached.client.put("validatingadmissionpolicies", "only-x", spec=spec)
    bound = {"policyName": "only-x", "validationActions": ["Warn"]}
    reached.client.put("validatingadmissionpolicybindings", "everywhere", spec=bound)
    reached.add("a")
    assert run("explain", "a") == 0
    shown = capsys.readouterr().out
    assert "policy only-x, binding everywhere (Warn), on CREATE: fails: not x\n" in shown
    assert "  expression: size(object.spec.usages) > 0 && object.spec.username == 'x'\n" in shown
    assert "  false part: object.spec.username == 'x'\n  object.spec.username = \"joiner\"\n" in shown
    assert run("explain", "a", "-o", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)["policies"]
    assert (row["result"], row["inputs"]) == ("fails", {"object.spec.username": '"joiner"'})


def test_who_may_not_read_policies_is_told_so(reached: Reached, capsys: pytest.CaptureFixture[str]) -> None:
    reached.add("a")

    def refuse(verb: str, plural: str, _name: str) -> None:
        if plural == "validatingadmissionpolicies":
            raise status.StatusError("Forbidden", "no")

    reached.client.before = refuse
    assert run("explain", "a") == 0
    assert "note: admission policies could not be read: no" in capsys.readouterr().err
