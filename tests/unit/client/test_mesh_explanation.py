# SPDX-License-Identifier: Apache-2.0
"""What is looked up for `mesh explain`: from whom, and what may be left out."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import mesh_explanation
from handfast.rules import decision
from handfast.rules.ledger import entries, segments
from handfast.rules.mesh import ends, explanation, names, settings
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.unit.rules.mesh import mesh_pods

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
MESH = names.Mesh("cluster.local")
FORBIDDEN = status.StatusError("Forbidden", "no right")
BROKEN = status.StatusError("InternalError", "broken")
USER = "system:serviceaccount:shop:{}"


@pytest.fixture
def client() -> FakeClient:
    client = FakeClient()
    client.put("configmaps", "linkerd-config", "linkerd", data=settings.data(settings.Settings()))
    for account in ("web", "db"):
        client.put("serviceaccounts", account, "shop")
    return client


def pod(client: FakeClient, name: str, account: str, ip: str, *, meshed: bool = True) -> None:
    make = mesh_pods.meshed if meshed else mesh_pods.plain
    document = make("shop", name, ip, account)
    client.put("pods", name, "shop", **{**document, "metadata": {**document["metadata"], "uid": f"uid-{name}"}})


def service(client: FakeClient, *ports: int, **spec: Any) -> None:
    client.put("services", "db", "shop", spec={"ports": [{"name": "p", "port": port} for port in ports], **spec})
    endpoint = {"addresses": ["10.0.0.5"], "targetRef": {"kind": "Pod", "name": "db-0", "uid": "uid-db-0"}}
    client.put(
        "endpointslices",
        "db-x",
        "shop",
        metadata={"labels": {"kubernetes.io/service-name": "db"}},
        addressType="IPv4",
        ports=[{"name": "p", "port": 5433}],
        endpoints=[endpoint],
    )


def issue(
    client: FakeClient, account: str, name: str, hours: int = 1, signer: str = "handfast.dev/mesh-identity"
) -> None:
    entry = entries.Entry(
        issued_at=NOW,
        signer=signer,
        requester=USER.format(account),
        authenticated_by="token",
        token_id="",
        key_fingerprint="k",
        serial="7b",
        names=("DNS:x",),
        not_after=NOW + datetime.timedelta(hours=hours),
        rule="MeshCertify",
        request=f"shop/{name}/uid-{name}/n1",
        certificate="f" * 64,
    )
    there = client.objects.get(("issuancelogs", "", "mesh"))
    segment = segments.following(None, segments.MESH) if there is None else segments.read(there)
    client.put("issuancelogs", "mesh", spec=segments.spec_of(segments.extended(segment, [entries.encode(entry)])))


async def explained(client: FakeClient, caller: str, called: str) -> explanation.Explanation:
    facts = await mesh_explanation.look(client, ends.client(caller), ends.server(called), "linkerd", NOW)
    return explanation.explain(facts)


def row(answer: explanation.Explanation, name: str) -> tuple[bool | None, str]:
    (check,) = [check for check in answer.checks if check.name == name]
    assert mesh_explanation.as_row(check) == {"check": name, "ok": check.passed, "seen": check.sentence}
    return check.passed, check.sentence


async def test_a_service_leads_to_its_pods(client):
    pod(client, "db-0", "db", "10.0.0.5")
    pod(client, "web-0", "web", "10.0.0.6")
    service(client, 80)
    issue(client, "db", "db-0")
    issue(client, "web", "web-0")
    issue(client, "web", "web-0", 5, "kubernetes.io/kube-apiserver-client")
    answer = await explained(client, "shop/web", "shop/db")
    assert isinstance(answer.verdict, decision.Approve)
    assert row(answer, "client certificate") == (True, "serial number 7b, until 2030-01-01T01:00:00Z")
    assert row(answer, "discovery") == (True, "1 handed out, 1 of them with an identity")
    assert '"ports":[5433]' in answer.changes[0]


async def test_a_service_that_cannot_be_read_is_an_error(client):
    client.before = failing(FORBIDDEN, plural="services")
    with pytest.raises(status.StatusError):
        await explained(client, "shop/web", "shop/db")


async def test_which_port_is_meant_has_to_be_clear(client):
    service(client, 80, 81)
    with pytest.raises(mesh_explanation.PortNeeded, match="80, 81"):
        await explained(client, "shop/web", "shop/db")
    service(client)
    with pytest.raises(mesh_explanation.PortNeeded, match="none"):
        await explained(client, "shop/web", "shop/db")
    with pytest.raises(mesh_explanation.PortNeeded):
        await explained(client, "shop/web", "sa/shop/db")


async def test_what_is_not_there_is_told(client):
    assert row(await explained(client, "none", "shop/gone:80"), "discovery") == (False, "there is no Service shop/gone")
    assert row(await explained(client, "none", "sa/shop/gone:80"), "discovery")[1] == "there is no account shop/gone"
    assert row(await explained(client, "shop/gone", "sa/shop/db:80"), "client")[0] is False
    service(client, 80, type="ExternalName")
    assert "ExternalName" in row(await explained(client, "none", "shop/db"), "discovery")[1]
    with pytest.raises(errors.Refused, match="there is no Pod shop/gone"):
        await explained(client, "pod/shop/gone", "sa/shop/db:80")
    client.objects.clear()
    with pytest.raises(errors.Refused, match="there is no linkerd-config"):
        await explained(client, "none", "sa/shop/db:80")


async def test_a_pod_that_is_withheld_is_told(client):
    pod(client, "db-0", "db", "10.0.0.5")
    client.objects["pods", "shop", "db-0"]["metadata"]["annotations"] = {}
    answer = await explained(client, "shop/web", "pod/shop/db-0:80")
    assert "is withheld (IdentityUnclear)" in row(answer, "discovery")[1]


async def test_an_endpoint_of_no_pod_has_no_identity(client):
    service(client, 80)
    del client.objects["endpointslices", "shop", "db-x"]["endpoints"][0]["targetRef"]
    answer = await explained(client, "shop/web", "shop/db")
    assert row(answer, "server")[1].startswith("10.0.0.5:5433 has no identity")


async def test_policies_count_and_a_revocation_of_the_pod_does(client):
    pod(client, "db-0", "db", "10.0.0.5")
    pod(client, "web-0", "web", "10.0.0.6")
    issue(client, "db", "db-0")
    issue(client, "web", "web-0")
    client.put("meshpolicies", "p", "shop", spec={"clients": [], "mode": "enforce"})
    answer = await explained(client, "pod/shop/web-0", "pod/shop/db-0:80")
    assert answer.verdict.sentence == "refused: clients: no row of shop/p fits"
    spec = {"pod": {"namespace": "shop", "name": "web-0", "uid": "uid-web-0"}, "reason": "stolen"}
    client.put("revocations", "r", spec=spec)
    answer = await explained(client, "pod/shop/web-0", "pod/shop/db-0:80")
    assert row(answer, "client revocation") == (False, 'it is refused by Revocation "r": stolen')


async def test_what_agents_reported_of_both_namespaces_is_told(client):
    status_of = {"identity": MESH.name(names.Account(namespace="shop", name="db"))}
    edge = {"direction": "inbound", "peer": MESH.name(names.Account(namespace="shop", name="web")), "port": 80}
    client.put("meshworkloads", "db-0", "shop", status={**status_of, "edges": [{**edge, "secured": True, "count": 3}]})
    answer = await explained(client, "shop/web", "sa/shop/db:80")
    assert [edge.count for edge in answer.observed] == [3]


@pytest.mark.parametrize(
    ("plural", "what"),
    [("issuancelogs", "ledger"), ("revocations", "revocations"), ("meshworkloads", "meshworkloads")],
)
async def test_the_ledger_and_revocations_may_be_left_out(client, plural, what):
    client.before = failing(FORBIDDEN, plural=plural)
    facts = await mesh_explanation.look(client, ends.client("shop/web"), ends.server("sa/shop/db:80"), "linkerd", NOW)
    assert facts.unread == {what}
    assert isinstance(explanation.explain(facts).verdict, decision.Approve)
    client.before = failing(BROKEN, plural=plural)
    with pytest.raises(status.StatusError):
        await explained(client, "shop/web", "sa/shop/db:80")


async def test_without_the_policies_nothing_is_told(client):
    client.before = failing(FORBIDDEN, plural="meshpolicies")
    with pytest.raises(status.StatusError):
        await explained(client, "shop/web", "sa/shop/db:80")


async def test_pods_of_all_namespaces_are_read_where_that_is_allowed(client):
    pod(client, "db-0", "db", "10.0.0.5")
    calls = 0

    def once(_verb: str, plural: str, _name: str) -> None:
        nonlocal calls
        if plural == "pods":
            calls += 1
            if calls == 1:
                raise FORBIDDEN

    client.before = once
    assert isinstance((await explained(client, "none", "pod/shop/db-0:80")).verdict, decision.Deny)
    assert calls == 2
    client.before = failing(BROKEN, plural="pods")
    with pytest.raises(status.StatusError):
        await explained(client, "none", "pod/shop/db-0:80")


async def test_a_line_of_the_ledger_that_cannot_be_read_is_passed_over(client):
    issue(client, "web", "web-0")
    client.objects["issuancelogs", "", "mesh"]["spec"]["entries"].append("x handfast.dev/mesh-identity")
    answer = await explained(client, "shop/web", "sa/shop/db:80")
    assert row(answer, "client certificate")[0] is True
