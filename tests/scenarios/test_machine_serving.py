# SPDX-License-Identifier: Apache-2.0
"""Serving certificates by inventory on a real server: what a node may serve as, by its Machine or by its kubelet."""

from __future__ import annotations

import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.controllers.machines import kubelet_dial
from handfast.pki import keys, names, profiles
from handfast.rules import user_names
from handfast.rules.ledger import entries as ledger_entries
from handfast.rules.machines import bootstrapper, serving
from handfast.runtime import tls
from tests.scenarios import callers, certified, fleet_story, proving
from tests.scenarios import controlled as c
from tests.unit.controllers.machines.test_kubelet_dial import listening

pytestmark = pytest.mark.slow
ADDRESS, EXTRA = "192.0.2.7", "192.0.2.77"
EGRESS = {
    "metadata": {"name": "egressips.k8s.ovn.org"},
    "spec": {
        "group": "k8s.ovn.org",
        "scope": "Cluster",
        "names": {"kind": "EgressIP", "plural": "egressips", "singular": "egressip", "listKind": "EgressIPList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class Nodes(proving.Fleet):
    """Nodes that ask for serving certificates."""

    async def serve(self, name: str, *sans: str, node: str = "w1") -> None:
        document = certified.request(
            node,
            name=name,
            sans=names.Sans.parse(sans),
            signerName="kubernetes.io/kubelet-serving",
            usages=list(certified.SERVING_USAGES),
        )
        await self.ask(document, self.node(node))

    async def assign(self, address: str, node: str) -> None:
        """Have an address for egress on this Node."""
        body: dict[str, Any] = {
            "metadata": {"name": "egress"},
            "status": {"items": [{"node": node, "egressIP": address}]},
        }
        await self.client.create(proving.EGRESS_IPS, body)

    async def register(self, place: serving.Place, name: str = "w1") -> None:
        """A Node whose kubelet is there."""
        status = {
            "addresses": [{"type": "InternalIP", "address": str(place.address)}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": place.port}},
        }
        await self.client.create(c.NODES, {"metadata": {"name": name}, "status": status})

    def kubelet(self, *sans: str, node: str = "w1") -> ssl.SSLContext:
        """TLS of a kubelet, with a certificate of the cluster's CA."""
        key, subject = keys.generate(), user_names.node_subject(node)
        ca = callers.cluster_ca(self.world)
        issued = ca.issue(key.public, subject, names.Sans.parse(sans), profiles.KUBELET_SERVING, self.clock.now())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_pair(context, issued.pem, key.to_pem())
        return context

    async def publish_ca(self) -> None:
        """Say which CA signs kubelets."""
        data = {bootstrapper.BUNDLE_KEY: self.world.place.ca_certificate.read_text()}
        document = {"metadata": {"name": serving.CA_CONFIG_MAP}, "data": data}
        await self.client.create(c.CONFIG_MAPS, document, namespace=bootstrapper.MANAGED_NAMESPACE)


@pytest.fixture
async def nodes(tmp_path: pathlib.Path) -> AsyncIterator[Nodes]:
    async with c.story_of(Nodes, tmp_path) as story:
        await story.prepare()
        await story.client.create(fleet_story.DEFINITIONS, EGRESS)

        async def served() -> bool:
            return await story.client.serves(proving.EGRESS_IPS)

        await story.eventually(served, "EgressIPs are served")
        async with fleet_story.running(story):
            yield story


async def test_a_node_serves_as_its_machine_says_and_as_nobody_else(nodes: Nodes) -> None:
    machine = await nodes.known("w1", ("InternalIP", ADDRESS), node="w1")
    await nodes.serve("good", "DNS:w1", f"IP:{ADDRESS}")
    issued = await nodes.issued("good")
    assert issued.sans.texts() == ["DNS:w1", f"IP:{ADDRESS}"]
    title = f"Machine {fleet_story.FLEET}/w1"
    assert (await nodes.conditions("good"))["MatchedMachine"] == ("MatchedMachine", title)
    rules = [ledger_entries.decode_stored(line).rule for line in await nodes.ledger()]
    assert set(rules) == {f"MachineServing: {title}"}
    # One more address, which is nobody's yet.
    await nodes.serve("more", "DNS:w1", f"IP:{EXTRA}")
    assert await nodes.reason("more") == serving.NOT_ITS_ADDRESS
    ((_, message, _),) = await nodes.told("more")
    assert f"[{EXTRA}] is not among the addresses [{ADDRESS}] of {title}" in message
    machine["status"]["addresses"].append({"type": "ExternalIP", "address": EXTRA})
    await nodes.client.update_status(fleet_story.MACHINES, machine)
    await nodes.issued("more")


async def test_a_machine_without_addresses_is_waited_for(nodes: Nodes) -> None:
    machine = await nodes.machine("w1", addresses=[], nodeRef={"kind": "Node", "name": "w1"})
    await nodes.serve("early", "DNS:w1")
    assert await nodes.reason("early") == serving.NO_ADDRESSES
    machine["status"]["addresses"] = [{"type": "Hostname", "address": "w1"}]
    await nodes.client.update_status(fleet_story.MACHINES, machine)
    await nodes.issued("early")


async def test_an_address_for_egress_that_is_assigned_to_the_node_counts(nodes: Nodes) -> None:
    await nodes.known("w1", node="w1")
    await nodes.serve("egress", "DNS:w1", f"IP:{EXTRA}")
    assert await nodes.reason("egress") == serving.NOT_ITS_ADDRESS
    await nodes.assign(EXTRA, "w1")
    await nodes.issued("egress")


async def test_without_a_machine_a_node_renews_what_its_kubelet_serves(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.publish_ca()
    place = serving.Place(names.ip_address(ADDRESS), 10250)
    handshake = kubelet_dial._handshake
    async with listening(nodes.kubelet("DNS:w1", f"IP:{ADDRESS}")) as there:

        async def redirected(wanted: serving.Place) -> kubelet_dial.Chain:
            assert wanted == place
            return await handshake(there.place)

        monkeypatch.setattr(kubelet_dial, "_handshake", redirected)
        await nodes.register(place)
        await nodes.serve("same", "DNS:w1", f"IP:{ADDRESS}")
        await nodes.issued("same")
        await nodes.serve("more", "DNS:w1", f"IP:{ADDRESS}", f"IP:{EXTRA}")
        assert await nodes.reason("more") == serving.NOT_AS_SERVED
    await nodes.serve("away", "DNS:w1", f"IP:{ADDRESS}")
    assert await nodes.reason("away") == serving.NOT_SERVED
    # A Machine that is linked later decides alone.
    await nodes.known("w1", ("InternalIP", ADDRESS), ("ExternalIP", EXTRA), node="w1")
    for name in ("more", "away"):
        await nodes.issued(name)


async def test_a_kubelet_that_was_not_verified_is_asked_again_when_the_ca_is_known(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    handshake = kubelet_dial._handshake
    async with listening(nodes.kubelet("DNS:w1", f"IP:{ADDRESS}")) as there:
        monkeypatch.setattr(kubelet_dial, "_handshake", lambda _: handshake(there.place))
        await nodes.register(serving.Place(names.ip_address(ADDRESS), 10250))
        await nodes.serve("renewal", "DNS:w1", f"IP:{ADDRESS}")
        assert await nodes.reason("renewal") == serving.NOT_SERVED
        await nodes.publish_ca()
        await nodes.issued("renewal")


async def test_a_binding_for_serving_certificates_goes_round_nothing(nodes: Nodes) -> None:
    """csrapproving would approve by the Node's own addresses: it leaves these requests alone."""
    await nodes.bind("selfnodeserver", "system:nodes")
    await nodes.known("w1", ("InternalIP", ADDRESS), node="w1")
    await nodes.register(serving.Place(names.ip_address(EXTRA), 10250))
    await nodes.serve("claimed", f"IP:{EXTRA}")
    assert await nodes.reason("claimed") == serving.NOT_ITS_ADDRESS
    await nodes.quiet()
    assert await nodes.conditions("claimed") == {}
