# SPDX-License-Identifier: Apache-2.0
"""Seed 003, "To invalidate the worker node credentials", on real processes and with both kinds of service account keys.

Proves that deleting the Secret ends the leaked token on open and on new connections, and its watch; that the new Secret is
made and filled in by itself, also when the controllers are killed meanwhile; and that the old token never comes back.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pathlib
import signal
from typing import Any
from urllib import parse as urls

import pytest

from handfast.pki import keys
from handfast.rules.machines import bootstrap_token, bootstrapper, installation
from handfast.runtime import tls
from tests.scenarios import callers, up_world, wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CORE = f"/api/v1/namespaces/{bootstrapper.NAMESPACE}"
SECRET = f"{CORE}/secrets/{bootstrapper.TOKEN_SECRET}"
ACCOUNT = f"{CORE}/serviceaccounts/{bootstrapper.ACCOUNT}"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CONTROLLERS = "*,nodebootstrappertoken"


class Plane(up_world.Up):
    """A control plane that keeps a worker's credential."""

    def __init__(self, directory: pathlib.Path, kind: keys.Kind) -> None:
        directory.joinpath("pki").mkdir(parents=True, mode=0o700)
        directory.chmod(0o700)
        key = directory / "pki" / "sa.key"
        key.touch(mode=0o600)
        key.write_bytes(keys.generate(kind).to_pem())
        super().__init__(directory, "--controllers", CONTROLLERS)

    def prepared(self) -> None:
        """What a fleet begins with, as far as it matters here."""
        self.made("/api/v1/namespaces", {"metadata": {"name": bootstrapper.NAMESPACE}})
        subject = {"kind": "ServiceAccount", "name": bootstrapper.ACCOUNT, "namespace": bootstrapper.NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"}
        binding = {"metadata": {"name": "system-bootstrap-node-bootstrapper"}, "roleRef": role, "subjects": [subject]}
        self.made(f"{callers.RBAC}/clusterrolebindings", binding)
        for each in installation.before_machines():
            if each.plural in {"roles", "rolebindings"}:
                self.made(f"{callers.RBAC}/namespaces/{bootstrapper.NAMESPACE}/{each.plural}", each.document)

    def made(self, path: str, document: Any) -> None:
        code, answer = self.call("POST", path, document)
        assert code == 201, answer

    def token(self, other_than: str = "") -> str:
        """What the Secret holds, once that is another token."""
        held = other_than

        def filled() -> bool:
            nonlocal held
            code, secret = self.call("GET", SECRET)
            data = (secret.get("data") or {}) if code == 200 else {}
            held = base64.b64decode(data.get("token", "")).decode()
            return held not in {"", other_than}

        up_world.until(filled, 60, "a token")
        return held

    def account(self) -> Any:
        code, account = self.call("GET", ACCOUNT)
        assert code == 200, account
        return account["metadata"]

    def remembers(self, count: int) -> bool:
        memory = (self.account().get("annotations") or {}).get(bootstrap_token.MEMORY, "")
        return len(bootstrap_token.read(memory)) == count

    def kill_controllers(self) -> None:
        os.kill(self.pids()["controllers"], signal.SIGKILL)

    def line(self) -> Any:
        ca = tls.client_context((self.directory / "pki" / "ca.crt").read_bytes(), None, None)
        return wire.line(urls.urlsplit(self.facts["apiserver"]).port or 0, ca)


async def answer(line: wire.Line, token: str) -> int:
    return (await line.ask("GET", REQUESTS, **callers.bearer(token))).status


async def in_thread(function: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(function, *arguments)


@pytest.mark.parametrize("kind", [keys.Kind.RSA, keys.Kind.P256])
async def test_a_deleted_token_ends_at_once_and_never_returns(tmp_path: pathlib.Path, kind: keys.Kind) -> None:
    with Plane(tmp_path / "data", kind) as plane:
        await in_thread(plane.ready)
        # The namespace comes later: the keeper waits for it.
        await in_thread(plane.prepared)
        leaked = await in_thread(plane.token)
        await in_thread(up_world.until, lambda: plane.remembers(1))
        uid = (await in_thread(plane.account))["uid"]
        async with plane.line() as open_line, plane.line() as watching:
            assert await answer(open_line, leaked) == 200
            await watching.send(wire.request("GET", f"{REQUESTS}?watch=1", **callers.bearer(leaked)))
            assert (await watching.reply(head_only=True)).status == 200
            watch = callers.Watching(watching)

            await in_thread(plane.kill_controllers)
            assert (await in_thread(plane.call, "DELETE", SECRET))[0] == 200
            # Refused at the next request, on the connection that is open and on a new one; the watch is over.
            assert await answer(open_line, leaked) == 401
            async with plane.line() as new_line:
                assert await answer(new_line, leaked) == 401
            await watch.ended()

            # Whoever starts again makes the Secret anew, and fills it in.
            fresh = await in_thread(plane.token, leaked)
            assert fresh != leaked
            assert await answer(open_line, leaked) == 401
            assert await answer(open_line, fresh) == 200
            await in_thread(up_world.until, lambda: plane.remembers(2))
            await in_thread(plane.kill_controllers)
            await in_thread(up_world.until, lambda: plane.readiness()[0] == 200)
            assert (await answer(open_line, leaked), await answer(open_line, fresh)) == (401, 200)
        # The token has an id: no account had to go for that.
        assert (await in_thread(plane.account))["uid"] == uid
        memory = (await in_thread(plane.account))["annotations"][bootstrap_token.MEMORY]
        assert leaked.rpartition(".")[2] not in memory
