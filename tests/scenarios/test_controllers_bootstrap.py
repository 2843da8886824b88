# SPDX-License-Identifier: Apache-2.0
"""Bootstrap tokens and cluster-info on a real server, with real watches, as the credential of the controllers.

Proves that new tokens sign, that signatures and Secrets go at expiry, that several copies do not disturb one another,
that who is no use is told, and that the role runs signer and cleaner only when they are named.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import functools
import pathlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from handfast import errors
from handfast.assembly import controllers
from handfast.bootstrap import cluster_info, jws, kubeconfig, tokens
from handfast.client import api
from handfast.controllers.joining import bootstrap_signer, token_cleaner
from handfast.controllers.joining import cluster_info as publisher
from handfast.rules import user_names
from handfast.runtime import addresses
from tests.scenarios import controlled as c
from tests.world import world as worlds

SERVERS = ("https://192.0.2.1:6443",)
ALL = (publisher.NAME, bootstrap_signer.NAME, token_cleaner.NAME)


@contextlib.asynccontextmanager
async def running(
    world: worlds.World, *names: str, servers: tuple[str, ...] = SERVERS, ca: bytes = c.CA_PEM
) -> AsyncIterator[None]:
    """So many processes of these controllers as every story has."""
    builds = controllers.known(ca, servers=servers)
    async with c.copied(world.clock, lambda: c.as_controllers(world), lambda: (builds[name] for name in names)):
        yield


class Story(c.WorldStory):
    """The administrator, and what newcomers see."""

    async def token(
        self,
        token: tokens.Token,
        seconds: float | None = None,
        usages: tuple[str, ...] = tokens.USAGES,
        **metadata: str,
    ) -> Any:
        until = None if seconds is None else self.clock.now() + datetime.timedelta(seconds=seconds)
        document = tokens.secret_document(token, expiration=until, usages=usages)
        document["metadata"] |= metadata
        return await self.client.create(c.SECRETS, document, namespace=document["metadata"]["namespace"])

    async def data(self) -> dict[str, str]:
        found = await self.find(c.CONFIG_MAPS, cluster_info.NAME, cluster_info.NAMESPACE)
        return dict((found or {}).get("data") or {})

    async def signed_by(self, *wanted: tokens.Token) -> dict[str, str]:
        """Until these and no others have signed what is there."""

        async def good() -> dict[str, str] | None:
            data = await self.data()
            if data.keys() != {"kubeconfig", *(f"jws-kubeconfig-{token.id}" for token in wanted)}:
                return None
            for token in wanted:
                try:
                    jws.verify(data[f"jws-kubeconfig-{token.id}"], data["kubeconfig"].encode(), token)
                except errors.Refused:
                    return None
            return data

        return dict(await self.eventually(good, f"signed by {wanted}"))

    async def warnings(self, namespace: str = "kube-system") -> set[tuple[str, str]]:
        found = await self.client.list(c.EVENTS, api.Scope(namespace=namespace))
        return {(row["involvedObject"]["name"], row["reason"]) for row in found if row["type"] == "Warning"}


def told(directory: pathlib.Path) -> contextlib.AbstractAsyncContextManager[Story]:
    return c.story_of(Story, directory)


ONE, TWO = tokens.Token("aaaaaa", "0" * 16), tokens.Token("bbbbbb", "1" * 16)


@pytest.mark.slow
async def test_the_life_of_tokens(tmp_path: pathlib.Path):
    async with told(tmp_path) as story, running(story.world, *ALL):
        first = await story.signed_by()
        system = await story.find(c.NAMESPACES, "kube-system", "")
        assert cluster_info.read(first["kubeconfig"]) == cluster_info.ClusterInfo(
            SERVERS, c.CA_PEM, system["metadata"]["uid"]
        )
        await story.token(ONE)
        await story.token(TWO, seconds=100)
        await story.signed_by(ONE, TWO)
        # Whatever people do to the ConfigMap is set right.
        found = await story.find(c.CONFIG_MAPS, cluster_info.NAME, cluster_info.NAMESPACE)
        found["data"] = {"kubeconfig": "theirs", "jws-kubeconfig-aaaaaa": "x", "jws-kubeconfig-zzzzzz": "y"}
        await story.client.update(c.CONFIG_MAPS, found)
        # At first it is signed as it is: hardly any time passes here.
        for _ in range(3000):
            data = await story.data()
            if data["kubeconfig"] == "theirs" and not {"x", "y"} & set(data.values()) and len(data) == 3:
                break
            await asyncio.sleep(0.005)
            await story.clock.advance(0.001)
        jws.verify(data["jws-kubeconfig-aaaaaa"], b"theirs", ONE)

        async def restored() -> bool:
            return (await story.data()).get("kubeconfig") == first["kubeconfig"]

        await story.eventually(restored)
        await story.signed_by(ONE, TWO)

        async def told_of() -> bool:
            return ("cluster-info", "ClusterInfoRestored") in await story.warnings("kube-public")

        await story.eventually(told_of)
        await story.client.delete(c.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE)
        await story.signed_by(ONE, TWO)
        # Expiry: the signature and the Secret go.
        await story.clock.advance(100)
        await story.signed_by(ONE)
        await story.gone(c.SECRETS, "bootstrap-token-bbbbbb", namespace="kube-system")
        await story.client.delete(c.SECRETS, "bootstrap-token-aaaaaa", namespace="kube-system")
        await story.signed_by()


@pytest.mark.slow
async def test_a_restart_with_other_addresses_and_another_ca(tmp_path: pathlib.Path):
    async with told(tmp_path) as story:
        await story.token(ONE)
        async with running(story.world, *ALL):
            before = cluster_info.read((await story.signed_by(ONE))["kubeconfig"])
        await story.token(TWO)
        both = c.CA_PEM + c.CA_PEM
        async with running(story.world, *ALL, servers=("https://192.0.2.9:6443", "https://192.0.2.8:6443"), ca=both):

            async def taken_over() -> bool:
                return (await story.data()).get("kubeconfig", "").count("192.0.2.9") == 2

            await story.eventually(taken_over)
            after = cluster_info.read((await story.signed_by(ONE, TWO))["kubeconfig"])
        assert after == dataclasses.replace(
            before, servers=("https://192.0.2.9:6443", "https://192.0.2.8:6443"), ca=both
        )


@pytest.mark.slow
async def test_nobody_can_wedge_the_signer(tmp_path: pathlib.Path):
    """By keys that the API allows in one place only, or by a ConfigMap that cannot be changed."""
    async with told(tmp_path) as story, running(story.world, *ALL):
        await story.token(ONE)
        first = await story.signed_by(ONE)
        squatting: dict[str, Any] = {
            "metadata": {"name": cluster_info.NAME},
            "binaryData": {"jws-kubeconfig-aaaaaa": "AAAA", "jws-kubeconfig-zzzzzz": "AAAA", "kubeconfig": "AAAA"},
        }
        await replaced(story, squatting)
        assert (await story.signed_by(ONE))["kubeconfig"] == first["kubeconfig"]
        await replaced(story, {"metadata": {"name": cluster_info.NAME}, "immutable": True})

        async def warned() -> bool:
            return ("cluster-info", "ImmutableConfigMap") in await story.warnings("kube-public")

        await story.eventually(warned)
        await story.client.delete(c.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE)
        await story.signed_by(ONE)


async def replaced(story: Story, document: dict[str, Any]) -> None:
    """Another ConfigMap in its place, whoever else is quick to make one."""

    async def done() -> bool:
        with api.MISSING_OK:
            await story.client.delete(c.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE)
        try:
            await story.client.create(c.CONFIG_MAPS, document, namespace=cluster_info.NAMESPACE)
        except errors.Refused:
            return False
        return True

    await story.eventually(done)


@pytest.mark.slow
async def test_credentials_are_never_signed(tmp_path: pathlib.Path):
    """Nobody publishes here but a person, by hand."""
    async with told(tmp_path) as story, running(story.world, bootstrap_signer.NAME):
        await story.token(ONE)
        text = "users: [{name: u, user: {token: swordfish}}]"
        data = {"kubeconfig": text, f"jws-kubeconfig-{ONE.id}": jws.sign(text.encode(), ONE.id, ONE.secret)}
        document = {"metadata": {"name": cluster_info.NAME}, "data": data}
        await story.client.create(c.CONFIG_MAPS, document, namespace=cluster_info.NAMESPACE)

        async def warned() -> bool:
            return ("cluster-info", "CredentialsInClusterInfo") in await story.warnings("kube-public")

        await story.eventually(warned)
        await story.signed_by()
        events = await story.client.list(c.EVENTS, api.Scope(namespace="kube-public"))
        assert "swordfish" not in f"{events}"


@pytest.mark.slow
async def test_several_copies_agree_and_come_to_rest(tmp_path: pathlib.Path):
    many = [tokens.Token(f"{number:06d}", f"{number:016d}") for number in range(20)]
    async with told(tmp_path) as story, running(story.world, *ALL), running(story.world, *ALL):
        await asyncio.gather(*(story.token(token, seconds=5000) for token in many))
        await story.signed_by(*many)
        await story.quiet()
        found = await story.find(c.CONFIG_MAPS, cluster_info.NAME, cluster_info.NAMESPACE)
        await story.quiet()
        again = await story.find(c.CONFIG_MAPS, cluster_info.NAME, cluster_info.NAMESPACE)
        assert found["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]


@pytest.mark.slow
async def test_who_is_no_use_is_told(tmp_path: pathlib.Path):
    async with told(tmp_path) as story, running(story.world, *ALL):
        await story.token(ONE, namespace="default")
        await story.token(ONE, name="bootstrap-token-other1", seconds=-5)
        document: Mapping[str, Any] = {**tokens.secret_document(TWO), "type": "Opaque"}
        await story.client.create(c.SECRETS, document, namespace="kube-system")
        guessable = tokens.secret_document(tokens.Token("cccccc", "0" * 16), usages=tokens.USAGES)
        guessable["data"]["token-secret"] = base64.b64encode(b"0123").decode()
        await story.client.create(c.SECRETS, guessable, namespace="kube-system")
        wanted = {
            ("bootstrap-token-other1", "WrongSecretName"),
            ("bootstrap-token-bbbbbb", "WrongSecretType"),
            ("bootstrap-token-cccccc", "BadTokenSecret"),
        }

        async def warned() -> bool:
            return await story.warnings() >= wanted and bool(await story.warnings("default"))

        await story.eventually(warned)
        assert await story.warnings("default") == {("bootstrap-token-aaaaaa", "WrongNamespace")}
        await story.quiet()
        # None of them signs, and the cleaner takes none of them for a token.
        await story.signed_by()
        assert await story.find(c.SECRETS, "bootstrap-token-other1", "kube-system") is not None
        events = await story.client.list(c.EVENTS, api.Scope(namespace="kube-system"))
        packed = base64.b64encode(ONE.secret.encode()).decode()
        assert not [event for event in events if ONE.secret in f"{event}" or packed in f"{event}"]


@pytest.mark.slow
async def test_the_role_runs_what_is_named(tmp_path: pathlib.Path):
    async with told(tmp_path) as story:
        path = tmp_path / "kubeconfig"
        text = story.world.place.controllers_kubeconfig.read_text().replace("https://127.0.0.1:6443", story.world.base)
        assert kubeconfig.parse(text).user is not None
        assert user_names.CONTROLLERS in text
        path.write_text(text)
        path.chmod(0o600)
        role = functools.partial(
            controllers.run,
            kubeconfig_path=str(path),
            admin_options=controllers.AdminOptions(addresses.Address("127.0.0.1", 0)),
            leader_elect=False,
            root_ca_pem=c.CA_PEM,
            servers=SERVERS,
            clock=story.world.clock,
        )
        await story.token(ONE)
        await story.token(TWO, seconds=-5)
        task = asyncio.create_task(role())
        await story.signed_by()
        await story.quiet()
        assert set(await story.data()) == {"kubeconfig"}
        await stop(task)
        task = asyncio.create_task(
            role(selection=controllers.Selection(names=["*", "bootstrapsigner", "tokencleaner"]))
        )
        await story.signed_by(ONE)
        await story.gone(c.SECRETS, "bootstrap-token-bbbbbb", namespace="kube-system")
        await stop(task)


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
