# SPDX-License-Identifier: Apache-2.0
"""Who is approved, who is asked about, who waits, and what is said of them."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from handfast import errors
from handfast.api import objects, signer_names, status
from handfast.client import cache, events, revoked
from handfast.controllers import loop, node_leases
from handfast.controllers.certificates import approver, living_nodes
from handfast.controllers.certificates import verdicts as verdicts_module
from handfast.pki import names
from tests.unit.controllers.csr_world import NODE, PLURAL, SERVING, key
from tests.unit.controllers.csr_world import World as Base

JOIN = "Auto approving kubelet client certificate after SubjectAccessReview."
SELF = "Auto approving self kubelet client certificate after SubjectAccessReview."
SERVE = "Auto approving self kubelet serving certificate after SubjectAccessReview."
SANS = names.make_sans(dns=["n1.example"], ip=["192.0.2.7"])
SERVER: dict[str, Any] = {
    "signerName": signer_names.KUBELET_SERVING,
    "usages": list(SERVING),
    "username": NODE,
    "groups": ["system:nodes"],
    "sans": SANS,
}


class World(Base):
    def __init__(self, *allowed: str, protect: bool = True) -> None:
        super().__init__()
        self.client.allowed = set(allowed)
        recorder = events.Recorder(self.client, self.clock, approver.NAME)
        self.followed = cache.Informer(node_leases.SOURCE)
        self.revoked = cache.Informer(revoked.SOURCE)
        self.followed.end()
        self.living = living_nodes.LivingNodes(
            self.client, self.clock, node_leases.NodeLeases(self.followed, self.clock) if protect else None
        )
        verdicts = verdicts_module.Verdicts(
            self.client, self.clock, self.requests, recorder, approver.DECISIONS, revoked.Revoked(self.revoked)
        )
        # Whose requests another approver judges.
        self.left: set[str] = set()
        self.handler = approver.CsrApprover(
            self.client, self.clock, self.requests, verdicts, self.living, lambda spec: spec.username in self.left
        )

    async def approve(self, name: str = "x") -> str | float:
        """`done`, or `again` if it is to be tried later; or in how many seconds."""
        try:
            again = await self.handler.reconcile(name)
        except loop.NotYet:
            return "again"
        return "done" if again is None else again

    def renew(self, node: str = "n1", *, behind: float = 0.0) -> None:
        """Have a node's Lease renewed, and the watch tell of it."""
        at = self.clock.now() - datetime.timedelta(seconds=behind)
        spec = {"renewTime": objects.micro_timestamp(at), "leaseDurationSeconds": 40}
        document = self.client.put("leases", node, "kube-node-lease", spec=spec)
        self.followed.put(msgspec.convert(document, node_leases.Lease))

    def revoke(self, name: str, **spec: Any) -> None:
        self.revoked.put(msgspec.convert({"metadata": {"name": name}, "spec": spec}, revoked.Revocation))

    def asked(self) -> list[str]:
        return [spec["resourceAttributes"]["subresource"] for spec in self.client.reviews]

    def updates(self) -> list[tuple[str, str, str]]:
        return [call for call in self.client.calls if call[1] == PLURAL]


@pytest.mark.parametrize(
    ("allowed", "more", "asked", "message"),
    [
        pytest.param(["nodeclient"], {}, ["nodeclient"], JOIN, id="a node joins"),
        pytest.param(["selfnodeclient"], {"username": NODE}, ["selfnodeclient"], SELF, id="a node renews"),
        pytest.param(
            ["nodeclient"],
            {"username": NODE},
            ["selfnodeclient", "nodeclient"],
            JOIN,
            id="the second answer counts too",
        ),
        pytest.param(
            ["nodeclient"],
            {"usages": ["digital signature", "key encipherment", "client auth"]},
            ["nodeclient"],
            JOIN,
            id="an RSA key",
        ),
        pytest.param(["nodeclient"], {"username": "joe"}, ["nodeclient"], JOIN, id="requester joe, CN of another"),
    ],
)
async def test_a_request_that_may_be_approved_is_approved_once(
    allowed: list[str], more: dict[str, Any], asked: list[str], message: str
) -> None:
    world = World(*allowed)
    world.add(**more)
    assert await world.approve() == "done"
    assert (world.asked(), world.updates()) == (asked, [("update approval", PLURAL, "x")])
    assert world.conditions() == [("Approved", "AutoApproved", message)]
    assert world.stored()["status"]["conditions"][0]["lastUpdateTime"] == "2030-01-01T00:00:00Z"
    # What was written counts at once: nothing is done a second time.
    assert await world.approve() == "done"
    assert len(world.updates()) == 1
    assert world.events() == []


async def test_the_question_is_kubernetes_own() -> None:
    world = World("nodeclient")
    world.add(uid="7", extra={"k": ["v", "w"]})
    await world.approve()
    attributes = {"group": "certificates.k8s.io", "version": "*", "resource": PLURAL, "subresource": "nodeclient"}
    assert world.client.reviews == [
        {
            "user": "joiner",
            "uid": "7",
            "groups": ["joiners"],
            "extra": {"k": ["v", "w"]},
            "resourceAttributes": {**attributes, "verb": "create"},
        }
    ]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        pytest.param({"common_name": "mike"}, "common name: 'mike'", id="CN mike"),
        pytest.param({"organizations": []}, "organization: none is to be [system:nodes]", id="no organization"),
        pytest.param({"organizations": ["system:master"]}, "organization: [system:master]", id="another organization"),
        pytest.param({"organizations": ["system:nodes", "b"]}, "organization: [", id="one more organization"),
        pytest.param({"usages": ["client auth", "server auth"]}, "usages: [", id="server auth"),
        pytest.param({"sans": SANS}, "no alternative names: it has [", id="alternative names"),
        pytest.param({"request": "junk"}, "readable: ", id="unreadable"),
        pytest.param({**SERVER, "username": "joiner"}, "requester: 'joiner'", id="serving, of another"),
    ],
)
async def test_not_recognised(more: dict[str, Any], says: str) -> None:
    world = World("nodeclient", "selfnodeclient", "selfnodeserver")
    world.client.put("nodes", "n1", status={"addresses": [{"address": "n1.example"}, {"address": "192.0.2.7"}]})
    world.add(**more)
    assert await world.approve() == "done"
    assert (world.asked(), world.updates()) == ([], [])
    ((reason, message),) = world.events()
    assert says in message
    assert "; to change that: create a new request" in message or "send the request as" in message
    # Said once, however often it is looked at.
    calls = len(world.client.calls)
    await world.approve()
    assert len(world.client.calls) == calls
    assert reason == ("MalformedPEM" if says == "readable: " else "NotRecognised")


@pytest.mark.parametrize(
    ("conditions", "more"),
    [
        pytest.param((), {"signerName": signer_names.KUBE_APISERVER_CLIENT}, id="a person's"),
        pytest.param((), {"signerName": "example.com/other"}, id="another signer's"),
        pytest.param(("Approved",), {}, id="approved"),
        pytest.param(("Denied",), {}, id="denied"),
        pytest.param((), {"certificate": "c"}, id="issued"),
    ],
)
async def test_not_its_business(conditions: tuple[str, ...], more: dict[str, Any]) -> None:
    world = World("nodeclient")
    world.add("x", *conditions, **more)
    assert await world.approve() == "done"
    assert (world.asked(), world.client.calls) == ([], [])
    assert await world.approve("unknown") == "done"


async def test_recognised_and_refused() -> None:
    world = World()
    world.add(username=NODE)
    assert await world.approve() == "again"
    assert (world.asked(), world.updates()) == (["selfnodeclient", "nodeclient"], [])
    ((reason, message),) = world.events()
    assert (reason, "permission: create certificatesigningrequests/" in message) == ("NotPermitted", True)
    assert await world.approve() == "again"
    assert len(world.events()) == 1
    world.client.allowed = {"selfnodeclient"}
    assert await world.approve() == "done"
    assert world.conditions() == [("Approved", "AutoApproved", SELF)]


async def test_serving_certificates() -> None:
    world = World()
    world.add(**SERVER)
    # Not registered, and then with another address; then all is right but the permission.
    assert await world.approve() == "again"
    world.client.put("nodes", "n1", status={"addresses": [{"address": "N1.example"}, {"address": "192.0.2.8"}]})
    assert await world.approve() == "again"
    world.client.put("nodes", "n1", status={"addresses": [{"address": "N1.example"}, {"address": "192.0.2.7"}]})
    assert await world.approve() == "again"
    assert [reason for reason, _ in world.events()] == [
        "NotAnAddressOfTheNode",
        "NotAnAddressOfTheNode",
        "NotPermitted",
    ]
    assert world.asked() == ["selfnodeserver"]
    world.client.allowed = {"selfnodeserver"}
    assert await world.approve() == "done"
    assert world.conditions() == [("Approved", "AutoApproved", SERVE)]


async def test_a_name_that_is_no_nodes_is_not_looked_up() -> None:
    world = World()

    def refuse(verb: str, plural: str, name: str) -> None:
        assert plural != "nodes", name

    world.client.before = refuse
    world.add(**{**SERVER, "common_name": "system:node:../secrets", "username": "system:node:../secrets"})
    assert await world.approve() == "done"
    assert [reason for reason, _ in world.events()] == ["NotRecognised"]


async def test_another_nodes_address_is_not_approved() -> None:
    world = World()
    addresses = [{"address": "n1.example"}, {"address": "192.0.2.7"}]
    world.client.put("nodes", "n1", status={"addresses": addresses})
    world.client.put("nodes", "n2", status={"addresses": [{"address": "192.0.2.7"}]})
    world.add(**SERVER)
    listed: list[str] = []
    world.client.before = lambda verb, plural, _: listed.append(plural) if verb == "list" else None
    # All Nodes are only read for whom it would make a difference.
    assert await world.approve() == "again"
    assert listed == []
    world.client.allowed = {"selfnodeserver"}
    assert await world.approve() == "again"
    assert (listed, world.updates()) == (["nodes"], [])
    (_, (reason, message)) = world.events()
    assert (reason, "reserved names: [192.0.2.7]" in message) == ("ReservedName", True)
    # The other one goes.
    del world.client.objects["nodes", "", "n2"]
    assert await world.approve() == "done"
    assert world.conditions() == [("Approved", "AutoApproved", SERVE)]


@pytest.mark.parametrize("name", ["kubernetes.default.svc", "localhost", "127.0.0.1"])
async def test_what_is_no_nodes_is_not_approved(name: str) -> None:
    world = World("selfnodeserver")
    world.client.put("nodes", "n1", status={"addresses": [{"address": name}]})
    world.add(**{**SERVER, "sans": names.make_sans(dns=[name])})
    assert await world.approve() == "again"
    assert (world.asked(), world.updates()) == ([], [])
    assert [reason for reason, _ in world.events()] == ["ReservedName"]


async def test_a_lost_race_is_the_loops_to_retry() -> None:
    world = World("nodeclient")
    world.add()
    world.client.objects[PLURAL, "", "x"]["metadata"]["resourceVersion"] = "99"
    with pytest.raises(errors.Refused) as caught:
        await world.approve()
    assert (caught.value.reason, world.updates()) == ("Conflict", [])


async def test_deleted_just_then() -> None:
    world = World("nodeclient")
    world.add()
    del world.client.objects[PLURAL, "", "x"]
    assert await world.approve() == "done"


async def test_a_new_request_of_the_same_name_is_told_of_again() -> None:
    world = World()
    world.add(common_name="mike")
    await world.approve()
    world.handler.forget("x")
    world.add(common_name="mike", metadata={"uid": "another"})
    await world.approve()
    assert len(world.events()) == 2


TOKEN: dict[str, Any] = {"username": "system:bootstrap:abcdef", "groups": ["system:bootstrappers"]}


async def test_the_name_of_a_living_node_waits_for_its_lease() -> None:
    world = World("nodeclient")
    world.renew()
    world.add(**TOKEN)
    assert await world.approve() == 40
    ((kind, reason, message),) = world.conditions()
    assert (kind, reason) == ("Waiting", "NodeIsAlive")
    assert 'the Node "n1" is alive' in message
    assert "at 2030-01-01T00:00:41Z or later" in message
    ((reason, message),) = world.events()
    assert reason == "NodeIsAlive"
    assert message.startswith("Pending: living node: ")
    assert message.endswith("handfast csr approve x")
    # It goes on living: nothing more is said or written.
    await world.clock.advance(35)
    world.renew()
    await world.clock.advance(5)
    assert await world.approve() == 35
    assert (len(world.events()), len(world.updates())) == (1, 1)
    # And is approved when it was found for a while to do so no more; what it waited for is not said of it any longer.
    await world.clock.advance(35)
    for _ in range(5):
        assert await world.approve() == 4
        await world.clock.advance(4)
    assert await world.approve() == "done"
    assert world.conditions() == [("Approved", "AutoApproved", JOIN)]
    assert world.living.waiting_for("n1") == ()


async def test_an_api_server_that_was_away_gives_no_name_away() -> None:
    """Nobody could renew meanwhile: the nodes have their time to come back, also where it was away again in between."""
    world = World("nodeclient")
    world.renew()
    world.add(**TOKEN)
    assert await world.approve() == 40
    await world.clock.advance(90)
    assert await world.approve() == 4
    await world.clock.advance(4)
    assert await world.approve() == 4
    # Away again, for longer than it takes: the looks before it count for nothing.
    await world.clock.advance(60)
    assert await world.approve() == 4
    await world.clock.advance(4)
    world.renew()
    assert await world.approve() == 40
    assert world.conditions()[0][:2] == ("Waiting", "NodeIsAlive")


async def test_a_lease_that_is_deleted_has_its_requests_judged() -> None:
    world = World("nodeclient")
    world.renew()
    world.add(**TOKEN)
    world.add("y", **TOKEN)
    assert [await world.approve(name) for name in "xy"] == [40, 40]
    assert sorted(world.living.waiting_for("n1")) == ["x", "y"]
    world.handler.forget("y")
    assert world.living.waiting_for("n1") == ("x",)
    del world.client.objects["leases", "kube-node-lease", "n1"]
    assert await world.approve() == "done"
    assert [row[0] for row in world.conditions()] == ["Approved"]


async def test_the_server_is_asked_before_a_name_is_given_away() -> None:
    """The watch may be late."""
    world = World("nodeclient")
    spec = {"renewTime": objects.micro_timestamp(world.clock.now()), "leaseDurationSeconds": 40}
    world.client.put("leases", "n1", "kube-node-lease", spec=spec)
    world.add(**TOKEN)
    assert await world.approve() == 40


async def test_a_node_whose_clock_is_behind_is_alive_while_its_lease_changes() -> None:
    world = World("nodeclient")
    world.renew(behind=7200)
    await world.clock.advance(10)
    world.renew(behind=7200)
    world.add(**TOKEN)
    assert await world.approve() == 40


@pytest.mark.parametrize(
    ("allowed", "more"),
    [
        pytest.param("selfnodeclient", {"username": NODE}, id="it renews"),
        pytest.param("nodeclient", {"username": NODE}, id="it renews, by the other permission"),
        pytest.param(
            "nodeclient",
            {"username": "system:node-recovery:n1", "groups": ["system:node-recovery"]},
            id="it recovers",
        ),
    ],
)
async def test_a_living_node_may_have_its_own_name(allowed: str, more: dict[str, Any]) -> None:
    world = World(allowed)
    world.renew()
    world.add(**more)
    assert await world.approve() == "done"
    assert [kind for kind, _, _ in world.conditions()] == ["Approved"]


def forbid_leases(_verb: str, plural: str, _name: str) -> None:
    if plural == "leases":
        raise status.forbidden("leases", "coordination.k8s.io", "n1", "no right")


async def test_a_name_whose_lease_may_not_be_read_waits_if_it_has_a_node() -> None:
    world = World("nodeclient")
    world.client.before = forbid_leases
    world.client.put("nodes", "n1")
    world.add()
    for _ in range(3):
        assert await world.approve() == 30
    assert world.conditions() == []
    ((reason, text),) = world.events()
    assert reason == "LeasesForbidden"
    assert 'there is a Node "n1"' in text
    assert "no right" in text
    assert "--print-manifest" in text
    # With the right it is judged as ever.
    world.client.before = lambda *_: None
    world.renew()
    assert await world.approve() == 40
    assert [kind for kind, _, _ in world.conditions()] == ["Waiting"]


async def test_a_new_name_needs_no_right_to_read_leases() -> None:
    world = World("nodeclient")
    world.client.before = forbid_leases
    world.add()
    assert await world.approve() == "done"
    assert [kind for kind, _, _ in world.conditions()] == ["Approved"]
    assert world.living.waiting_for("n1") == ()


async def test_a_renewal_needs_no_right_to_read_leases() -> None:
    world = World("selfnodeclient")
    world.client.before = forbid_leases
    world.client.put("nodes", "n1")
    world.add(username=NODE, groups=["system:nodes"])
    assert await world.approve() == "done"
    assert [row[0] for row in world.conditions()] == ["Approved"]


async def test_other_trouble_with_the_lease_is_the_loops_to_retry() -> None:
    def fail(_verb: str, plural: str, _name: str) -> None:
        if plural == "leases":
            raise status.StatusError("InternalError", "oops")

    world = World("nodeclient")
    world.client.before = fail
    world.add()
    with pytest.raises(status.StatusError, match="oops"):
        await world.handler.reconcile("x")


async def test_where_living_nodes_are_not_protected() -> None:
    world = World("nodeclient", protect=False)
    world.renew()
    world.add(**TOKEN)
    assert await world.approve() == "done"
    assert [kind for kind, _, _ in world.conditions()] == ["Approved"]


@pytest.mark.parametrize(
    "spec", [{"node": "n1"}, {"user": NODE}, {"keyFingerprint": f"sha256:{key().public.fingerprint}"}]
)
async def test_a_revoked_name_or_key_is_denied(spec: dict[str, Any]) -> None:
    world = World("nodeclient")
    world.revoke("gone", **spec, reason="stolen from the rack")
    world.add(**TOKEN)
    assert await world.approve() == "done"
    ((kind, reason, message),) = world.conditions()
    assert (kind, reason) == ("Denied", "Revoked")
    assert 'is refused by Revocation "gone"' in message
    # Who asks is not told why.
    assert "stolen" not in message
    assert world.asked() == []


async def test_while_revocations_may_not_be_read_every_request_waits() -> None:
    world = World("nodeclient")
    world.revoke("known", node="n2")
    world.revoked.refused("revocations is forbidden: no right")
    world.add()
    assert [await world.approve() for _ in range(3)] == ["again"] * 3
    assert world.conditions() == []
    ((reason, text),) = world.events()
    assert (reason, "no right" in text, "--print-manifest" in text) == ("RevocationsForbidden", True, True)
    # What was known counts.
    world.add("y", common_name="system:node:n2")
    await world.approve("y")
    assert [kind for kind, _, _ in world.conditions("y")] == ["Denied"]
    world.revoked.refused("")
    assert await world.approve() == "done"
    assert [kind for kind, _, _ in world.conditions()] == ["Approved"]


async def test_a_revocation_that_is_undone_denies_nobody() -> None:
    world = World("nodeclient")
    world.revoke("gone", node="n1")
    (item,) = world.revoked
    world.revoked.remove(item)
    world.add(**TOKEN)
    assert await world.approve() == "done"
    assert [kind for kind, _, _ in world.conditions()] == ["Approved"]


async def test_what_another_approver_judges_is_left_alone() -> None:
    world = World("nodeclient")
    world.left.add("joiner")
    world.add()
    assert await world.approve() == "done"
    assert (world.asked(), world.updates(), world.events()) == ([], [], [])
    # Its judge is gone: it is judged here.
    world.left.clear()
    await world.approve()
    assert world.conditions() == [("Approved", "AutoApproved", JOIN)]
