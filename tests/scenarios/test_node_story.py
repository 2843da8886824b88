# SPDX-License-Identifier: Apache-2.0
"""What a kubelet can do with its certificate, from registering to renewing, over real TLS; and what it cannot.

Proves: a node sees and writes what is its own and what its Pods need, for as long as they need it, and another node's
certificate is of no use for any of it.
"""

from __future__ import annotations

import base64
import ssl
from typing import Any

import pytest

from handfast.pki import keys, names, requests
from tests.scenarios import refusals, wire
from tests.scenarios.granting import codes, made, refused
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
TOKENS = "/api/v1/namespaces/default/serviceaccounts/default/token"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
MERGE = {"Content-Type": refusals.MERGE}
MIRROR = {"kubernetes.io/config.mirror": "hash"}
NOT_RELATED = "no relationship found between node 'n1' and this object"


class Nodes:
    """Two nodes that have registered themselves, in a world."""

    def __init__(self, world: worlds.World) -> None:
        self.world = world
        self.n1 = world.context_for("system:node:n1", "system:nodes")
        self.n2 = world.context_for("system:node:n2", "system:nodes")

    async def pod(self, name: str, node: str = "", **spec: Any) -> Any:
        container = {"name": "c", "image": "i"}
        bound = {"nodeName": node} if node else {}
        document = {"metadata": {"name": name}, "spec": {"containers": [container], **bound, **spec}}
        return await made(self.world, PODS, document)

    async def delete(self, path: str) -> None:
        answer = await self.world.request("DELETE", f"{path}?gracePeriodSeconds=0")
        assert answer.status == 200, answer.body

    async def asks(self, context: ssl.SSLContext, *rows: Any) -> None:
        await codes(self.world, context, *rows)

    async def refuses(
        self, method: str, path: str, body: Any, says: str, *, code: int = 403, headers: dict[str, str] | None = None
    ) -> None:
        """Node n1 is refused, and nothing is written."""
        more = {} if headers is None else {"headers": dict(headers)}
        await refused(self.world, self.n1, method, path, body, code, says, **more)


@pytest.fixture
async def nodes(world: worlds.World) -> Nodes:
    story = Nodes(world)
    for context, name in ((story.n1, "n1"), (story.n2, "n2")):
        await codes(world, context, ("POST", NODES, 201, {"metadata": {"name": name}}))
    return story


def volumes(**sources: str) -> list[dict[str, Any]]:
    """Volumes of a Secret and a ConfigMap."""
    kinds = {"secret": "secretName", "configMap": "name"}
    return [{"name": kind.lower(), kind: {kinds[kind]: name}} for kind, name in sources.items()]


async def test_registering_and_its_own_node(nodes: Nodes) -> None:
    await nodes.asks(
        nodes.n1,
        ("GET", f"{NODES}/n1", 200),
        ("GET", f"{NODES}/n2", 403),
        ("GET", f"{NODES}/absent", 403),
        ("GET", NODES, 403),
        ("GET", f"{NODES}?fieldSelector=metadata.name%3Dn1", 200),
        ("GET", f"{NODES}?fieldSelector=metadata.name%3Dn2", 403),
        ("POST", NODES, 403, {"metadata": {"name": "n3"}}),
        ("PUT", f"{NODES}/n1/status", 200, {"metadata": {"name": "n1"}, "status": {"phase": "Running"}}),
    )
    await nodes.refuses("GET", f"{NODES}/n2", None, "node 'n1' cannot read 'n2', only its own Node object")
    # Another's is refused, and so is what is not there: both sound the same but for the name.
    status = {"status": {"phase": "Terminated"}}
    other = 'node "n1" is not allowed to modify node "n2"'
    await nodes.refuses("PATCH", f"{NODES}/n2/status", status, other, headers=MERGE)
    await nodes.refuses("PATCH", f"{NODES}/n2", {"metadata": {"labels": {"a": "b"}}}, other, headers=MERGE)
    new = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"}}
    apply = {"Content-Type": refusals.APPLY}
    await nodes.refuses("PATCH", f"{NODES}/n3?fieldManager=m", new, other.replace("n2", "n3"), headers=apply)
    for name in ("n1", "n2"):
        await nodes.refuses("DELETE", f"{NODES}/{name}", None, 'cannot delete resource "nodes"')
    await nodes.refuses("DELETE", NODES, None, 'cannot deletecollection resource "nodes"')


async def test_labels_and_taints(nodes: Nodes) -> None:
    url = f"{NODES}/n1"
    for key in ("example.com/rack", "topology.kubernetes.io/zone", "node.kubernetes.io/x", "kubelet.kubernetes.io/x"):
        body = {"metadata": {"labels": {key: "1"}}}
        answer = await nodes.world.request("PATCH", url, body, context=nodes.n1, headers=dict(MERGE))
        assert answer.status == 200, answer.body
    for key in ("node-restriction.kubernetes.io/team", "node-role.kubernetes.io/control-plane", "k8s.io/x"):
        body = {"metadata": {"labels": {key: "1"}}}
        await nodes.refuses("PATCH", url, body, f"is not allowed to modify labels: {key}", headers=MERGE)
        # An administrator sets it; then the node may not take it away either.
        assert (await nodes.world.request("PATCH", url, body, headers=dict(MERGE))).status == 200
        gone = {"metadata": {"labels": {key: None}}}
        await nodes.refuses("PATCH", url, gone, f"is not allowed to modify labels: {key}", headers=MERGE)
        await nodes.refuses("PATCH", f"{url}/status", gone, "is not allowed to modify labels", headers=MERGE)
    taints = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    await nodes.refuses("PATCH", url, taints, 'node "n1" is not allowed to modify taints', headers=MERGE)
    held = {"metadata": {"finalizers": ["example.com/keep"]}}
    await nodes.refuses("PATCH", url, held, 'node "n1" is not allowed to modify finalizers', headers=MERGE)
    third = nodes.world.context_for("system:node:n3", "system:nodes")
    labelled = {"metadata": {"name": "n3", "labels": {"node-role.kubernetes.io/control-plane": ""}}}
    await nodes.asks(third, ("POST", NODES, 403, labelled))
    # A new node may arrive with a taint: it keeps Pods off, and nobody else sets it in time.
    await nodes.asks(third, ("POST", NODES, 201, {"metadata": {"name": "n3"}, **taints}))


async def test_half_a_node_is_none(nodes: Nodes) -> None:
    world = nodes.world
    for context in (world.context_for("system:node:n1"), world.context_for("system:node:", "system:nodes")):
        await nodes.asks(context, ("GET", f"{NODES}/n1", 403))
    # In the group by a certificate, with a name that RBAC lets write: still not let past NodeRestriction.
    odd = world.context_for("odd", "system:nodes", "system:masters")
    answer = await world.request("POST", NODES, {"metadata": {"name": "n4"}}, context=odd)
    assert (answer.status, 'could not determine node from user "odd"' in answer.message) == (403, True)


async def test_what_its_pods_need_comes_and_goes(nodes: Nodes) -> None:
    for path, name in ((SECRETS, "s"), (SECRETS, "pull"), (CONFIG_MAPS, "m"), (SECRETS, "other")):
        await made(nodes.world, path, {"metadata": {"name": name}})
    needed = [f"{SECRETS}/s", f"{SECRETS}/pull", f"{CONFIG_MAPS}/m"]
    closed = [("GET", path, 403) for path in needed]
    await nodes.asks(nodes.n1, *closed)
    # Unbound: nobody's yet.
    spec: dict[str, Any] = {"volumes": volumes(secret="s", configMap="m"), "imagePullSecrets": [{"name": "pull"}]}
    await nodes.pod("p", **spec)
    await nodes.asks(nodes.n1, *closed, ("GET", f"{PODS}/p", 403))
    await made(nodes.world, f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
    await nodes.asks(nodes.n1, *(("GET", path, 200) for path in needed), ("GET", f"{PODS}/p", 200))
    await nodes.asks(nodes.n2, *closed, ("GET", f"{PODS}/p", 403))
    for path, body in (
        (f"{SECRETS}/s", {"metadata": {"name": "s"}}),
        (f"{CONFIG_MAPS}/m", {"metadata": {"name": "m"}}),
    ):
        await nodes.refuses("PUT", path, body, "can only read resources of this type")
        await nodes.refuses("DELETE", path, None, "can only read resources of this type")
    await nodes.refuses("GET", f"{SECRETS}/other", None, NOT_RELATED)
    await nodes.refuses("GET", f"{SECRETS}/absent", None, NOT_RELATED)
    await nodes.refuses("GET", SECRETS, None, "No Object name found")
    await nodes.refuses("GET", "/api/v1/secrets", None, "can only read namespaced object of this type")
    # Two Pods need it: it stays readable until both are gone.
    await nodes.pod("q", "n1", volumes=volumes(secret="s"))
    await nodes.delete(f"{PODS}/p")
    await nodes.asks(nodes.n1, ("GET", f"{SECRETS}/s", 200), ("GET", f"{CONFIG_MAPS}/m", 403))
    await nodes.delete(f"{PODS}/q")
    await nodes.asks(nodes.n1, *closed)


async def furnished(nodes: Nodes, node: str) -> dict[str, str]:
    """A Pod on that node with all that it needs; the paths of what it needs, by kind."""
    world, here = nodes.world, {"secrets": f"{SECRETS}/s-{node}", "configmaps": f"{CONFIG_MAPS}/m-{node}"}
    await made(world, SECRETS, {"metadata": {"name": f"s-{node}"}})
    await made(world, SECRETS, {"metadata": {"name": f"disk-{node}"}})
    await made(world, CONFIG_MAPS, {"metadata": {"name": f"m-{node}"}})
    size = {"storage": "1Gi"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": size}, "volumeName": f"v-{node}"}
    await made(world, CLAIMS, {"metadata": {"name": f"c-{node}"}, "spec": claim})
    opened_with = {"name": f"disk-{node}", "namespace": "default"}
    volume = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": size,
        "claimRef": {"namespace": "default", "name": f"c-{node}"},
        "csi": {"driver": "example.com", "volumeHandle": node, "nodePublishSecretRef": opened_with},
    }
    await made(world, VOLUMES, {"metadata": {"name": f"v-{node}"}, "spec": volume})
    claimed = {"name": "disk", "persistentVolumeClaim": {"claimName": f"c-{node}"}}
    await nodes.pod(f"p-{node}", node, volumes=[*volumes(secret=f"s-{node}", configMap=f"m-{node}"), claimed])
    return {
        **here,
        "secrets of volumes": f"{SECRETS}/disk-{node}",
        "persistentvolumeclaims": f"{CLAIMS}/c-{node}",
        "persistentvolumes": f"{VOLUMES}/v-{node}",
    }


async def test_each_node_reads_and_updates_its_own_and_no_others(nodes: Nodes) -> None:
    """Seed 003, "How Kubelets Are Authorized": its three examples, and what is beside them."""
    world = nodes.world
    own = {node: await furnished(nodes, node) for node in ("n1", "n2")}
    running = {"status": {"phase": "Running"}}
    grown = {"status": {"capacity": {"storage": "1Gi"}}}
    for (node, context), other in ((("n1", nodes.n1), "n2"), (("n2", nodes.n2), "n1")):
        unrelated = f"no relationship found between node '{node}' and this object"
        await nodes.asks(context, *(("GET", path, 200) for path in own[node].values()))
        for path in own[other].values():
            await refused(world, context, "GET", path, None, 403, unrelated)
        # 1. pods/status of its own Pods alone
        answer = await world.request("PATCH", f"{PODS}/p-{node}/status", running, context=context, headers=dict(MERGE))
        assert answer.status == 200, answer.body
        says = f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
        path = f"{PODS}/p-{other}/status"
        await refused(world, context, "PATCH", path, running, 403, says, headers=dict(MERGE))
        # 2. ConfigMaps and Secrets are read, one by one, and never written
        await refused(world, context, "GET", CONFIG_MAPS, None, 403, "No Object name found")
        only_read = "can only read resources of this type"
        body = {"metadata": {"name": f"m-{node}"}}
        await refused(world, context, "PUT", own[node]["configmaps"], body, 403, only_read)
        # 3. volumes through the claims of its Pods, and the state of such a claim
        await refused(world, context, "GET", VOLUMES, None, 403, "can only get individual resources of this type")
        claim = f"{own[node]['persistentvolumeclaims']}/status"
        answer = await world.request("PATCH", claim, grown, context=context, headers=dict(MERGE))
        assert answer.status == 200, answer.body
        claim = f"{own[other]['persistentvolumeclaims']}/status"
        await refused(world, context, "PATCH", claim, grown, 403, unrelated, headers=dict(MERGE))
    # Only what is needed to run its Pods: with the Pod all of it goes.
    await nodes.delete(f"{PODS}/p-n1")
    await nodes.asks(nodes.n1, *(("GET", path, 403) for path in own["n1"].values()))
    await nodes.asks(nodes.n2, *(("GET", path, 200) for path in own["n2"].values()))


async def test_watching_one_secret(nodes: Nodes) -> None:
    await made(nodes.world, SECRETS, {"metadata": {"name": "s"}})
    await nodes.pod("p", "n1", volumes=volumes(secret="s"))
    watch = f"{SECRETS}?watch=1&fieldSelector=metadata.name%3D"
    await nodes.asks(nodes.n1, ("GET", f"{SECRETS}?fieldSelector=metadata.name%3Ds", 200), ("GET", f"{watch}t", 403))
    # The name in the path counts, whatever a selector says beside it.
    await nodes.asks(nodes.n1, ("GET", f"{SECRETS}/t?watch=1&fieldSelector=metadata.name%3Ds", 403))
    await nodes.asks(nodes.n2, ("GET", f"{watch}s", 403))
    await nodes.refuses("GET", f"{SECRETS}?watch=1", None, "No Object name found")
    async with wire.line(nodes.world.server.address[1], nodes.n1) as line:
        await line.send(wire.request("GET", f"{watch}s"))
        assert (await line.reply(head_only=True)).status == 200
        events = line.chunks()
        assert b'"ADDED"' in await anext(events)
        await made(nodes.world, SECRETS, {"metadata": {"name": "unrelated"}})
        body = {"metadata": {"name": "s"}, "data": {"k": "dg=="}}
        assert (await nodes.world.request("PUT", f"{SECRETS}/s", body)).status == 200
        event = await anext(events)
        assert b'"MODIFIED"' in event
        assert b'"dg=="' in event


async def test_listing_pods(nodes: Nodes) -> None:
    await nodes.pod("p", "n1")
    await nodes.pod("q", "n2")
    for path in (PODS, "/api/v1/pods"):
        mine = await nodes.world.get(f"{path}?fieldSelector=spec.nodeName%3Dn1", context=nodes.n1)
        assert [item["metadata"]["name"] for item in mine.json()["items"]] == ["p"]
        await nodes.asks(
            nodes.n1,
            ("GET", f"{path}?fieldSelector=spec.nodeName%3Dn2", 403),
            ("GET", f"{path}?fieldSelector=spec.nodeName%21%3Dn2", 403),
            ("GET", f"{path}?watch=1", 403),
        )
        await nodes.refuses("GET", path, None, "can only list/watch pods with spec.nodeName field selector")


async def test_tokens_for_its_pods(nodes: Nodes) -> None:
    mine, theirs = await nodes.pod("p", "n1"), await nodes.pod("q", "n2")
    again = await nodes.pod("r", "n1")
    world = nodes.world

    def bound(pod: Any, **more: str) -> dict[str, Any]:
        meta = pod["metadata"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], **more}
        return {"spec": {"boundObjectRef": reference}}

    answer = await world.request("POST", TOKENS, bound(mine), context=nodes.n1)
    assert answer.status == 201, answer.body
    token = answer.json()["status"]["token"]
    review = await made(world, "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    assert review["status"]["user"]["username"] == "system:serviceaccount:default:default"
    assert review["status"]["user"]["extra"]["authentication.kubernetes.io/node-name"] == ["n1"]
    await nodes.refuses("POST", TOKENS, {"spec": {}}, "node requested token not bound to a pod")
    await nodes.refuses("POST", TOKENS, bound(mine, uid=""), "node requested token with a pod binding without a uid")
    await nodes.refuses("POST", TOKENS, bound(mine, uid="other"), "does not match the UID in record")
    await nodes.refuses("POST", TOKENS, bound(theirs), "bound to a pod scheduled on a different node")
    await nodes.refuses("POST", TOKENS, bound(mine, name="absent"), 'pod "absent" not found', code=404)
    foreign = {"spec": {**bound(mine)["spec"], "audiences": ["https://vault.example.com"]}}
    await nodes.refuses("POST", TOKENS, foreign, "is not authorized to request tokens for audience")
    # An account that none of its Pods uses.
    await world.ensure_service_account("default", "other")
    await nodes.refuses("POST", TOKENS.replace("/default/token", "/other/token"), bound(mine), NOT_RELATED)
    # With its Pods, its power over the account goes, and so does the token.
    await nodes.delete(f"{PODS}/p")
    await nodes.refuses("POST", TOKENS, bound(mine), 'pod "p" not found', code=404)
    await nodes.delete(f"{PODS}/r")
    await nodes.refuses("POST", TOKENS, bound(again), NOT_RELATED)
    review = await made(world, "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    assert "authenticated" not in review["status"]


async def test_its_lease(nodes: Nodes) -> None:
    lease = {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40}}
    await nodes.asks(
        nodes.n1,
        ("POST", LEASES, 201, lease),
        ("GET", f"{LEASES}/n1", 200),
        ("PUT", f"{LEASES}/n1", 200, {**lease, "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 50}}),
        ("GET", LEASES, 403),
        ("POST", LEASES, 403, {"metadata": {"name": "n2"}}),
        ("GET", f"{LEASES}/n2", 403),
        ("PUT", f"{LEASES}/n2", 403, {"metadata": {"name": "n2"}}),
    )
    elsewhere = LEASES.replace("kube-node-lease", "default")
    await nodes.refuses("POST", elsewhere, lease, 'can only access leases in the "kube-node-lease" system namespace')
    # A PUT of a Lease creates it, and that is asked about as well.
    await nodes.asks(nodes.n2, ("PUT", f"{LEASES}/n2", 201, {"metadata": {"name": "n2"}}))
    await nodes.asks(nodes.n1, ("DELETE", f"{LEASES}/n2", 403), ("DELETE", f"{LEASES}/n1", 200))


async def test_mirror_pods(nodes: Nodes) -> None:
    uid = (await nodes.world.get(f"{NODES}/n1")).json()["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    spec: dict[str, Any] = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}

    def pod(annotations: Any = MIRROR, owners: Any = (owner,), **more: Any) -> dict[str, Any]:
        metadata = {"name": "m", "annotations": annotations, "ownerReferences": list(owners)}
        return {"metadata": metadata, "spec": {**spec, **more}}

    for document, says in (
        (pod({}), "can only create mirror pods"),
        (pod(nodeName="n2"), "with spec.nodeName set to itself"),
        (pod(owners=()), "with an owner reference set to itself"),
        (pod(owners=[{**owner, "controller": False}]), "with a controller owner reference set to itself"),
        (pod(owners=[{**owner, "uid": "other"}]), "UID mismatch"),
        (pod(volumes=volumes(secret="s")), "may not reference secrets"),
        (pod(volumes=volumes(configMap="m")), "can not create pods that reference configmaps"),
        (pod(serviceAccountName="default"), "may not reference service accounts"),
    ):
        await nodes.refuses("POST", PODS, document, says)
    answer = await nodes.world.request("POST", PODS, pod(), context=nodes.n1)
    assert answer.status == 201, answer.body
    # Nothing of an account was put into it.
    assert "volumes" not in answer.json()["spec"]
    # Neither does it become another Pod afterwards.
    for value in (None, "other"):
        stripped = {"metadata": {"annotations": dict.fromkeys(MIRROR, value)}}
        answer = await nodes.world.request("PATCH", f"{PODS}/m/status", stripped, context=nodes.n1, headers=dict(MERGE))
        assert answer.status == 422
        assert "may not remove or update mirror pod annotation" in answer.message
    await nodes.asks(nodes.n2, ("DELETE", f"{PODS}/m", 403))
    await nodes.asks(nodes.n1, ("DELETE", f"{PODS}/m?gracePeriodSeconds=0", 200))


async def test_pods_of_others(nodes: Nodes) -> None:
    await nodes.pod("mine", "n1")
    await nodes.pod("theirs", "n2")
    itself = "with spec.nodeName set to itself"
    await nodes.refuses("DELETE", f"{PODS}/theirs", None, f'node "n1" can only delete pods {itself}')
    await nodes.refuses(
        "POST", f"{PODS}/theirs/eviction", {"metadata": {"name": "theirs"}}, f"node n1 can only evict pods {itself}"
    )
    # The URL names the Pod; one's own name in the body changes nothing.
    answer = await nodes.world.request(
        "POST", f"{PODS}/theirs/eviction", {"metadata": {"name": "mine"}}, context=nodes.n1
    )
    assert answer.status == 403, answer.body
    running = {"status": {"phase": "Running"}}
    await nodes.refuses(
        "PATCH", f"{PODS}/theirs/status", running, f"can only update pod status for pods {itself}", headers=MERGE
    )
    labelled = {"metadata": {"labels": {"app": "web"}}}
    await nodes.refuses("PATCH", f"{PODS}/mine", labelled, 'cannot patch resource "pods"', headers=MERGE)
    await nodes.refuses(
        "PATCH", f"{PODS}/mine/status", labelled, "cannot update labels through pod status", headers=MERGE
    )
    binding = {"metadata": {"name": "mine"}, "target": {"kind": "Node", "name": "n1"}}
    await nodes.refuses("POST", f"{PODS}/mine/binding", binding, 'cannot create resource "pods/binding"')
    await nodes.refuses("DELETE", PODS, None, 'cannot deletecollection resource "pods"')
    answer = await nodes.world.request("PATCH", f"{PODS}/mine/status", running, context=nodes.n1, headers=dict(MERGE))
    assert answer.status == 200, answer.body
    eviction = {"metadata": {"name": "mine"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    await nodes.asks(nodes.n1, ("POST", f"{PODS}/mine/eviction", 201, eviction))
    assert (await nodes.world.get(f"{PODS}/theirs")).status == 200
    assert (await nodes.world.get(f"{PODS}/mine")).status == 404


def request_for(common_name: str, signer: str, *usages: str) -> dict[str, Any]:
    subject = names.Subject(common_name=common_name, organizations=("system:nodes",))
    body = requests.build(subject, names.Sans(), keys.generate())
    return {
        "metadata": {"generateName": "csr-"},
        "spec": {"request": base64.b64encode(body).decode(), "signerName": signer, "usages": list(usages)},
    }


async def test_certificate_requests(nodes: Nodes) -> None:
    client, serving = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
    for signer, usage in ((client, "client auth"), (serving, "server auth")):
        own = request_for("system:node:n1", signer, "digital signature", usage)
        answer = await nodes.world.request("POST", CSRS, own, context=nodes.n1)
        assert answer.status == 201, answer.body
        found = answer.json()["spec"]
        assert (found["username"], found["groups"]) == ("system:node:n1", ["system:nodes", "system:authenticated"])
        other = request_for("system:node:n2", signer, "digital signature", usage)
        await nodes.refuses("POST", CSRS, other, "can only create a node CSR with CN=system:node:n1")
        name = answer.json()["metadata"]["name"]
        approval = {"metadata": {"name": name}, "status": {"conditions": [{"type": "Approved", "status": "True"}]}}
        await nodes.asks(nodes.n1, ("GET", f"{CSRS}/{name}", 200), ("PUT", f"{CSRS}/{name}/approval", 403, approval))


async def test_what_nodes_have_no_business_with(nodes: Nodes) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    await nodes.asks(
        nodes.n1,
        ("GET", "/api/v1/services", 200),
        ("GET", "/api/v1/namespaces", 403),
        ("POST", CONFIG_MAPS, 403, {"metadata": {"name": "x"}}),
        ("GET", rbac, 403),
        ("POST", rbac, 403, {"metadata": {"name": "x"}}),
        ("GET", "/api/v1/namespaces/default/serviceaccounts", 403),
        ("GET", "/metrics", 403),
    )
