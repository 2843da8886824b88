# SPDX-License-Identifier: Apache-2.0
"""An identity is taken back on an API server that knows no Revocations: Certify and the agents refuse it, though its tokens are good there.

On Handfast's own server without its controllers, and on a stock kube-apiserver. Where there is no kube-apiserver its half is not
proven: see `clusters`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import clusters, meshes
from tests.scenarios import agents_world, up_world
from tests.scenarios.agents_world import Workload
from tests.world import agent_client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
until = up_world.until


@pytest.fixture(scope="module", params=list(meshes.SERVERS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with meshes.SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        found.handfast("mesh", "install")
        yield found


@pytest.fixture(scope="module")
def world(cluster: clusters.Cluster) -> Iterator[agents_world.World]:
    with agents_world.beside(meshes.Plane(cluster)) as world:
        yield world


def test_who_is_revoked_gets_nothing_though_its_token_is_good(
    cluster: clusters.Cluster, world: agents_world.World
) -> None:
    web, db = Workload(world, "shop", "web"), Workload(world, "shop", "db")
    with world.destination.watch(db.pair) as neighbour:
        until(lambda: neighbour.updates, 20, f"the first update; it ended with {neighbour.ended}")
        for words, is_named in ((("shop/web",), True), (("--pod", "shop/web-1"), False)):
            world.revoke(*words)
            until(lambda: web.digest in neighbour.last.certificates, 20, "the digest")
            assert (web.name in neighbour.last.names) is is_named
            until(lambda: not web.can_renew(), 20, "the refusal of Certify")
            assert web.may_use_the_api() is cluster.stock, "only a Handfast server refuses tokens by Revocations"
            world.revoke(*words, "--undo")
            until(lambda: web.digest not in neighbour.last.certificates, 20, "the digest to go")
            until(web.can_renew, 30, "the next certificate")
        assert neighbour.ended is None


def test_reports_become_workloads_there_too(world: agents_world.World) -> None:
    web = Workload(world, "reports", "web")
    with world.destination.watch(web.pair, agent_client.report(pod=("reports", "web-1"))) as agent:
        until(lambda: agent.updates, 20, f"the first update; it ended with {agent.ended}")
        agent.report(agent_client.report(agent.last.version))
        until(lambda: web.observed().get("acknowledged") == agent.last.version, 30, "the acknowledgement")
    # A Pod made anew under the name has an object of its own.
    assert world.plane.call("DELETE", "/api/v1/namespaces/reports/pods/web-1?gracePeriodSeconds=0")[0] == 200
    anew = Workload(world, "reports", "web")
    with world.destination.watch(anew.pair, agent_client.report(pod=("reports", "web-1"))) as agent:
        until(lambda: agent.updates, 20, f"the first update; it ended with {agent.ended}")
        until(
            lambda: anew.observed().get("certificate", {}).get("sha256") == anew.leaf.fingerprint, 30, "its own object"
        )
