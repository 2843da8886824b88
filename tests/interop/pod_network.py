# SPDX-License-Identifier: Apache-2.0
"""Pods without a kubelet, with Linkerd's own redirect and proxy. It proves nothing itself.

It needs what `scenarios.pod_network` needs, and `LINKERD2_PROXY_INIT`, which names Linkerd's proxy-init; where one is missing, what needs it is
reported as not run.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.interop import stock
from tests.scenarios import injected_pods, pod_network, transparent_world


def proxy_init() -> str:
    """The redirect's program."""
    binary = os.environ.get("LINKERD2_PROXY_INIT")
    if binary is None:
        pytest.skip("not run: there is no proxy-init; LINKERD2_PROXY_INIT names one that was built from source")
    return binary


class Network(transparent_world.Network):
    """A bridge whose Pods have stock proxies, or Handfast's own."""

    def redirect(self, pod: injected_pods.Pod) -> None:
        """As the container linkerd-init does it, with the arguments of the manifest."""
        words = [proxy_init(), *pod.container("linkerd-init")["args"]]
        done = subprocess.run(self.inside(pod.ip, *words), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def proxy(self, pod: injected_pods.Pod, **variables: str) -> contextlib.AbstractContextManager[stock.Proxy]:
        """The proxy as its container runs it: its variables, its volumes, its user."""
        user, volumes = self.volumes(pod)
        words = self.container(pod, user, volumes, [stock.find()])
        return stock.started(words, {**pod.environment(), **variables}, pod.home / "proxy.log", f"{pod.ip}:4191")


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """One that nobody else of the machine uses."""
    proxy_init()
    with pod_network.network(Network) as made:
        yield made
