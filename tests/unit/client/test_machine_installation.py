# SPDX-License-Identifier: Apache-2.0
"""Making a cluster ready for machines: what is created, in which order, and what stays revoked."""

import asyncio

import pytest

from handfast import errors
from handfast.client import machine_installation
from handfast.rules.machines import bootstrapper
from tests.unit.cli.fleet_api import FleetApi
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock, settle

TRUST = ("configmaps", bootstrapper.CONFIG_NAMESPACE, bootstrapper.CONFIG_MAP)
WANTED = machine_installation.Wanted(
    credential=machine_installation.Credential(bundle=b"bundle", kubeconfig=b"a secret", before_it_counts=lambda: None)
)


class Client(FakeClient):
    """Serves a kind once it was asked for so often."""

    def __init__(self, asked_before: int = 0) -> None:
        super().__init__()
        self.left = asked_before

    async def serves(self, resource):
        self.left -= 1
        return self.left < 0


async def test_the_credential_counts_when_all_else_is_there_and_the_marker_is_last():
    client = Client()
    done = await machine_installation.ensure(client, WANTED, MovableClock())
    assert {verb for verb, _ in done} == {"created"}
    assert [title for _, title in done[-3:]] == [
        "Secret openshift-machine-config-operator/kubelet-bootstrap-kubeconfig",
        "ConfigMap openshift-config/kubelet-bootstrap-kubeconfig",
        "ConfigMap kube-system/handfast-machines",
    ]
    assert await machine_installation.is_installed(client)


async def test_a_run_that_was_cut_short_is_completed():
    client = Client()

    def cut(verb, plural, name):
        if (plural, name) == ("configmaps", bootstrapper.CONFIG_MAP):
            raise errors.Unavailable("gone")

    client.before = cut
    with pytest.raises(errors.Unavailable):
        await machine_installation.ensure(client, WANTED, MovableClock())
    assert not await machine_installation.is_installed(client)
    client.before = lambda *_: None
    done = {title: verb for verb, title in await machine_installation.ensure(client, WANTED, MovableClock())}
    assert done["Namespace openshift-config"] == "kept"
    assert done["ConfigMap openshift-config/kubelet-bootstrap-kubeconfig"] == "created"
    assert TRUST in client.objects


async def test_machines_are_added_before_the_credential_counts():
    client = Client()

    async def add(reached):
        assert reached is client
        assert TRUST not in client.objects
        return [("created", "Machine openshift-machine-api/m1")]

    wanted = machine_installation.Wanted(credential=WANTED.credential, add_machines=add)
    done = await machine_installation.ensure(client, wanted, MovableClock())
    assert ("created", "Machine openshift-machine-api/m1") in done


async def test_whoever_installs_is_told_before_the_credential_counts():
    client = Client()
    seen = []
    credential = machine_installation.Credential(
        bundle=b"bundle", kubeconfig=b"a secret", before_it_counts=lambda: seen.append(TRUST in client.objects)
    )
    await machine_installation.ensure(client, machine_installation.Wanted(credential=credential), MovableClock())
    assert seen == [False]


async def test_without_a_credential_everything_else_is_made():
    client = Client()
    await machine_installation.ensure(client, machine_installation.Wanted(credential=None), MovableClock())
    assert TRUST not in client.objects
    assert await machine_installation.is_installed(client)


async def test_a_kind_that_was_just_defined_is_waited_for():
    client, clock = Client(asked_before=3), MovableClock()
    work = asyncio.ensure_future(machine_installation.ensure(client, WANTED, clock))
    await settle()
    assert not work.done()
    await clock.advance(1.0)
    assert (await work)[-1][0] == "created"


async def test_a_kind_that_never_comes_is_an_error_that_says_where_to_look():
    client, clock = Client(asked_before=10_000), MovableClock()
    work = asyncio.ensure_future(machine_installation.ensure(client, WANTED, clock))
    await settle()
    await clock.advance(31.0)
    with pytest.raises(errors.Unavailable) as error:
        await work
    assert "machineconfigpools" in error.value.message
    assert "CustomResourceDefinition" in str(error.value.hint)
    assert TRUST not in client.objects


def test_what_is_wanted_does_not_print_the_credential():
    assert "a secret" not in repr(WANTED)


class Merging(Client, FleetApi):
    """… whose patches count."""


async def test_what_a_later_release_added_is_made_once():
    client = Merging()
    await machine_installation.ensure(client, WANTED, MovableClock())
    assert await machine_installation.add_later_parts(client, MovableClock()) == []
    marker = client.objects["configmaps", "kube-system", "handfast-machines"]
    del marker["data"]["configurations"]
    gone = [key for key in client.objects if key[2] == "system:machine-config-server"]
    for key in gone:
        del client.objects[key]
    done = await machine_installation.add_later_parts(client, MovableClock())
    assert len(done) == len(gone) == 8
    assert {verb for verb, _ in done} == {"created"}
    assert await machine_installation.add_later_parts(client, MovableClock()) == []


async def test_a_cluster_that_is_not_installed_gets_no_later_parts():
    assert await machine_installation.add_later_parts(Client(), MovableClock()) == []
