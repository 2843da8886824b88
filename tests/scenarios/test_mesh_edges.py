# SPDX-License-Identifier: Apache-2.0
"""Who talks to whom, as two real agents see it, and a policy on its way from audit to enforce. On `up --mesh` and `mesh run`."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.scenarios import mesh_world, run_world, up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

URL = "http://web.shop.svc.cluster.local:8080/"
POLICIES = "/apis/handfast.dev/v1alpha1/namespaces/shop/meshpolicies"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mesh_world.Plane]:
    with run_world.plane(tmp_path_factory.mktemp("edges")) as plane:
        run_world.service(plane)
        yield plane


class Seen:
    """What the commands say of the mesh."""

    def __init__(self, plane: mesh_world.Plane) -> None:
        self._plane = plane

    def run(self, *words: str, code: int = 0) -> str:
        done = up_world.run("mesh", *words, "--dir", self._plane.directory)
        assert done.returncode == code, done.stderr
        return str(done.stdout)

    def edges(self, *words: str) -> dict[tuple[str, str], dict[str, Any]]:
        """By client and server, as people write them."""
        rows = json.loads(self.run("edges", "-o", "json", *words))["edges"]
        return {(row["client"]["account"], row["server"]["account"]): row for row in rows}

    def until(self, reached: Callable[[dict[tuple[str, str], dict[str, Any]]], object], *words: str) -> None:
        last: dict[tuple[str, str], dict[str, Any]] = {}

        def look() -> object:
            last.clear()
            last.update(self.edges(*words))
            return reached(last)

        with contextlib.suppress(AssertionError):
            return up_world.until(look, 60)
        raise AssertionError(f"edges: {last}")


BOTH = ("shop/client", "shop/web")
NOBODY = ("", "shop/web")


def policy(plane: mesh_world.Plane, mode: str) -> None:
    """The servers are for an account that nobody has."""
    plane.call("DELETE", f"{POLICIES}/web")
    spec = {
        "targets": {"serviceAccounts": ["web"]},
        "clients": [{"serviceAccount": {"name": "other"}}],
        "mode": mode,
    }
    body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "MeshPolicy", "metadata": {"name": "web"}, "spec": spec}
    plane.post(POLICIES, body, wanted=(201,))


def test_who_talks_to_whom_and_what_a_policy_would_refuse_before_it_does(
    plane: mesh_world.Plane, tmp_path: pathlib.Path
) -> None:
    seen = Seen(plane)
    with run_world.server(plane, tmp_path) as web, run_world.client(plane, tmp_path) as client:
        web.ready()
        client.ready()
        up_world.until(lambda: client.ask(URL)[0] == 200, 40, "an answer")
        assert run_world.has(web.ip) == 200
        # Both ends tell of it, and each by its own word.
        seen.until(lambda edges: {BOTH, NOBODY} <= edges.keys() and edges[BOTH]["client"]["seen"] == "reported")
        edges = seen.edges()
        meshed, plain = edges[BOTH], edges[NOBODY]
        assert meshed["client"]["identity"] == mesh_world.identity_of("shop", "client")
        assert (meshed["server"]["seen"], meshed["secured"], meshed["port"]) == ("reported", True, 8080)
        assert (meshed["refused"], meshed["wouldBeRefused"], meshed["destination"]) == ("", "", URL[7:-1])
        assert meshed["since"] <= meshed["last"]
        assert (plain["secured"], plain["unsecured"]) == (False, "plaintext")
        assert seen.edges("--would-deny") == {}
        assert seen.edges("--namespace", "elsewhere") == {}
        assert "\nobserved: " in seen.run("explain", "shop/client", "shop/web:8080")
        # In audit no answer changes, and who would be refused is listed.
        policy(plane, "audit")
        up_world.until(lambda: client.ask(URL)[0] == 200 and BOTH in seen.edges("--would-deny"), 60, "would be refused")
        assert run_world.has(web.ip) == 200
        seen.until(lambda edges: edges.keys() == {BOTH, NOBODY}, "--would-deny")
        assert {row["wouldBeRefused"] for row in seen.edges("--would-deny").values()} == {"not-allowed-by-policy"}
        # Enforced, they are.
        policy(plane, "enforce")
        up_world.until(lambda: client.ask(URL)[0] == 403, 30, "a refusal")
        seen.until(lambda edges: edges[BOTH]["refused"] == "not-allowed-by-policy")
        table = seen.run("edges", "--namespace", "shop")
        assert "refused: not-allowed-by-policy" in table
        assert "a request is refused" in web.text()
