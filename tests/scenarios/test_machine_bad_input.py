# SPDX-License-Identifier: Apache-2.0
"""Machines and requests that are not as they should be, on a real server: what becomes of them, and what an operator reads.

Bundles and ConfigMaps of client CAs that are not as they should be are in `test_bootstrap_cas`; files of machines in
`tests/unit/cli/test_machine_declare.py`.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from handfast.rules.machines import bootstrapper
from tests.scenarios import certified as c
from tests.scenarios import fleet_story as f

pytestmark = pytest.mark.slow

# A Machine's name, and its InternalDNS names.
Machines = dict[str, tuple[str, ...]]
PANDA: Machines = {"m1": ("panda",)}
TWINS: Machines = {"one": ("panda",), "two": ("PANDA.",)}


async def have(story: f.Story, machines: Machines) -> None:
    for name, dns in machines.items():
        rows = [{"type": "InternalDNS", "address": text} for text in dns]
        await story.machine(name, addresses=rows)


@pytest.mark.parametrize(
    ("machines", "node", "reason", "says"),
    [
        pytest.param(
            TWINS,
            "panda",
            "AmbiguousMachine",
            "Machine openshift-machine-api/one, Machine openshift-machine-api/two",
            id="two Machines of one name",
        ),
        pytest.param(
            {"panda": ()},
            "panda",
            "NoMachine",
            "Machine openshift-machine-api/panda is called so, and it reports no InternalDNS name",
            id="no addresses",
        ),
        pytest.param(
            {"m1": ("localhost",)}, "localhost", "LocalhostName", "give the machine its own host name", id="localhost"
        ),
        pytest.param(PANDA, "PANDA", "NotRecognised", "a lowercase RFC 1123 subdomain", id="a node in upper case"),
        pytest.param(PANDA, "panda.", "NotRecognised", "is no name of a node", id="a node with a trailing dot"),
    ],
)
async def test_what_is_not_as_it_should_be_waits_and_the_operator_reads_why(
    tmp_path: pathlib.Path, machines: Machines, node: str, reason: str, says: str
) -> None:
    async with f.told(tmp_path) as story, f.running(story):
        await have(story, machines)
        await story.ask(c.request(node, name="asks"), story.bootstrapper())
        assert await story.reason("asks") == reason
        ((_, event, _),) = await story.told("asks")
        assert says in event
        said = await story.operator("csr", "explain", "asks")
        assert says in said
        assert await story.conditions("asks") == {}


async def test_the_twin_of_a_machine_is_named_and_when_it_goes_the_other_counts(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story, f.running(story):
        await have(story, TWINS)
        said = await story.operator("machine", "explain", "one")
        assert (
            'has the InternalDNS name "panda", and so has Machine openshift-machine-api/two: none of them counts'
            in said
        )
        assert 'to go on: leave the InternalDNS name "panda" to one of them' in said
        await story.ask(c.request("panda", name="asks"), story.bootstrapper())
        assert await story.reason("asks") == "AmbiguousMachine"
        await story.client.delete(f.MACHINES, "two", namespace=f.FLEET)
        await story.issued("asks")
        assert (await story.conditions("asks"))["MatchedMachine"][1] == f"Machine {f.FLEET}/one"


async def test_a_machine_without_addresses_is_told_what_it_lacks(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story:
        await have(story, {"m1": ()})
        said = await story.operator("machine", "explain", "m1")
        assert f"Machine {f.FLEET}/m1 has no InternalDNS name" in said
        assert "an address of type InternalDNS: the name that its node will have" in said


async def test_a_credential_with_a_group_too_few_waits_and_the_group_is_named(tmp_path: pathlib.Path) -> None:
    """As clusters have it whose installer is of before 2023: one group, and no word of it anywhere."""
    async with f.told(tmp_path) as story, f.running(story):
        await have(story, PANDA)
        own = f"system:serviceaccounts:{bootstrapper.NAMESPACE}"
        await story.ask(c.request("panda", name="asks"), story.bootstrapper(own))
        assert await story.reason("asks") == "NotABootstrapIdentity"
        ((_, event, _),) = await story.told("asks")
        assert "system:serviceaccounts is missing" in event
        assert "system:serviceaccounts is missing" in await story.operator("csr", "explain", "asks")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--dns", "localhost"), 'dns: "localhost" is what every machine calls itself'),
        (("--dns", "w1", "--ip", "fe80::1%eth0"), "without a zone"),
        (("--dns", "10.0.0.1"), "write it as ip"),
    ],
)
async def test_what_is_typed_wrong_is_refused_before_anything_is_written(
    tmp_path: pathlib.Path, flags: tuple[str, ...], says: str
) -> None:
    async with f.told(tmp_path) as story:
        said = await story.operator("machine", "create", "w1", *flags, code=2)
        assert says in said
        assert await story.client.list(f.MACHINES) == []


async def test_every_form_of_a_name_and_an_address_is_the_same_one(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story, f.running(story):
        await story.operator("machine", "create", "w1", "--dns", "W1.Example.", "--ip", "FD00:0:0::000B")
        said = await story.operator("machine", "create", "w2", "--dns", "w2", "--ip", "fd00:0::b", code=1)
        assert 'ip: "fd00::b" is that of Machine openshift-machine-api/w1 in the cluster' in said
        await story.ask(c.request("w1.example", name="asks"), story.bootstrapper())
        await story.issued("asks")
        machine: dict[str, Any] = await story.find(f.MACHINES, "w1", f.FLEET)
        assert [row["address"] for row in machine["status"]["addresses"]] == ["w1.example", "fd00::b"]


async def test_a_file_says_which_line_is_wrong_and_nothing_is_made(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "rack.csv"
    file.write_text("name,dns,ip\nw1,w1,10.0.0.1\nw2,localhost,10.0.0.2\nw3,w3,10.0.0.1\n")
    async with f.told(tmp_path) as story:
        said = await story.operator("machine", "import", str(file), code=1)
        assert 'line 3: dns: "localhost"' in said
        assert 'line 4: ip: "10.0.0.1" is also that of w1 in line 2' in said
        assert f"error: {file} has 2 problems, and nothing was written" in said
        assert await story.client.list(f.MACHINES) == []
