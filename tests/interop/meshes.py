# SPDX-License-Identifier: Apache-2.0
"""A mesh on an API server that Handfast did not start, or that runs without its controllers. It proves nothing itself.

What tests ask of a mesh on `handfast up` they can ask of this one: `scenarios.mesh_world` has both.
"""

from __future__ import annotations

import socket
from typing import Final

import pytest

from tests.interop import clusters
from tests.scenarios import mesh_world

SERVERS: Final = {"handfast": clusters.handfast_server, "kube-apiserver": clusters.kube_apiserver}


def own_address() -> str:
    """One of this machine's that is no loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only says which way it would go.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("not run: this machine has no address but loopback ones")
        return str(probe.getsockname()[0])


class Plane(mesh_world.Plane):
    """The mesh of a cluster; whoever started the cluster ends it."""

    # There is no process of its own to start.
    def __init__(self, cluster: clusters.Cluster) -> None:
        self.cluster = cluster
        self.directory = cluster.directory
        self.facts = {"apiserver": f"https://{cluster.address}"}
