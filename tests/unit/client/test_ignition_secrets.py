# SPDX-License-Identifier: Apache-2.0
"""Keeping the digests of secrets: made once, rotated on demand, and forgotten with the machine."""

from __future__ import annotations

import datetime

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import doors, ignition_secrets, machine_import, machines
from handfast.rules.machine_config import ignition_secrets as rules
from handfast.rules.machines import bootstrapper, inventory
from tests.unit.cli.fleet_api import FleetApi

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
FLEET = "openshift-machine-api"


def machine(server: FleetApi, name: str = "w1", **annotations: str) -> inventory.Machine:
    document = server.put("machines", name, FLEET, metadata={"annotations": annotations}, spec={}, status={})
    return inventory.read({"apiVersion": f"{inventory.OPENSHIFT}/v1beta1", **document})


def kept(server: FleetApi, name: str) -> list[str]:
    """The digests in a Secret."""
    document = server.objects.get(("secrets", bootstrapper.NAMESPACE, name), {})
    return [entry.digest for entry in rules.read(document)]


@pytest.fixture
def server():
    made = FleetApi()
    made.put("machineconfigpools", "worker")
    made.put("machineconfigpools", "master")
    return made


async def test_the_secret_of_a_machine_is_made_once_and_replaced_on_demand(server):
    each = machine(server)
    await ignition_secrets.keep_for_machine(server, each, "worker", "first", rotate=False)
    with pytest.raises(errors.Refused, match="has a secret already, whose text is nowhere kept") as refused:
        await ignition_secrets.keep_for_machine(server, each, "worker", "second", rotate=False)
    assert refused.value.reason == ignition_secrets.EXISTS
    await ignition_secrets.keep_for_machine(server, each, "worker", "second", rotate=True)
    assert kept(server, "ignition-machine-w1") == [rules.digest("second")]


async def test_the_secret_of_an_earlier_machine_is_replaced(server):
    await ignition_secrets.keep_for_machine(server, machine(server), "worker", "first", rotate=False)
    anew = inventory.Machine(group=inventory.OPENSHIFT, namespace=FLEET, name="w1", uid="another")
    await ignition_secrets.keep_for_machine(server, anew, "worker", "second", rotate=False)
    assert kept(server, "ignition-machine-w1") == [rules.digest("second")]


async def test_who_has_a_certificate_gets_no_secret(server):
    joined = machine(server, **{inventory.APPROVED_KEY: "ab"})
    with pytest.raises(errors.Refused, match="a secret would not count") as refused:
        await ignition_secrets.keep_for_machine(server, joined, "worker", "first", rotate=True)
    assert refused.value.reason == "MachineHasJoined"


async def test_the_secret_of_a_pool_goes_on_for_the_overlap(server):
    await ignition_secrets.keep_for_pool(server, "worker", "first", None)
    with pytest.raises(errors.Refused) as refused:
        await ignition_secrets.keep_for_pool(server, "worker", "second", None)
    assert refused.value.reason == ignition_secrets.EXISTS
    await ignition_secrets.keep_for_pool(server, "worker", "second", NOW)
    assert kept(server, "ignition-pool-worker") == [rules.digest("second"), rules.digest("first")]


async def test_a_pool_that_is_not_there_has_no_secret(server):
    with pytest.raises(errors.Refused, match='there is no pool "workers"') as refused:
        await ignition_secrets.keep_for_pool(server, "workers", "first", None)
    assert (refused.value.reason, refused.value.hint) == ("NoPool", "there are: worker, master")


async def test_somebody_elses_secret_is_left_alone(server):
    server.put("secrets", "ignition-pool-worker", bootstrapper.NAMESPACE, data={})
    with pytest.raises(errors.Refused, match="is no secret of a machine or a pool") as refused:
        await ignition_secrets.keep_for_pool(server, "worker", "first", NOW)
    assert refused.value.reason == "SecretTaken"


async def test_where_the_namespace_is_missing_it_is_said_who_makes_it(server):
    def missing(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("create", "secrets"):
            raise status.not_found("namespaces", "", bootstrapper.NAMESPACE)

    server.before = missing
    with pytest.raises(status.StatusError) as error:
        await ignition_secrets.keep_for_pool(server, "worker", "first", None)
    assert "handfast init --machines" in (error.value.hint or "")


async def test_a_failure_of_another_kind_stays_as_it_is(server):
    def full(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("create", "secrets"):
            raise status.conflict("secrets", "", "ignition-pool-worker")

    server.before = full
    with pytest.raises(status.StatusError) as error:
        await ignition_secrets.keep_for_pool(server, "worker", "first", None)
    assert error.value.hint is None


async def test_a_machine_that_may_ask_with_another_key_needs_another_secret(server):
    each = machine(server)
    await ignition_secrets.keep_for_machine(server, each, "worker", "first", rotate=False)
    server.machine("w1")["metadata"]["annotations"] = {inventory.APPROVED_KEY: "ab"}
    known = await machines.read(server)
    assert (await machines.readmit(server, known, known.one("w1"))).changed
    assert kept(server, "ignition-machine-w1") == []


async def test_a_machine_that_is_deleted_takes_its_secret_along(server):
    each = machine(server)
    await ignition_secrets.keep_for_machine(server, each, "worker", "first", rotate=False)
    await machine_import.delete(server, each)
    assert kept(server, "ignition-machine-w1") == []


async def test_the_secret_of_another_machine_of_the_name_stays(server):
    await ignition_secrets.keep_for_machine(server, machine(server), "worker", "first", rotate=False)
    anew = inventory.Machine(group=inventory.OPENSHIFT, namespace=FLEET, name="w1", uid="another")
    await ignition_secrets.forget(server, anew)
    assert kept(server, "ignition-machine-w1") == [rules.digest("first")]


async def test_what_lets_somebody_fetch_a_configuration_is_among_the_doors(server):
    await ignition_secrets.keep_for_machine(server, machine(server), "worker", "of-a-machine", rotate=False)
    await ignition_secrets.keep_for_pool(server, "worker", "first", None)
    await ignition_secrets.keep_for_pool(server, "worker", "second", NOW)
    rows = [door for door in await doors.Look(server).everything() if door.kind == "configuration"]
    assert [(door.opens, door.until) for door in rows] == [
        (
            "fetches the configuration of the pool worker, as Machine openshift-machine-api/w1",
            "until its first certificate",
        ),
        ("fetches the configuration of the pool worker", "until it is rotated"),
        ("fetches the configuration of the pool worker", "2026-11-17T12:00:00Z"),
    ]
    assert rows[1].close == (
        "handfast machine ignition --pool worker --rotate; or kubectl --namespace openshift-machine-config-operator "
        "delete secret ignition-pool-worker"
    )
