# SPDX-License-Identifier: Apache-2.0
"""May one workload call another: the checks in their order, the verdict, and what turns it."""

from __future__ import annotations

import dataclasses
import datetime

import msgspec

from handfast.rules import decision
from handfast.rules.mesh import (
    authorities,
    edges,
    endpoints,
    explanation,
    holders,
    issued,
    meshed,
    names,
    policy,
    views,
)
from handfast.rules.mesh.explanation import Facts, Server, Workload
from tests.unit.rules.mesh.test_policy import ENDING, NAMING, WEB, account, made

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
DB = f"db.shop.{ENDING}"
ADDRESS = authorities.Address("10.0.0.5", 5432)
FACTS = meshed.Facts(mesh=NAMING.mesh)


def certificate(hours=1):
    return issued.Certificate(
        fingerprint="f",
        serial="7b",
        key_fingerprint="k",
        names=(),
        requester="",
        holder=holders.Holder(),
        not_after=NOW + datetime.timedelta(hours=hours),
    )


def pod(name, owner, *, meshed_too=True, **labels):
    env = [{"name": "LINKERD2_PROXY_LOCAL_IDENTITY", "value": "x"}, {"name": "L5D_NS", "value": "linkerd"}]
    proxy = [{"name": "linkerd-proxy", "env": env}] if meshed_too else []
    marks = {"linkerd.io/control-plane-ns": "linkerd"} if meshed_too else {}
    notes = {"linkerd.io/identity": "enabled"} if meshed_too else {}
    document = {
        "metadata": {"namespace": "shop", "name": name, "labels": {**marks, **labels}, "annotations": notes},
        "spec": {"serviceAccountName": owner, "initContainers": proxy},
    }
    return msgspec.convert(document, views.Pod)


def workload(owner="web", **more):
    fields = {"certificate": certificate(), **more}
    return Workload(account=names.Account(namespace="shop", name=owner), **fields)


def server(identity=DB, **more):
    outcome = endpoints.Endpoint(ADDRESS, meshed.Standing(identity=identity))
    return Server(outcome=outcome, workload=workload("db", **more))


def explained(client=None, servers=None, policies=(), **more):
    facts = Facts(
        naming=NAMING,
        now=NOW,
        client=client,
        client_facts=FACTS,
        servers=[server()] if servers is None else servers,
        policies=policies,
        **more,
    )
    return explanation.explain(facts)


def rows(answer):
    return {check.name: (check.passed, check.sentence) for check in answer.checks}


def allowed(answer):
    return isinstance(answer.verdict, decision.Approve)


def test_each_check_is_in_its_place():
    answer = explained(workload())
    assert [check.name for check in answer.checks] == [
        "client",
        "server",
        "client certificate",
        "server certificate",
        "discovery",
        "client revocation",
        "server revocation",
        "outbound policy",
        "policies",
        "requireIdentity",
        "clients",
        "audit",
    ]
    assert allowed(answer)
    assert rows(answer)["client"] == (True, f"account shop/web is {WEB}")
    assert rows(answer)["client certificate"] == (True, "serial number 7b, until 2030-01-01T01:00:00Z")
    (change,) = answer.changes
    assert '"name":"db-5432"' in change


def test_a_client_outside_the_mesh_has_no_name():
    answer = explained()
    assert rows(answer)["client"] == (None, "it is not in the mesh, and calls without an identity")
    assert "client certificate" not in rows(answer)
    assert allowed(answer)
    assert not allowed(explained(policies=[made(requireIdentity={"inbound": True})]))


def test_a_pod_without_a_proxy_calls_without_an_identity():
    answer = explained(workload(pod=pod("web-0", "web", meshed_too=False)), policies=[made(clients=[account("web")])])
    assert rows(answer)["client"][0] is None
    assert not allowed(answer)
    assert "linkerd.io/inject" in answer.changes[0]


def test_a_pod_of_the_mesh_has_the_name_of_its_account():
    answer = explained(workload(pod=pod("web-0", "web")))
    assert rows(answer)["client"] == (True, f"Pod shop/web-0 (account web) is {WEB}")


def test_a_client_that_is_not_there_or_has_no_name_fails():
    answer = explained(workload("gone", account_exists=False))
    assert not allowed(answer)
    assert answer.changes[0] == "kubectl -n shop create serviceaccount gone"
    answer = explained(workload("a.b"))
    assert rows(answer)["client"][0] is False
    assert "rename the account" in answer.changes[0]
    unclear = msgspec.structs.replace(pod("web-0", "web"), spec=views.PodSpec())
    answer = explained(workload(pod=unclear))
    assert rows(answer)["client"][0] is False
    assert answer.changes


def test_a_certificate_that_is_over_or_was_never_issued_fails_where_a_pod_runs():
    running = {"pod": pod("web-0", "web")}
    for over in (certificate(-1), None):
        answer = explained(workload(certificate=over, **running))
        assert rows(answer)["client certificate"][0] is False
        assert "logs web-0 -c linkerd-proxy" in answer.changes[0]
    assert rows(explained(workload(certificate=None)))["client certificate"] == (
        None,
        "none was issued: it gets one when a Pod of it runs",
    )
    answer = explained(workload(), servers=[server(certificate=certificate(-1), pod=pod("db-0", "db"))])
    assert rows(answer)["server certificate"] == (False, "the last one ended at 2029-12-31T23:00:00Z")


def test_what_may_not_be_read_neither_passes_nor_fails():
    answer = explained(workload(certificate=None), unread=frozenset({"ledger", "revocations"}))
    assert allowed(answer)
    assert rows(answer)["client certificate"] == (None, "the ledger may not be read")
    assert rows(answer)["server revocation"] == (None, "Revocations may not be read")


def withheld(why=meshed.Reason.PROXY_MISSING, **more):
    return Server(outcome=endpoints.Withheld(ADDRESS, why, "no container"), **more)


def test_discovery_tells_who_is_withheld_and_why():
    answer = explained(workload(), servers=[server(), withheld()])
    passed, sentence = rows(answer)["discovery"]
    assert passed
    assert "1 handed out, 1 of them with an identity" in sentence
    assert "10.0.0.5:5432 is withheld (ProxyMissing): no container" in sentence
    answer = explained(workload(), servers=[withheld()])
    assert not allowed(answer)
    assert "no container" in answer.changes[0]
    assert "policies" not in rows(answer)
    answer = explained(workload(), servers=[])
    assert "start a Pod" in answer.changes[0]
    answer = explained(workload(), servers=[], missing="there is no Service shop/db")
    assert rows(answer)["discovery"] == (False, "there is no Service shop/db")


def test_an_account_without_pods_is_judged_as_if_one_ran():
    assumed = Server(outcome=server().outcome, workload=workload("db", certificate=None), assumed=True)
    answer = explained(workload(), servers=[assumed])
    assert rows(answer)["discovery"] == (None, "no Pod runs as this account: it is judged as if one did")
    assert allowed(answer)


def test_who_is_revoked_fails_and_the_revocation_is_named():
    revoked = {"revoked": "it is refused", "revoked_by": "stolen"}
    for answer in (
        explained(workload(**revoked)),
        explained(workload(), servers=[server(**revoked)]),
        explained(workload(), servers=[withheld(meshed.Reason.REVOKED, workload=workload("db", **revoked))]),
    ):
        assert not allowed(answer)
        assert answer.changes == ("kubectl delete revocation stolen",)


def test_the_policy_of_the_client_counts_too():
    needs = made("out", requireIdentity={"outbound": True}, targets={"serviceAccounts": ["web"]})
    assert allowed(explained(workload(), policies=[needs]))
    answer = explained(workload(), servers=[server("")], policies=[needs])
    assert rows(answer)["outbound policy"][0] is False
    assert "/spec/requireIdentity/outbound" in answer.changes[0]


def test_a_server_without_a_proxy_has_nobody_to_enforce_a_policy():
    answer = explained(workload(), servers=[server("")], policies=[made(clients=[])])
    assert allowed(answer)
    assert rows(answer)["policies"] == (None, "none is enforced: the server has no proxy on this port")
    assert "have the server injected" in answer.changes[0]
    unknown = Server(outcome=endpoints.Endpoint(ADDRESS))
    assert rows(explained(servers=[unknown]))["server"][1].startswith("10.0.0.5:5432 has no identity")


def test_a_policy_refuses_and_the_row_that_would_let_in_is_shown():
    answer = explained(workload(), policies=[made(clients=[account("api")])])
    assert answer.verdict.sentence == "refused: clients: no row of shop/p fits"
    assert '{"serviceAccount":{"name":"web"}}' in answer.changes[0]
    assert rows(answer)["policies"] == (None, "shop/p")


def test_of_several_endpoints_the_one_that_refuses_is_explained():
    other = server(pod=pod("db-1", "db", role="replica"))
    only = made(clients=[], targets={"podSelector": {"matchLabels": {"role": "replica"}}})
    answer = explained(workload(), servers=[server(), other], policies=[only])
    assert not allowed(answer)
    assert "db-1" in rows(answer)["server"][1]


def test_what_else_fails_comes_before_what_a_policy_allows():
    answer = explained(workload(revoked="it is refused", revoked_by="r"))
    assert answer.changes == ("kubectl delete revocation r",)
    assert isinstance(policy.judge([], workload().target, WEB, 1, NAMING).verdict, decision.Approve)


def test_what_was_seen_between_the_two_is_told_and_decides_nothing():
    seen = [
        edges.Workload(DB, (reported(WEB, refused="not-allowed-by-policy"), reported(WEB, port=80), reported("a.b"))),
        edges.Workload(WEB, (dataclasses.replace(reported(DB), direction="outbound"),)),
    ]
    answer = explained(workload(), observed=edges.joined(seen))
    assert [(edge.client, edge.server, edge.port, edge.refused) for edge in answer.observed] == [
        (WEB, DB, 5432, "not-allowed-by-policy")
    ]
    assert allowed(answer)
    # Who has no identity is told of with others who have none.
    anonymous = [edges.Workload(DB, (reported("", unsecured="plaintext"),))]
    assert len(explained(observed=edges.joined(anonymous)).observed) == 1
    assert explained(workload(), observed=edges.joined(anonymous)).observed == ()


def reported(peer, port=5432, **more):
    return edges.Reported(direction="inbound", peer=peer, port=port, secured=bool(peer), count=1, **more)
