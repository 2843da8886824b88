# SPDX-License-Identifier: Apache-2.0
"""The controllers role as `handfast serve controllers` runs it.

Proves that it becomes ready and says so, stops in time, refuses unknown names before it does anything, and that of two
with the leader lock one works and the other takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest

from handfast import errors
from handfast.assembly import controllers
from handfast.client import api, hearing
from handfast.controllers.certificates import approver
from handfast.rules import controller_rights
from handfast.runtime import addresses
from tests.scenarios import controlled as c
from tests.world import world as worlds
from tests.world.clock import MovableClock

pytestmark = [pytest.mark.slow, pytest.mark.measured]
LEASES = api.Resource("coordination.k8s.io", "v1", "leases", True)


class Role:
    """One running role, and its health."""

    def __init__(
        self, world: worlds.World, directory: pathlib.Path, *, source: pathlib.Path | None = None, **more: Any
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        path = directory / "kubeconfig"
        text = (source or world.place.admin_kubeconfig).read_text().replace("https://127.0.0.1:6443", world.base)
        path.write_text(text)
        path.chmod(0o600)
        settings = {"leader_elect": False, "root_ca_pem": None, **more}
        self.task = asyncio.create_task(
            controllers.run(
                kubeconfig_path=str(path),
                admin_options=controllers.AdminOptions(addresses.Address("127.0.0.1", self.port)),
                clock=world.clock,
                **settings,
            )
        )

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientError:
                return 0, ""

    async def ready(self) -> bool:
        return await self.get("/readyz") == (200, "ok")

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(self.task, 5)


@contextlib.asynccontextmanager
async def served(directory: pathlib.Path) -> AsyncIterator[tuple[worlds.World, c.Story]]:
    async with worlds.world(directory / "world") as world, c.connected(world) as client:
        assert isinstance(world.clock, MovableClock)
        yield world, c.Story(client, world.clock)


async def test_ready_at_work_and_stopped(tmp_path: pathlib.Path):
    async with served(tmp_path) as (world, story):
        role = Role(world, tmp_path)
        await story.eventually(role.ready)
        told = "[+]ping ok\n[+]apiserver ok\n[+]controllers ok\nreadyz check passed\n"
        assert await role.get("/readyz?verbose") == (200, told)

        async def published() -> Any:
            return await story.find(c.CONFIG_MAPS, "kube-root-ca.crt")

        # Without a bundle given, the CA of the kubeconfig is published.
        found = await story.eventually(published)
        assert found["data"]["ca.crt"] == world.place.ca_certificate.read_text()
        _, metrics = await role.get("/metrics")
        assert (
            'handfast_controller_reconciles_total{controller="root-ca-certificate-publisher-controller",result="ok"}'
            in metrics
        )

        async def measured() -> bool:
            return "handfast_event_loop_lateness_seconds_count 0.0" not in (await role.get("/metrics"))[1]

        await story.eventually(measured)
        await role.stop()
        assert await role.get("/livez") == (0, "")
        assert not [task for task in asyncio.all_tasks() if "controllers/" in task.get_name()]


async def test_not_ready_while_the_api_server_is_silent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """It is stopped, as by `kill -STOP`: every connection stays open, and nothing comes."""
    monkeypatch.setattr(hearing, "_ANSWER_SECONDS", 0.2)
    async with served(tmp_path) as (world, story):
        role = Role(world, tmp_path)
        await story.eventually(role.ready)
        answering, silent = world.server.pipeline.handle, asyncio.Event()

        async def hangs(http: Any) -> Any:
            await silent.wait()
            return await answering(http)

        monkeypatch.setattr(world.server.listener._server, "request_handler", hangs)

        async def told() -> bool:
            # A server's handler is what a connection got when it was made; one whose handshake was under way comes later.
            for connection in world.server.listener._server.connections:
                connection._request_handler = hangs
            await world.movable().advance(10.0)
            code, text = await role.get("/readyz")
            return code == 500 and "[-]apiserver failed: the API server does not answer: did not answer in time" in text

        await story.eventually(told)
        assert (await role.get("/livez"))[0] == 200
        monkeypatch.undo()
        for connection in world.server.listener._server.connections:
            connection._request_handler = cast("Any", answering)
        silent.set()
        await world.movable().advance(10.0)
        await story.eventually(role.ready)
        await role.stop()


async def test_a_right_that_is_missing_is_told(tmp_path: pathlib.Path):
    """Until it is granted; the approver, which can do without, works meanwhile."""
    async with served(tmp_path) as (world, story):
        roles = api.Resource("rbac.authorization.k8s.io", "v1", "clusterroles", False)
        role = await story.client.get(roles, "system:kube-controller-manager")
        granted = [right.rule for right in controller_rights.RIGHTS[approver.NAME]]
        role["rules"] = [rule.document() for rule in granted if "leases" not in rule.resources]
        role = await story.client.update(roles, role)
        running = Role(
            world,
            tmp_path,
            source=world.place.controllers_kubeconfig,
            selection=controllers.Selection(names=[approver.NAME]),
        )

        async def told() -> bool:
            code, text = await running.get("/readyz")
            missing = "[-]controllers failed: a right is missing: leases.coordination.k8s.io is forbidden: User "
            return code == 500 and missing in text

        await story.eventually(told)
        role["rules"] = [rule.document() for rule in granted]
        await story.client.update(roles, role)

        async def ready() -> bool:
            await story.clock.advance(30)
            return await running.ready()

        await story.eventually(ready)
        await running.stop()


async def test_only_what_was_asked_for(tmp_path: pathlib.Path):
    async with served(tmp_path) as (world, story):
        role = Role(world, tmp_path, selection=controllers.Selection(names=["*", "-serviceaccount-controller"]))
        await story.eventually(role.ready)
        await story.quiet()
        assert await story.find(c.CONFIG_MAPS, "kube-root-ca.crt") is not None
        await world.request("POST", "/api/v1/namespaces", {"metadata": {"name": "new"}})
        await story.quiet()
        assert (await world.get("/api/v1/namespaces/new/serviceaccounts/default")).status == 404
        await role.stop()
        refused = Role(world, tmp_path, selection=controllers.Selection(names=["*", "-service-account"]))
        with pytest.raises(
            errors.Refused, match=r"there is no controller '-service-account'; there are: namespace-controller, "
        ):
            await refused.task


async def test_one_leads_and_the_other_takes_over(tmp_path: pathlib.Path):
    async with served(tmp_path) as (world, story):

        async def holder() -> str:
            found = await story.find(LEASES, "handfast-controllers", "kube-system")
            return str(found["spec"]["holderIdentity"]) if found else ""

        first = Role(world, tmp_path, leader_elect=True)
        was = await story.eventually(holder)
        second = Role(world, tmp_path, leader_elect=True)
        await story.eventually(first.ready)
        # Waiting for its turn is being ready.
        await story.eventually(second.ready)
        await story.quiet()
        assert await holder() == was
        await first.stop()
        assert await holder() == ""

        async def another() -> bool:
            return await holder() not in {"", was}

        await story.eventually(another)
        await story.client.create(c.NAMESPACES, {"metadata": {"name": "later"}})

        async def account() -> Any:
            return await story.find(c.SERVICE_ACCOUNTS, "default", "later")

        await story.eventually(account)
        await second.stop()
