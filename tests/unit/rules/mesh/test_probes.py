# SPDX-License-Identifier: Apache-2.0
"""Which paths the kubelet asks."""

from __future__ import annotations

import msgspec

from handfast.rules.mesh import probes, views

POD = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "initContainers": [
            {"name": "linkerd-proxy", "readinessProbe": {"httpGet": {"path": "/ready", "port": 4191}}},
        ],
        "containers": [
            {
                "name": "app",
                "ports": [{"name": "http", "containerPort": 8080}, {"containerPort": 9090}],
                "livenessProbe": {"httpGet": {"path": "/live?full=1", "port": "http"}},
                "readinessProbe": {"httpGet": {"path": "ready", "port": 8080}},
                "startupProbe": {"httpGet": {"port": 8080}},
            },
            {
                "name": "side",
                "livenessProbe": {"tcpSocket": {"port": 8080}},
                "readinessProbe": {"httpGet": {"path": "/other", "port": "http"}},
                "startupProbe": {"httpGet": {"path": "/nowhere"}},
            },
        ],
    },
}


def test_the_paths_of_a_port_are_those_of_its_http_probes():
    pod = msgspec.convert(POD, views.Pod)
    assert probes.paths(pod, 8080) == ("/", "/live", "/ready")
    assert probes.paths(pod, 4191) == ("/ready",)
    # A name is one of the same container, and a port without a name is found by none.
    assert probes.paths(pod, 9090) == ()
    assert probes.paths(views.Pod(), 8080) == ()
