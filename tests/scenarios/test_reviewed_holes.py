# SPDX-License-Identifier: Apache-2.0
"""What a review with fresh eyes found, and how it ends now: each was a way in, or a way to stop the server."""

from __future__ import annotations

import asyncio
import base64
import json
import pathlib
from typing import Any

import pytest
import structlog

from handfast.api import status
from handfast.apiserver import limits
from handfast.pki import bundles, pem
from tests.scenarios import callers, wire
from tests.world import world as worlds

CA_PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
HISTORY_PATH = "/api/v1/namespaces/kube-system/configmaps/handfast-client-ca-history"
CONFIG_MAPS = "/api/v1/namespaces/openshift-cluster-machine-approver/configmaps"
SETTINGS_PATH = f"{CONFIG_MAPS}/machine-approver-config"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
# A CA certificate that our parser reads and OpenSSL does not.
UNUSABLE = base64.b64decode(
    "MIIBhjCCAS2gAwIBAgIBBTAKBggqhkjOPQQDAjAZMQswCQYDVQQDDAJjYTEKMAgGA1UECgwBbzAeFw0yNjExMTUy"
    "MzU0MzJaFw0yNjExMjQyMzU0MzJaMBkxCzAJBgNVBAMMAmNhMQowCAYDVQQKFwFvMFkwEwYHKoZIzj0CAQYIKoZI"
    "zj0DAQcDQgAEIcIHCNCPqzYa4UvmerqNTe/3Hrivt8llOvxn0UUbrP8D1AE3fE0AztYdAfpSPvp4OIdlzQAftBl/"
    "86tLqhLxhaNmMGQwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAYYwHQYDVR0OBBYEFEPbZMQxdzryNzA4"
    "mQaNB0AMAryKMBIGA1UdHgQLMAmgBzAFggNhLmIwDgYDVR0RBAcwBYIDeC55MAoGCCqGSM49BAMCA0cAMEQCIFi8"
    "pwvERnIu3cPlZh0NMkL/NgFVesevOyT0JPxEpB8fAiAa8uxzL5XzXiXz/QacMsUwwUM+bwPzZcKt2YGgnp4F3w=="
)


class TestCertificateThatTlsCannotUse:
    def test_it_is_one(self) -> None:
        assert len(bundles.TrustBundle.of([UNUSABLE]).anchors) == 1

    async def test_it_is_refused_in_the_bundle(self, world: worlds.World) -> None:
        found = (await world.get(CA_PATH)).json()
        found["data"]["client-ca-file"] += pem.certificates_to_pem([UNUSABLE]).decode()
        answer = await world.request("PUT", CA_PATH, found)
        assert answer.status == 422
        assert "cannot be used for TLS" in answer.message
        assert (await world.get(CA_PATH)).status == 200

    async def test_it_does_not_keep_the_server_from_starting(self, tmp_path: pathlib.Path) -> None:
        async with worlds.world(tmp_path / "d") as world:
            found = (await world.get(HISTORY_PATH)).json()
            found["data"]["ca-bundle.crt"] = pem.certificates_to_pem([UNUSABLE]).decode()
            assert (await world.request("PUT", HISTORY_PATH, found)).status == 200
        async with worlds.world(tmp_path / "d") as world:
            assert (await world.get(CA_PATH)).status == 200


class TestMachineSettings:
    async def test_an_editor_cannot_weaken_how_machines_are_approved(self, world: worlds.World) -> None:
        space = {"metadata": {"name": "openshift-cluster-machine-approver"}}
        assert (await world.request("POST", "/api/v1/namespaces", space)).status == 201
        await callers.bind(world, "edit", "User", "jane")
        document = {"metadata": {"name": "machine-approver-config"}, "data": {"config.yaml": "credential: per-machine"}}
        # Neither an editor nor the controllers: the latter may make an empty one only.
        for user in ("jane", "system:kube-controller-manager"):
            context = world.context_for(user)
            assert (await world.request("POST", CONFIG_MAPS, document, context=context)).status == 403
            assert (await world.request("POST", CONFIG_MAPS, {**document, "data": {}}, context=context)).status == 201
            assert (await world.request("DELETE", SETTINGS_PATH)).status == 200
            assert (await world.request("POST", CONFIG_MAPS, document)).status == 201
            found = (await world.get(SETTINGS_PATH, context=context)).json()
            found["metadata"]["labels"] = {"changed-by": "anyone"}
            found = (await world.request("PUT", SETTINGS_PATH, found, context=context)).json()
            assert found["metadata"]["labels"] == {"changed-by": "anyone"}
            answer = await world.request("PUT", SETTINGS_PATH, {**found, "data": {}}, context=context)
            assert (answer.status, '"trust"' in answer.message) == (403, True)
            assert (await world.request("DELETE", SETTINGS_PATH, context=context)).status == 403
            assert (await world.request("DELETE", CONFIG_MAPS, context=context)).status == 403
            assert (await world.request("DELETE", SETTINGS_PATH)).status == 200

    async def test_they_keep_no_namespace_from_going(self, world: worlds.World) -> None:
        space = {"metadata": {"name": "openshift-cluster-machine-approver"}}
        assert (await world.request("POST", "/api/v1/namespaces", space)).status == 201
        document = {"metadata": {"name": "machine-approver-config"}, "data": {"config.yaml": "credential: per-machine"}}
        assert (await world.request("POST", CONFIG_MAPS, document)).status == 201
        assert (await world.request("DELETE", CONFIG_MAPS.removesuffix("/configmaps"))).status == 200
        controllers = world.context_for("system:kube-controller-manager")
        assert (await world.request("DELETE", CONFIG_MAPS, context=controllers)).status == 200
        assert (await world.get(SETTINGS_PATH)).status == 404


class TestHistory:
    async def test_it_is_guarded_like_the_bundle(self, world: worlds.World) -> None:
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "update", "delete"]}
        assert (await world.request("POST", ROLES, {"metadata": {"name": "editor"}, "rules": [rule]})).status == 201
        await callers.bind(world, "editor", "User", "jane")
        jane = world.context_for("jane")
        found = (await world.get(HISTORY_PATH, context=jane)).json()
        found["data"] = {}
        answer = await world.request("PUT", HISTORY_PATH, found, context=jane)
        assert answer.status == 403
        assert '"trust"' in answer.message
        assert (await world.request("DELETE", HISTORY_PATH, context=jane)).status == 403

    async def test_what_was_stuffed_into_it_goes(self, tmp_path: pathlib.Path) -> None:
        async with worlds.world(tmp_path / "d") as world:
            found = (await world.get(HISTORY_PATH)).json()
            found["data"] = {}
            found["binaryData"] = {"a": base64.b64encode(b"x" * 700_000).decode()}
            assert (await world.request("PUT", HISTORY_PATH, found)).status == 200
        async with worlds.world(tmp_path / "d") as world:
            found = (await world.get(HISTORY_PATH)).json()
            assert set(found["data"]) == {"ca-bundle.crt"}
            assert "binaryData" not in found


async def test_a_role_too_large_to_gather_does_not_keep_the_server_from_starting(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        for name in ("a", "b"):
            rule = {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "verbs": ["get"],
                "resourceNames": [f"{name}-{number:06}" for number in range(20_000)],
            }
            labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
            body = {"metadata": {"name": name, "labels": labels}, "rules": [rule]}
            assert (await world.request("POST", ROLES, body)).status == 201
    with structlog.testing.capture_logs() as logs:
        async with worlds.world(tmp_path / "d") as world:
            assert (await world.get(f"{ROLES}/view")).status == 200
    assert [entry["name"] for entry in logs if entry["event"] == "the rules of a role could not be gathered"]


async def test_a_secret_too_large_to_label_does_not_stop_the_server(
    world: worlds.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = world.server.guard.token_use
    path = "/api/v1/namespaces/default/secrets"
    assert (await world.request("POST", path, {"metadata": {"name": "big"}})).status == 201

    async def too_large(*_: Any) -> None:
        raise status.StatusError("RequestEntityTooLarge", "etcdserver: request is too large")

    monkeypatch.setattr(world.server.storage, "replace", too_large)
    with structlog.testing.capture_logs() as logs:
        for name in ("big", "absent"):
            use.note("default", name)
        async with asyncio.timeout(5):
            while use._waiting:
                await asyncio.sleep(0.01)
    assert (await world.get(path)).status == 200
    assert [entry["secret"] for entry in logs if "not noted" in entry["event"]] == ["default/big"]


async def test_a_head_without_end_is_cut_off(tmp_path: pathlib.Path) -> None:
    bounds = limits.Limits(lifted=True, head_bytes=20_000)
    async with worlds.world(tmp_path / "d", limits=bounds) as world:
        port = world.server.address[1]
        async with wire.line(port, world.anonymous_context()) as opened:
            await opened.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
            with structlog.testing.capture_logs() as logs:
                for number in range(6):
                    await opened.send(b"X-%d: " % number + b"a" * 5_000 + b"\r\n")
                async with asyncio.timeout(5):
                    answer = await opened.reader.read(1 << 16)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert [entry["source"] for entry in logs if entry.get("reason") == "HeadTooLarge"] == ["127.0.0.1"]
        # Large bodies are no heads.
        await world.create_config_map("a", data="x" * 100_000)


async def test_after_too_many_guesses_none_is_looked_at(tmp_path: pathlib.Path) -> None:
    bounds = limits.Limits(anonymous_per_second=0.001, anonymous_burst=3)
    async with worlds.world(tmp_path / "d", limits=bounds) as world:
        good = await callers.account_token(world)
        nobody = world.anonymous_context()
        review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

        async def ask(token: str) -> int:
            return (await world.request("POST", review, {}, context=nobody, headers=callers.bearer(token))).status

        assert await ask(good) == 201
        assert [await ask("abcdef.0123456789abcdef") for _ in range(5)] == [401, 401, 401, 429, 429]
        # What was good before goes on being good; what is new has to wait.
        assert await ask(good) == 201
        assert await ask(good + "x") == 429


async def test_watches_end_with_what_their_token_rests_on(world: worlds.World) -> None:
    token = await callers.bootstrap_token(world)
    await callers.bind(world, "system:node-bootstrapper", "Group", "system:bootstrappers")
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests?watch=1"
    nobody = world.anonymous_context()
    async with (
        world.session(nobody).get(path, headers=callers.bearer(token)) as mine,
        world.session().get(path) as other,
    ):
        assert (mine.status, other.status) == (200, 200)
        secret = f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token.partition('.')[0]}"
        assert (await world.request("DELETE", secret)).status == 200
        async with asyncio.timeout(5):
            assert await mine.content.read() == b""
        assert not other.content.at_eof()


@pytest.mark.parametrize("held", [True, False])
async def test_a_huge_rule_is_refused_and_said_briefly(world: worlds.World, held: bool) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    role: dict[str, Any] = {
        "metadata": {"name": "writer"},
        "rules": [
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]},
            *([rule] if held else []),
        ],
    }
    assert (await world.request("POST", ROLES, role)).status == 201
    await callers.bind(world, "writer", "User", "jane")
    for count in (4_000, 20_000):
        many = {**rule, "resourceNames": [str(number) for number in range(count)]}
        body = {"metadata": {"name": f"huge-{count}"}, "rules": [many]}
        answer = await world.request("POST", ROLES, body, context=world.context_for("jane"))
        assert answer.status == (201 if held and count == 4_000 else 403)
        if answer.status == 403:
            assert len(answer.body) < 20_000
            assert "more" in json.loads(answer.body)["message"]
