# SPDX-License-Identifier: Apache-2.0
"""The injector renews its certificate while an API server goes on asking it: Handfast's own, and a stock kube-apiserver, where there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import meshes, running
from tests.scenarios import injector_history, injector_world, up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = (
    *("--set", f"injector.certificateLifetime={injector_history.LIFETIME.total_seconds():.0f}s"),
    *("--set", "injector.failurePolicy=Fail"),
)


@pytest.fixture(params=list(meshes.SERVERS))
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[meshes.Plane]:
    """A mesh whose injectors have certificates of two minutes, and without which no Pod is made."""
    with meshes.SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as cluster:
        yield meshes.Plane(cluster)


def test_no_pod_is_missed_while_the_certificate_is_renewed_and_a_replica_ends(plane: meshes.Plane) -> None:
    host, ports = meshes.own_address(), running.free_ports(2)
    plane.cluster.handfast("mesh", "install", *SETTINGS, "--endpoint", f"injector={host}:{ports[0]}")
    injector_world.namespace(plane, "shop", inject="enabled")
    plane.account("shop", "web")
    injector_history.age(plane)
    with (
        injector_world.Injector(plane, "one", f"{host}:{ports[0]}") as one,
        injector_world.Injector(plane, "two", f"{host}:{ports[1]}") as two,
    ):
        one.ready()
        two.ready()
        document = injector_world.pod("probe")
        document["spec"]["serviceAccountName"] = "web"
        up_world.until(lambda: injector_world.create(plane, "shop", document)[0] == 201, 40, "a webhook that is called")
        history = injector_history.History(plane)
        with injector_world.Stream(plane, "renewed", account="web") as stream:
            up_world.until(lambda: history.has_switched(one, two), 150, "another certificate")
            up_world.until(
                lambda: one.serial() == two.serial() == injector_world.stored_serial(plane), 20, "one certificate"
            )
            # The replica that nobody asks ends, and the other one goes on.
            two.stop()
            seen = len(stream.codes)
            up_world.until(lambda: len(stream.codes) > max(50, seen + 10), 60, "a few more Pods")
        assert not stream.bare
        assert "switch" in history.steps()
