# SPDX-License-Identifier: Apache-2.0
"""kubectl wait and rollout status: commands that watch until something holds, and that give up in time."""

from __future__ import annotations

import pytest

from tests.interop import running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

_TIMEOUT = "--timeout=30s"
_AVAILABLE = (
    '{"status": {"observedGeneration": %d, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, '
    '"availableReplicas": 2, "conditions": [{"type": "Available", "status": "True"}]}}'
)


def _write_status(kubectl: running.Kubectl, generation: int) -> None:
    kubectl.needs(24, "patch --subresource")
    kubectl("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", _AVAILABLE % generation)


def test_for_a_condition(full):
    assert full.fails("wait", "--for=condition=Available", "deployment/web", "--timeout=0.3s") == (
        "error: timed out waiting for the condition on deployments/web"
    )
    with full.running("wait", "--for=condition=Available", "deployment/web", _TIMEOUT) as stream:
        _write_status(full, 1)
        assert stream.ended() == (0, "deployment.apps/web condition met\n")


def test_for_a_value(full):
    full.needs(23, "wait --for=jsonpath")
    with full.running("wait", "--for=jsonpath={.data.colour}=red", "cm/settings", _TIMEOUT) as stream:
        full("patch", "cm", "settings", "--type=merge", "-p", '{"data": {"colour": "red"}}')
        assert stream.ended() == (0, "configmap/settings condition met\n")


def test_for_deletion(full):
    with full.running("wait", "--for=delete", "pod/web", "cm/settings", _TIMEOUT) as stream:
        full("delete", "pod/web", "cm/settings")
        assert stream.ended()[0] == 0


def test_for_creation(kubectl):
    kubectl.needs(31, "wait --for=create")
    with kubectl.running("wait", "--for=create", "cm/later", _TIMEOUT) as stream:
        kubectl("create", "configmap", "later")
        assert stream.ended() == (0, "configmap/later condition met\n")


def test_rollout_status_follows_the_status(full):
    with full.running("rollout", "status", "deployment/web", _TIMEOUT) as stream:
        stream.wait_for("Waiting for deployment spec update to be observed")
        _write_status(full, 1)
        code, printed = stream.ended()
    assert code == 0
    assert printed.endswith('deployment "web" successfully rolled out\n')
    full("rollout", "restart", "deployment/web")
    assert "timed out waiting for the condition" in full.fails("rollout", "status", "deployment/web", "--timeout=0.3s")
    _write_status(full, 2)
    full("rollout", "status", "deployment/web", _TIMEOUT)
    assert full("get", "deployment", "web", "--no-headers").out.split()[:4] == ["web", "2/2", "2", "2"]
