# SPDX-License-Identifier: Apache-2.0
"""`handfast up --mesh` and stock linkerd2-proxies: from a manifest to a request with mutual TLS, a policy, and an identity that is taken back.

Everything is done with the commands that an operator has. Where there is no linkerd2-proxy nothing of it is proven: see `stock_world`.
"""

from __future__ import annotations

import contextlib
import pathlib

import pytest

from tests.interop import pod_network, running, stock, stock_world
from tests.interop.stock_world import PORT
from tests.scenarios import mesh_world, up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DOORS = ("identity", "destination", "policy", "agents", "injector")
ADMINS = ("identity", "destination", "injector")
POLICY = {
    "apiVersion": "handfast.dev/v1alpha1",
    "kind": "MeshPolicy",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "targets": {"serviceAccounts": ["web"], "ports": [PORT]},
        "clients": [{"serviceAccount": {"namespace": "shop", "name": "front"}}],
    },
}


def test_an_operator_meshes_a_service_closes_it_and_takes_an_identity_back(tmp_path: pathlib.Path) -> None:
    stock.find()
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(pod_network.network())
        ports = running.free_ports(len(DOORS) + len(ADMINS))
        flags = {f"--{door}-listen": f"{network.gateway}:{port}" for door, port in zip(DOORS, ports, strict=False)}
        flags |= {f"--{door}-admin-listen": "127.0.0.1:0" for door in ADMINS}
        words = [word for pair in flags.items() for word in pair]
        plane = stack.enter_context(mesh_world.Plane(tmp_path / "data", "--mesh", *words))
        plane.ready()
        plane.post(
            "/api/v1/namespaces", {"metadata": {"name": "shop", "annotations": {"linkerd.io/inject": "enabled"}}}
        )
        pods, proxies = {}, {}
        for name in ("front", "web", "stranger"):
            pods[name] = stock_world.by_webhook(plane, network, tmp_path, name)
            proxies[name] = stack.enter_context(network.proxy(pods[name]))
            stack.enter_context(network.application(pods[name], PORT))
        for proxy in proxies.values():
            proxy.ready()

        def code(name: str) -> int:
            return network.get(pods[name], f"http://{pods['web'].ip}:{PORT}/")[0]

        def explained(name: str) -> int:
            words = ("mesh", "explain", f"shop/{name}", f"pod/shop/web-1:{PORT}")
            return up_world.run(*words, "--dir", plane.directory).returncode

        # 1. meshed
        assert [code(name) for name in ("front", "stranger")] == [200, 200]
        assert proxies["web"].metric("request_total", tls="true", client_id=pods["front"].identity) >= 1
        assert [explained(name) for name in ("front", "stranger")] == [0, 0]
        checked = up_world.run("mesh", "check", "--dir", plane.directory)
        assert checked.returncode == 0, checked.stdout
        # 2. closed, and the command says what the proxies do
        plane.post("/apis/handfast.dev/v1alpha1/namespaces/shop/meshpolicies", POLICY, wanted=(201,))
        running.eventually(lambda: code("stranger") == 403, "the refusal")
        assert code("front") == 200
        assert [explained(name) for name in ("front", "stranger")] == [0, 1]
        # 3. taken back: no next certificate
        before = proxies["front"].metric("control_identity_cert_refreshes_total", result="ok")
        assert up_world.run("mesh", "revoke", "shop/front", "--dir", plane.directory).returncode == 0
        proxies["front"].process.terminate()
        with network.proxy(pods["front"]) as again:
            running.eventually(lambda: "Failed to obtain identity" in again.log, "the refusal of a certificate", 60)
            assert again.get("/ready")[0] != 200
        assert before >= 1
