# SPDX-License-Identifier: Apache-2.0
"""Stock linkerd2-proxies while destination and policy are away: who runs goes on, who starts lets nobody in until they are back.

Where there is no linkerd2-proxy nothing of it is proven: see `stock_world`.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.interop import meshes, running, stock_world
from tests.interop.stock_world import PORT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("server", list(meshes.SERVERS))
def test_without_the_control_plane_policies_hold_and_nobody_new_is_let_in(server: str, tmp_path: pathlib.Path) -> None:
    with stock_world.mesh(server, tmp_path / "mesh") as world:
        for name in ("front", "web", "stranger"):
            world.add(name)
        world.add_outside("outside")
        for proxy in world.proxies.values():
            proxy.ready()
        clients = [{"serviceAccount": {"namespace": "shop", "name": "front"}}]
        with world.policy("web", targets={"serviceAccounts": ["web"], "ports": [PORT]}, clients=clients):
            running.eventually(lambda: world.code("stranger", "web") == 403, "the refusal")
            assert world.code("front", "web") == 200, world.said()
            world.controller.close()
            # What a proxy was told holds.
            assert world.code("outside", "web") == 403, world.said()
            # One that starts now has an identity, and no policy.
            world.add("late")
            late = world.proxies["late"]
            running.eventually(lambda: "Certified identity" in late.log, "its certificate")
            assert late.get("/ready")[0] != 200
            assert world.code("outside", "late") == 0, world.said()
            # Nobody is called in plaintext because nobody says that there is an identity.
            world.start_controller()
            late.ready()
            running.eventually(lambda: world.code("outside", "late") == 200, "the first request", 60)
            running.eventually(lambda: world.code("front", "web") == 200, "the web again", 60)
            assert world.code("stranger", "web") == 403, world.said()
