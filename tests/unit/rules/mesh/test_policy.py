# SPDX-License-Identifier: Apache-2.0
"""Who may call whom: verdicts, checks, and the rules that agents and proxies get."""

from __future__ import annotations

import pytest

from handfast.rules import decision
from handfast.rules.mesh import names, policy, policy_documents
from handfast.rules.mesh.policy_documents import Target

NAMING = policy.Naming(names.Mesh("cluster.local"))
ENDING = "sa.linkerd-identity.linkerd.cluster.local"
DB = Target(namespace="shop", account="db", labels={"app": "db"})
WEB = f"web.shop.{ENDING}"
NOBODY = ""


def made(name="p", **spec):
    return policy_documents.parse({"metadata": {"namespace": "shop", "name": name}, "spec": spec})


def account(name, namespace="shop"):
    return {"serviceAccount": {"namespace": namespace, "name": name}}


def judged(policies, identity=WEB, port=5432, naming=NAMING):
    judgement = policy.judge(policies, DB, identity, port, naming)
    # The compiled form says the same.
    rules = policy.compiled(policies, DB, naming).inbound(port)
    assert rules.enforced.decide(identity) == judgement.verdict
    assert rules.would_refuse(identity) == (judgement.audit is not None)
    return judgement


def allowed(*arguments, **more):
    return isinstance(judged(*arguments, **more).verdict, decision.Approve)


def test_without_a_policy_nobody_is_refused():
    other = made(targets={"serviceAccounts": ["api"]}, clients=[])
    for policies in ([], [other], [made(targets={"ports": [80]}, clients=[])]):
        for identity in (WEB, NOBODY, "who.is.it"):
            judgement = judged(policies, identity)
            assert (judgement.verdict.reason, judgement.audit) == (policy.NO_POLICY, None)
    assert judged([]).checks[0].sentence == "none is about this port"


def test_who_is_in_no_row_is_refused():
    policies = [made(clients=[account("web"), account("api")])]
    assert allowed(policies)
    refused = judged(policies, f"web.bank.{ENDING}")
    assert refused.verdict.reason == policy.NOT_ALLOWED
    assert [check.passed for check in refused.checks] == [None, None, False, None]
    assert "shop/p" in refused.verdict.sentence
    assert not allowed(policies, NOBODY)
    assert judged(policies).checks[2].sentence == "clients[0] of shop/p fits"


def test_an_empty_list_lets_in_nobody():
    assert not allowed([made(clients=[])])
    assert not allowed([made(clients=[])], NOBODY)


def test_of_several_policies_one_has_to_allow():
    policies = [made("a", clients=[account("api")]), made("b", clients=[account("web")]), made("c", clients=[])]
    assert judged(policies).verdict.sentence == "clients[0] of shop/b fits"
    assert not allowed(policies, f"joe.shop.{ENDING}")


def test_rules_of_one_port_are_not_those_of_another():
    policies = [made("a", targets={"ports": [5432]}, clients=[account("web")]), made("b", clients=[account("api")])]
    assert allowed(policies, port=5432)
    assert not allowed(policies, port=80)
    assert allowed(policies, f"api.shop.{ENDING}", port=80)
    assert [rules.port for rules in policy.compiled(policies, DB, NAMING).ports] == [policy.OTHER_PORTS, 5432]


def test_an_identity_that_is_required_is_required_whatever_the_rows_say():
    open_to_all = made("a", clients=[{"unauthenticated": True}])
    assert allowed([open_to_all], NOBODY)
    both = [open_to_all, made("b", requireIdentity={"inbound": True})]
    refused = judged(both, NOBODY)
    assert refused.verdict.reason == policy.IDENTITY_REQUIRED
    assert refused.checks[1].sentence == "shop/b requires one: the client has none"
    assert allowed(both)
    assert judged(both).checks[1].passed is True


def test_a_condition_is_no_permission():
    only = [made(requireIdentity={"inbound": True})]
    assert allowed(only)
    assert not allowed(only, NOBODY)
    assert not allowed([*only, made("b", clients=[account("api")])])


def test_everybody_may_have_an_identity_too():
    assert allowed([made(clients=[{"unauthenticated": True}])])


def test_a_name_that_is_written_out_is_compared_whole():
    policies = [made(clients=[{"identity": WEB}])]
    assert allowed(policies)
    for other in (f"x{WEB}", f"a.{WEB}", WEB.upper(), f"{WEB}.", WEB[1:]):
        assert not allowed(policies, other)


@pytest.mark.parametrize("scheme", names.Scheme)
def test_a_namespace_ends_at_its_dots(scheme):
    mesh = names.Mesh("cluster.local", scheme=scheme)
    naming = policy.Naming(mesh)
    policies = [made(clients=[{"namespace": "team"}])]
    of = {
        namespace: mesh.name(names.Account(namespace=namespace, name="team", uid="team"))
        for namespace in ("team", "evil-team", "team-b", "sa", "shop")
    }
    assert allowed(policies, of.pop("team"), naming=naming)
    for identity in of.values():
        assert not allowed(policies, identity, naming=naming)
    assert not allowed(policies, f"team.{mesh.ending}", naming=naming)
    assert not allowed(policies, NOBODY, naming=naming)


def test_where_names_have_uids_a_row_is_the_account_that_is_there():
    mesh = names.Mesh("cluster.local", scheme=names.Scheme.UID)
    uids = {("shop", "web"): "u1"}
    naming = policy.Naming(mesh, lambda namespace, name: uids.get((namespace, name), ""))
    policies = [made(clients=[account("web")])]
    assert allowed(policies, f"u1.{WEB}", naming=naming)
    uids["shop", "web"] = "u2"
    assert not allowed(policies, f"u1.{WEB}", naming=naming)
    assert allowed(policies, f"u2.{WEB}", naming=naming)
    uids.clear()
    for identity in (f"u1.{WEB}", f"u2.{WEB}", WEB, NOBODY):
        assert not allowed(policies, identity, naming=naming)


def test_where_names_have_none_an_account_made_anew_is_the_same():
    naming = policy.Naming(names.Mesh("cluster.local"), lambda _namespace, _name: "whichever")
    assert allowed([made(clients=[account("web")])], naming=naming)


def test_audit_lets_in_nobody_and_refuses_nobody():
    audit = made("a", clients=[account("api")], mode="audit")
    judgement = judged([audit])
    assert isinstance(judgement.verdict, decision.Approve)
    assert judgement.audit is not None
    assert judgement.audit.reason == policy.NOT_ALLOWED
    assert "if shop/a were enforced, it would be refused" in judgement.checks[3].sentence
    assert judged([audit]).checks[0].sentence == "shop/a (audit)"
    assert judged([audit], f"api.shop.{ENDING}").audit is None
    assert "would change nothing" in judged([audit], f"api.shop.{ENDING}").checks[3].sentence
    # It lets in nobody that an enforcing one does not.
    enforcing = made("b", clients=[account("web")])
    assert allowed([audit, enforcing])
    assert not allowed([audit, enforcing], f"api.shop.{ENDING}")


def test_a_condition_in_audit_is_told():
    policies = [
        made("a", requireIdentity={"inbound": True}, mode="audit"),
        made("b", clients=[{"unauthenticated": True}]),
    ]
    judgement = judged(policies, NOBODY)
    assert isinstance(judgement.verdict, decision.Approve)
    assert judgement.audit is not None
    assert judgement.audit.reason == policy.IDENTITY_REQUIRED


def test_what_cannot_be_read_is_told_and_lets_in_nobody():
    broken = made("a", targets={"ports": []}, clients=[{"unauthenticated": True}])
    judgement = judged([broken])
    assert judgement.verdict.reason == policy.NOT_ALLOWED
    assert "shop/a cannot be read: spec.targets.ports" in judgement.checks[0].sentence
    # Its rows were meant for others: they open nothing that another policy closes.
    assert not allowed([broken, made("b", clients=[account("api")])])


def test_outbound_is_about_the_workload_and_not_about_ports():
    needing = made("a", requireIdentity={"outbound": True}, targets={"ports": [80]})
    refused = policy.judge_outbound([needing], DB, NOBODY)
    assert isinstance(refused, decision.Deny)
    assert refused.reason == policy.PEER_WITHOUT_IDENTITY
    assert policy.judge_outbound([needing], DB, WEB).reason == policy.ALLOWED
    assert policy.judge_outbound([], DB, NOBODY).reason == policy.NO_POLICY
    audit = made("b", requireIdentity={"outbound": True}, mode="audit")
    assert isinstance(policy.judge_outbound([audit], DB, NOBODY), decision.Approve)
    compiled = policy.compiled([needing], DB, NAMING)
    assert (compiled.needs_outbound, compiled.would_need_outbound) == (True, True)
    compiled = policy.compiled([audit], DB, NAMING)
    assert (compiled.needs_outbound, compiled.would_need_outbound) == (False, True)
    assert not policy.compiled([], DB, NAMING).would_need_outbound


def test_a_row_that_has_no_name_fits_nobody():
    assert not allowed([made(clients=[account("a.b")])])
    assert not allowed([made(clients=[account("a" * 64)])], NOBODY)


def test_policies_that_come_to_too_much_refuse_everybody_and_cost_little():
    rows = [{"namespace": f"team-{number}"} for number in range(256)] + [account("web")]
    everywhere = [made(f"a{number}", clients=rows) for number in range(64)]
    somewhere = [
        made(f"b{number}", clients=[], targets={"ports": list(range(64 * number + 1, 64 * number + 65))})
        for number in range(64)
    ]
    # Two million rows, if they were written out.
    assert len(policy.compiled([*everywhere, *somewhere], DB, NAMING).ports) == 1
    refused = judged([*everywhere, *somewhere])
    assert refused.verdict.reason == policy.NOT_ALLOWED
    assert "more than 65536 rows" in refused.checks[0].sentence
    assert allowed(everywhere)
