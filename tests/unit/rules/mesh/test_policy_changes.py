# SPDX-License-Identifier: Apache-2.0
"""The smallest change that turns a verdict: whatever is advised, is applied here, and turns it."""

from __future__ import annotations

import json
import shlex

import pytest

from handfast.rules import decision
from handfast.rules.mesh import names, policy, policy_changes, policy_documents
from tests.unit.rules.mesh.test_policy import DB, ENDING, NAMING, WEB, account

ELSEWHERE = "someone.of.another.mesh"


def document(name="p", **spec):
    return {"metadata": {"namespace": "shop", "name": name}, "spec": {"mode": "enforce", **spec}}


def applied(documents, command):
    """What kubectl would make of it; what is for people to do changes nothing here."""
    words = shlex.split(command)
    if words[0] == "echo":
        return [*documents, json.loads(words[1])]
    assert words[:5] == ["kubectl", "-n", "shop", "patch", "meshpolicy"], command
    (target,) = [each for each in documents if each["metadata"]["name"] == words[5]]
    for operation in json.loads(words[words.index("-p") + 1]):
        *path, last = operation["path"].split("/")[1:]
        place = target
        for key in path:
            place = place[key]
        if operation["op"] == "remove":
            del place[int(last)]
        elif last == "-":
            place.append(operation["value"])
        else:
            place[last] = operation["value"]
    return documents


def turned(documents, identity, whose=None, naming=NAMING):
    """The verdict before and after what is advised, and the advice."""
    attempt = policy_changes.Attempt(target=DB, port=80, identity=identity, account=whose)

    def judged():
        return policy.judge([policy_documents.parse(each) for each in documents], DB, identity, 80, naming)

    before = judged()
    policies = [policy_documents.parse(each) for each in documents]
    refused = isinstance(before.verdict, decision.Deny)
    advise = policy_changes.opening if refused else policy_changes.closing
    advice = list(advise(policies, attempt, before, naming))
    for command in advice:
        documents = applied(documents, command)
    after = judged()
    assert isinstance(after.verdict, decision.Deny) is not refused, advice
    return advice


def account_of(name, namespace="shop"):
    return names.Account(namespace=namespace, name=name)


def test_who_is_in_no_row_gets_one_for_its_account():
    (advice,) = turned([document(clients=[])], WEB, account_of("web"))
    assert '{"serviceAccount":{"name":"web"}}' in advice
    (advice,) = turned([document(clients=[])], f"web.bank.{ENDING}", account_of("web", "bank"))
    assert '{"serviceAccount":{"namespace":"bank","name":"web"}}' in advice
    (advice,) = turned([document(clients=[])], ELSEWHERE)
    assert '{"identity":"someone.of.another.mesh"}' in advice


def test_of_several_policies_the_first_that_says_who_gets_it():
    documents = [document("b", clients=[]), document("a", requireIdentity={"inbound": True}), document("c", clients=[])]
    (advice,) = turned(documents, WEB)
    assert "meshpolicy b" in advice


def test_who_is_outside_gets_a_row_for_everybody_and_the_condition_goes():
    assert len(turned([document(clients=[])], "")) == 1
    assert len(turned([document(requireIdentity={"inbound": True})], "")) == 1
    both = [
        document("a", requireIdentity={"inbound": True}),
        document("b", clients=[], requireIdentity={"inbound": True}),
    ]
    assert len(turned(both, "")) == 3


def advice_for(documents, whose):
    policies = [policy_documents.parse(each) for each in documents]
    attempt = policy_changes.Attempt(target=DB, port=80, identity="", account=whose)
    judgement = policy.judge(policies, DB, "", 80, NAMING)
    return list(policy_changes.opening(policies, attempt, judgement, NAMING))


def test_a_client_of_the_cluster_is_better_given_an_identity():
    (advice,) = advice_for([document(requireIdentity={"inbound": True})], account_of("web"))
    assert "linkerd.io/inject: enabled" in advice
    (advice,) = advice_for([document(clients=[account("web")])], account_of("web"))
    assert "linkerd.io/inject: enabled" in advice
    first, second = advice_for([document(clients=[account("api")])], account_of("web"))
    assert "linkerd.io/inject: enabled" in first
    assert '{"serviceAccount":{"name":"web"}}' in second


def test_what_cannot_be_read_is_corrected_first():
    (advice,) = advice_for([document("z", clients=[]), document("a", clients=[7])], None)
    assert advice == "correct spec.clients[0] of MeshPolicy shop/a"


def test_every_row_that_fits_goes():
    rows = [account("web"), {"namespace": "bank"}, {"identity": WEB}, {"namespace": "shop"}]
    advice = turned([document("a", clients=rows), document("b", clients=[account("web")])], WEB)
    assert len(advice) == 2
    assert advice[0].index("/clients/3") < advice[0].index("/clients/2") < advice[0].index("/clients/0")


def test_what_is_in_audit_is_enforced_if_that_refuses():
    (advice,) = turned([document("a", clients=[account("api")], mode="audit")], WEB)
    assert '"enforce"' in advice
    needs = document("b", requireIdentity={"inbound": True})
    (advice,) = turned([needs, document("a", clients=[account("api")], mode="audit")], WEB)
    assert "meshpolicy a" in advice
    (advice,) = turned([document("a", clients=[account("web")], mode="audit")], WEB)
    assert advice.startswith("echo ")


def test_without_a_policy_a_new_one_lets_in_nobody_and_takes_no_name():
    other = document("db-80", targets={"ports": [443]}, clients=[])
    (advice,) = turned([other, document("db-80-2", targets={"ports": [443]}, clients=[])], WEB)
    assert '"name":"db-80-3"' in advice
    (advice,) = turned([], "")
    assert '"name":"db-80"' in advice


@pytest.mark.parametrize("enforced", ["enforce", "audit"])
def test_what_limits_a_client_can_be_taken_away(enforced):
    item = policy_documents.parse(document(requireIdentity={"outbound": True}, mode=enforced))
    advice = policy_changes.without_outbound([item], DB)
    assert ("/spec/requireIdentity/outbound" in advice) == (enforced == "enforce")


def test_what_is_too_much_is_corrected_first():
    rows = [{"namespace": f"team-{number}"} for number in range(256)]
    many = [
        document(f"p{number}", clients=rows, targets={"ports": list(range(64 * number + 1, 64 * number + 65))})
        for number in range(3)
    ]
    (advice,) = advice_for(many, None)
    assert advice == (
        "correct spec, which with the others comes to more than 65536 rows for all ports together of MeshPolicy shop/p0"
    )
