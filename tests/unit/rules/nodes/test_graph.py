# SPDX-License-Identifier: Apache-2.0
"""The graph, event by event: what leads where, and that nothing is kept of what is gone."""

from __future__ import annotations

import pytest

from handfast.rules.nodes import graph as node_graph
from handfast.rules.nodes import references as node_references
from handfast.rules.nodes.references import ATTACHMENTS, CLAIMS, CONFIG_MAPS, PODS, SECRETS, VOLUMES


def pod(name: str, node: str, *references: tuple[str, str], namespace: str = "ns") -> node_references.Pod:
    return node_references.Pod(namespace, name, node, frozenset(references))


def volume(name: str, claim: str, *secrets: str) -> node_references.Volume:
    return node_references.Volume(name, ("ns", claim), tuple(("storage", secret) for secret in secrets))


def leads(graph: node_graph.NodeGraph, kind: str, name: str, namespace: str = "ns") -> set[str]:
    return {node for node in ("", "a", "b", "c") if graph.reaches(kind, namespace, name, node)}


def empty(graph: node_graph.NodeGraph) -> bool:
    return not any(vars(graph).values())


class TestPods:
    def test_a_pod_leads_to_its_node(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_pod(pod("p", "a", (SECRETS, "s"), (CONFIG_MAPS, "c")))
        for kind, name in ((PODS, "p"), (SECRETS, "s"), (CONFIG_MAPS, "c")):
            assert leads(graph, kind, name) == {"a"}
            assert leads(graph, kind, name, "other") == set()
            assert leads(graph, kind, name, "") == set()
            assert leads(graph, kind, "x") == set()
        assert leads(graph, CONFIG_MAPS, "s") == set()
        graph.remove_pod("ns", "p")
        assert leads(graph, SECRETS, "s") == leads(graph, PODS, "p") == set()
        assert empty(graph)

    def test_what_pods_share_leads_to_all_their_nodes_until_the_last_is_gone(self) -> None:
        graph = node_graph.NodeGraph()
        for name, node in (("p1", "a"), ("p2", "a"), ("p3", "b"), ("p4", "b"), ("p5", "c")):
            graph.set_pod(pod(name, node, (SECRETS, "s")))
        assert leads(graph, SECRETS, "s") == {"a", "b", "c"}
        for name, left in (
            ("p3", {"a", "b", "c"}),
            ("p1", {"a", "b", "c"}),
            ("p2", {"b", "c"}),
            ("p4", {"c"}),
            ("p5", set()),
        ):
            graph.remove_pod("ns", name)
            assert leads(graph, SECRETS, "s") == left
        assert empty(graph)

    def test_the_first_node_comes_back(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_pod(pod("p1", "a", (SECRETS, "s")))
        graph.set_pod(pod("p2", "b", (SECRETS, "s")))
        graph.remove_pod("ns", "p1")
        graph.set_pod(pod("p3", "b", (SECRETS, "s")))
        graph.set_pod(pod("p1", "a", (SECRETS, "s")))
        graph.remove_pod("ns", "p2")
        assert leads(graph, SECRETS, "s") == {"a", "b"}
        graph.remove_pod("ns", "p3")
        assert leads(graph, SECRETS, "s") == {"a"}

    def test_a_pod_without_a_node_leads_nowhere(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_pod(pod("p", "", (SECRETS, "s")))
        assert empty(graph)
        graph.set_pod(pod("p", "a", (SECRETS, "s")))
        graph.set_pod(pod("p", "", (SECRETS, "s")))
        assert empty(graph)

    def test_a_pod_seen_again_replaces_what_was_known(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_pod(pod("p", "a", (SECRETS, "old"), (SECRETS, "stays")))
        graph.set_pod(pod("p", "b", (SECRETS, "new"), (SECRETS, "stays")))
        assert leads(graph, PODS, "p") == leads(graph, SECRETS, "new") == leads(graph, SECRETS, "stays") == {"b"}
        assert leads(graph, SECRETS, "old") == set()
        graph.remove_pod("ns", "p")
        assert empty(graph)

    def test_unknown_pods_are_forgotten_in_peace(self) -> None:
        graph = node_graph.NodeGraph()
        graph.remove_pod("ns", "p")
        graph.set_pod(pod("q", "a"))
        graph.remove_pod("ns", "p")
        assert leads(graph, PODS, "q") == {"a"}

    def test_the_same_name_in_two_namespaces(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_pod(pod("p", "a", (SECRETS, "s"), namespace="one"))
        graph.set_pod(pod("p", "b", (SECRETS, "s"), namespace="two"))
        assert leads(graph, SECRETS, "s", "one") == leads(graph, PODS, "p", "one") == {"a"}
        assert leads(graph, SECRETS, "s", "two") == leads(graph, PODS, "p", "two") == {"b"}
        graph.remove_pod("one", "p")
        assert leads(graph, SECRETS, "s", "one") == leads(graph, PODS, "p", "one") == set()
        assert leads(graph, SECRETS, "s", "two") == leads(graph, PODS, "p", "two") == {"b"}


class TestVolumes:
    @pytest.mark.parametrize("pod_first", [True, False])
    def test_volume_and_secret_lead_where_the_claim_does(self, pod_first: bool) -> None:
        graph = node_graph.NodeGraph()
        steps = [
            lambda: graph.set_pod(pod("p", "a", (CLAIMS, "data"))),
            lambda: graph.set_pv(volume("pv", "data", "s")),
        ]
        for step in steps if pod_first else reversed(steps):
            step()
        graph.set_pod(pod("q", "b", (CLAIMS, "data")))
        for kind, name, namespace in ((CLAIMS, "data", "ns"), (VOLUMES, "pv", ""), (SECRETS, "s", "storage")):
            assert leads(graph, kind, name, namespace) == {"a", "b"}
        assert leads(graph, VOLUMES, "pv", "ns") == leads(graph, SECRETS, "s") == set()
        graph.remove_pod("ns", "p")
        assert leads(graph, VOLUMES, "pv", "") == leads(graph, SECRETS, "s", "storage") == {"b"}
        graph.remove_pv("pv")
        assert leads(graph, VOLUMES, "pv", "") == leads(graph, SECRETS, "s", "storage") == set()
        assert leads(graph, CLAIMS, "data") == {"b"}
        graph.remove_pod("ns", "q")
        assert empty(graph)

    def test_two_pods_of_a_node_share_a_claim_until_the_last_has_gone(self) -> None:
        """On the first node that a claim leads to, and on any other: these are counted apart."""
        graph = node_graph.NodeGraph()
        graph.set_pv(volume("pv", "data", "s"))
        for name, node in (("p1", "a"), ("p2", "a"), ("p3", "b"), ("p4", "b")):
            graph.set_pod(pod(name, node, (CLAIMS, "data")))
        for name, left in (("p1", {"a", "b"}), ("p3", {"a", "b"}), ("p2", {"b"}), ("p4", set())):
            graph.remove_pod("ns", name)
            for kind, shared, namespace in ((CLAIMS, "data", "ns"), (VOLUMES, "pv", ""), (SECRETS, "s", "storage")):
                assert leads(graph, kind, shared, namespace) == left
        graph.remove_pv("pv")
        assert empty(graph)

    def test_a_secret_of_many_volumes(self) -> None:
        graph = node_graph.NodeGraph()
        for number, node in enumerate("aab"):
            graph.set_pv(volume(f"pv{number}", f"data{number}", "s"))
            graph.set_pod(pod(f"p{number}", node, (CLAIMS, f"data{number}")))
        assert leads(graph, SECRETS, "s", "storage") == {"a", "b"}
        graph.remove_pv("pv0")
        assert leads(graph, SECRETS, "s", "storage") == {"a", "b"}
        graph.remove_pod("ns", "p1")
        assert leads(graph, SECRETS, "s", "storage") == {"b"}

    def test_a_secret_of_a_volume_and_of_a_pod(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_pv(volume("pv", "data", "s"))
        graph.set_pod(pod("p", "a", (CLAIMS, "data")))
        graph.set_pod(pod("q", "a", (SECRETS, "s"), namespace="storage"))
        graph.remove_pv("pv")
        assert leads(graph, SECRETS, "s", "storage") == {"a"}
        graph.remove_pod("storage", "q")
        assert leads(graph, SECRETS, "s", "storage") == set()

    def test_two_volumes_for_one_claim(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_pod(pod("p", "a", (CLAIMS, "data")))
        graph.set_pv(volume("pv1", "data"))
        graph.set_pv(volume("pv2", "data"))
        graph.remove_pv("pv1")
        assert leads(graph, VOLUMES, "pv1", "") == set()
        assert leads(graph, VOLUMES, "pv2", "") == {"a"}

    def test_a_volume_seen_again_replaces_what_was_known(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_pod(pod("p", "a", (CLAIMS, "data")))
        graph.set_pod(pod("q", "b", (CLAIMS, "other")))
        graph.set_pv(volume("pv", "data", "s", "t"))
        graph.set_pv(volume("pv", "data", "s", "t"))
        graph.set_pv(volume("pv", "other", "t"))
        assert leads(graph, SECRETS, "s", "storage") == set()
        assert leads(graph, SECRETS, "t", "storage") == leads(graph, VOLUMES, "pv", "") == {"b"}
        graph.set_pv(node_references.Volume("pv"))
        assert leads(graph, SECRETS, "t", "storage") == leads(graph, VOLUMES, "pv", "") == set()
        graph.remove_pod("ns", "p")
        graph.remove_pod("ns", "q")
        assert empty(graph)

    def test_unknown_and_unclaimed_volumes(self) -> None:
        graph = node_graph.NodeGraph()
        graph.remove_pv("pv")
        graph.set_pv(node_references.Volume("pv"))
        assert empty(graph)


class TestAttachments:
    def test_an_attachment_leads_to_its_node(self) -> None:
        graph = node_graph.NodeGraph()
        graph.set_attachment("va", "a")
        assert leads(graph, ATTACHMENTS, "va", "") == {"a"}
        assert leads(graph, ATTACHMENTS, "va") == leads(graph, ATTACHMENTS, "x", "") == set()
        graph.set_attachment("va", "b")
        assert leads(graph, ATTACHMENTS, "va", "") == {"b"}
        graph.set_attachment("va", "")
        graph.remove_attachment("va")
        assert empty(graph)


class TestCost:
    """Counted in steps, not in time: what one event passes on must not grow with the cluster."""

    @pytest.mark.parametrize("size", [10, 1000])
    def test_a_pod_costs_what_it_refers_to(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = node_graph.NodeGraph()
        for number in range(size):
            graph.set_pv(volume(f"pv{number}", f"data{number}", "s"))
            graph.set_pod(pod(f"p{number}", f"node{number}", (SECRETS, "shared"), (CLAIMS, f"data{number}")))
        steps: list[str] = []
        gain, lose = graph._gain, graph._lose

        def counted_gain(key: node_graph.Key, node: str) -> node_graph.Vertex:
            steps.append("gain")
            return gain(key, node)

        def counted_lose(vertex: node_graph.Vertex, node: str) -> None:
            steps.append("lose")
            lose(vertex, node)

        monkeypatch.setattr(graph, "_gain", counted_gain)
        monkeypatch.setattr(graph, "_lose", counted_lose)
        graph.remove_pod("ns", "p5")
        graph.set_pod(pod("p5", "node5", (SECRETS, "shared"), (CLAIMS, "data5")))
        # Shared Secret, claim, its volume, the volume's Secret: taken back, and given again.
        assert sorted(steps) == ["gain"] * 4 + ["lose"] * 4
        graph.set_pv(volume("pv5", "data5", "t"))
        assert len(steps) == 8 + 4


def test_a_volume_that_no_pod_uses_comes_and_goes() -> None:
    graph = node_graph.NodeGraph()
    graph.set_pv(volume("v", "claim", "s"))
    assert leads(graph, VOLUMES, "v", "") == leads(graph, SECRETS, "s", "storage") == set()
    graph.remove_pv("v")
    assert empty(graph)
