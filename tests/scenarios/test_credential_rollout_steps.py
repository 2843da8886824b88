# SPDX-License-Identifier: Apache-2.0
"""Each step of a revocation after the roll-out, on a real server: what was made, who is waited for, and what a person is told.

The test plays the keeper of the token and whoever fills Secrets in. The controllers have the rights of `--print-manifest`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast import errors
from handfast.api import objects
from handfast.cli import machine_pools, machine_revoke, revoke_output
from handfast.client import api, connection, machine_rollout, transport
from handfast.controllers.machines import credential_rollout
from handfast.rules.machine_config import credential_rollout as rules
from handfast.rules.machine_config import names
from handfast.rules.machines import bootstrap_token, bootstrapper, installation
from handfast.runtime import clock as clocks
from tests.scenarios import callers, controlled, fleet_story
from tests.scenarios import pool_story as p

pytestmark = [pytest.mark.slow, pytest.mark.measured]

ALL = (*p.ALL, credential_rollout.NAME)
NS, SHARED, NEXT = bootstrapper.NAMESPACE, bootstrapper.TOKEN_SECRET, bootstrapper.NEXT_TOKEN_SECRET
TRUST = bootstrapper.CONFIG_MAPS[0]
WANTED = revoke_output.Wanted(
    kind="worker", everything=False, dry_run=False, after_rollout=False, wait=True, seconds=30, form="text"
)


@contextlib.asynccontextmanager
async def told(directory: pathlib.Path) -> AsyncIterator[p.Story]:
    """Two pools, both credentials, and a worker and a master that follow."""
    async with p.told(directory, "master", "worker") as story:
        await story.client.create(controlled.SERVICE_ACCOUNTS, bootstrap_token.account_document(), namespace=NS)
        await story.config("00-master", role="master")
        await story.config("00-worker")
        if await story.find(controlled.CONFIG_MAPS, TRUST[1], TRUST[0]) is None:
            await story.config_map(TRUST[1], namespace=TRUST[0])
        await story.masters_certificate()
        yield story


async def began(story: p.Story) -> None:
    for role, name in (("worker", "w1"), ("master", "m1")):
        target = await story.target(name=role)
        await story.nodes(name, role=role, current=target)
        await story.says("Updated", "True", target, name=role)


async def marked(story: p.Story, kind: str) -> None:
    facts = await machine_rollout.look(story.client)
    for each in facts.to_mark(kind):
        await machine_rollout.mark(story.client, each.target, each.uid, objects.timestamp(story.clock.now()))


def running(story: p.Story) -> contextlib.AbstractAsyncContextManager[None]:
    return fleet_story.running_as_printed(story, *ALL, servers=p.SERVERS)


async def secret(story: p.Story, name: str) -> Any:
    async def there() -> Any:
        return await story.find(controlled.SECRETS, name, NS)

    return await story.eventually(there, name)


async def digest(story: p.Story, pool: str = "worker") -> str:
    target = (await story.pool(pool))["spec"]["configuration"]["name"]
    return str((await story.rendering(target))["metadata"]["annotations"][names.CREDENTIAL])


async def test_the_steps_for_workers(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story, running(story):
        await began(story)
        first, before = await story.target(), await digest(story)
        await marked(story, "worker")
        # It is made empty, for the account that there is; nothing else happens until it is filled in.
        made = await secret(story, NEXT)
        account = await story.client.get(controlled.SERVICE_ACCOUNTS, bootstrapper.ACCOUNT, namespace=NS)
        assert made["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == account["metadata"]["uid"]
        assert not made.get("data")
        await story.quiet()
        assert await digest(story) == before
        await story.token("next.worker.token", NEXT)
        second = await story.target(first)
        await story.are_sent(second, "w1")
        # It is remembered, by digest.
        account = await story.client.get(controlled.SERVICE_ACCOUNTS, bootstrapper.ACCOUNT, namespace=NS)
        assert list(bootstrap_token.read(account["metadata"]["annotations"][bootstrap_token.MEMORY]).values()) == [
            made["metadata"]["uid"]
        ]
        await story.quiet()
        assert await story.find(controlled.SECRETS, SHARED, NS) is not None
        await story.eventually(lambda: is_waiting("worker", "NodesBehind"), "waiting")
        # A second Secret with a token of the account goes with the first.
        await story.token("second.token", "of-a-thief")
        await story.apply("w1")
        await story.gone(controlled.SECRETS, SHARED, "of-a-thief", namespace=NS)
        await story.eventually(lambda: is_waiting("worker", "TokenNotKept"), "waiting")
        await story.token("third.worker.token")
        third = await story.target(second)
        await story.are_sent(third, "w1")
        assert await story.find(controlled.SECRETS, NEXT, NS) is not None
        await story.apply("w1")
        await story.gone(controlled.SECRETS, NEXT, namespace=NS)
        await story.eventually(lambda: is_waiting("worker"), "rest")

        async def said() -> bool:
            reasons = {reason for reason, _ in await story.told_of(NS, bootstrapper.ACCOUNT)}
            return {credential_rollout.CUT, credential_rollout.DISTRIBUTED} <= reasons

        await story.eventually(said, "told of")
        assert fleet_story.forbidden(story) == 0


async def is_waiting(kind: str, *reasons: str) -> bool:
    told = [each for each in rules.REASONS if credential_rollout.WAITING.labels(kind, each)._value.get() == 1]
    return told == [*reasons]


async def test_the_steps_for_masters(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story, running(story):
        await began(story)
        assert (await digest(story, "master")).startswith(names.CERTIFICATE)
        first = await story.target(name="master")
        await marked(story, "master")
        second = await story.target(first, name="master")
        assert (await digest(story, "master")).startswith(names.SERVICE_ACCOUNT)
        await story.are_sent(second, "m1")
        await story.quiet()
        await story.eventually(lambda: is_waiting("master", "NodesBehind"), "waiting")
        await story.apply("m1")
        await story.gone(controlled.SECRETS, installation.KUBECONFIG_SECRET, namespace=NS)
        await story.gone(controlled.CONFIG_MAPS, TRUST[1], namespace=TRUST[0])
        assert fleet_story.forbidden(story) == 0


async def test_somebody_elses_secret_is_left_alone_and_a_person_is_told(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story, running(story):
        await began(story)
        await story.client.create(controlled.SECRETS, {"metadata": {"name": NEXT}}, namespace=NS)
        await marked(story, "worker")

        async def said() -> Any:
            return [row for row in await story.told_of(NS, bootstrapper.ACCOUNT) if row[0] == rules.OTHERS_SECRET]

        ((_, message),) = await story.eventually(said, "told")
        assert "delete it, and it is made anew" in message
        await story.client.delete(controlled.SECRETS, NEXT, namespace=NS)
        assert (await secret(story, NEXT))["type"] == "kubernetes.io/service-account-token"


async def test_what_the_commands_say(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with told(tmp_path) as story, running(story):
        await began(story)
        path = served(story)
        rehearsed = await machine_revoke._work(path, replaced(dry_run=True, after_rollout=True))
        assert [pool.pool for pool in rehearsed.pools] == ["worker"]
        assert [node.node for node in rehearsed.pools[0].able] == ["w1"]
        # Asked for, and not waited for.
        asked = await machine_revoke._work(path, replaced(after_rollout=True, wait=False))
        assert (asked.phase, asked.over) == (rules.MAKING, True)
        await secret(story, NEXT)
        # Shown again, for too short a time.
        late = await machine_revoke._work(path, replaced(after_rollout=True, seconds=0.5))
        assert not late.over
        assert "is being replaced already" in capsys.readouterr().err
        await story.client.delete(controlled.CONFIG_MAPS, TRUST[1], namespace=TRUST[0])
        with pytest.raises(errors.Refused, match="there is no master credential to replace"):
            await machine_revoke._work(path, replaced(kind="master", after_rollout=True))
        # Cut at once: the replacement is not there before its keeper makes it.
        cut = await machine_revoke._work(path, replaced(seconds=0.5))
        assert cut.cut is not None
        assert [each.rpartition("/")[2] for each in cut.cut.objects] == [SHARED, NEXT]
        assert (cut.over, cut.pools[0].pool) == (False, "master")
        assert "has no token" in cut.pools[1].missing
        unwaited = await machine_revoke._work(path, replaced(wait=False))
        assert unwaited.over


async def test_who_may_not_look_on_is_told_so(tmp_path: pathlib.Path) -> None:
    async with told(tmp_path) as story:
        path = f"/api/v1/namespaces/{NS}/serviceaccounts/{bootstrapper.ACCOUNT}/token"
        token = (await callers.make(story.world, path, {"spec": {}}))["status"]["token"]
        admin = connection.load(str(story.world.place.admin_kubeconfig))
        place = dataclasses.replace(admin, server=story.world.base, cert_pem=None, key_pem=None, token=token)
        link = transport.Transport(place, clock=clocks.SystemClock())
        with pytest.raises(machine_rollout.Unseen, match=r"cannot be followed: .* is forbidden"):
            await machine_rollout.until(api.Client(link), clocks.SystemClock(), 20, lambda _: False)
        await link.close()


async def test_the_list_of_pools_names_who_is_behind(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with told(tmp_path) as story, running(story):
        await began(story)
        await story.nodes("stock", agent=False)
        await story.nodes("w2", current="rendered-worker-before")
        await story.nodes("stray", role="other")
        fleet = await machine_pools._look(served(story))
        # The controllers' log goes the same way.
        capsys.readouterr()
        machine_pools.show(fleet, "text")
        rows = [line.split() for line in capsys.readouterr().out.splitlines() if line]
        assert rows[0] == ["POOL", "RENDERING", "HAVE", "STATE", "CREDENTIAL"]
        assert [row[0:1] + row[2:] for row in rows[1:3]] == [
            ["master", "1", "of", "1", "updated", "certificate"],
            ["worker", "1", "of", "3", "updating", "service-account"],
        ]
        assert [row[:2] for row in rows[4:]] == [["stock", "worker"], ["w2", "worker"], ["stray", "-"]]
        assert rows[4][2] == "NoAgent"
        machine_pools.show(fleet, "json")
        document = json.loads(capsys.readouterr().out)
        assert [row["node"] for row in document["outside"]] == ["stray"]
        assert {row["name"]: (row["have"], row["machines"]) for row in document["pools"]} == {
            "master": (1, 1),
            "worker": (1, 3),
        }


def replaced(**fields: Any) -> revoke_output.Wanted:
    return dataclasses.replace(WANTED, **fields)


def served(story: p.Story) -> str:
    text = story.world.place.admin_kubeconfig.read_text().replace("https://127.0.0.1:6443", story.world.base)
    path = story.world.place.root / "served.conf"
    path.write_text(text)
    return str(path)
