# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a configuration, a pool or a request for one, and what the people read who have to put it right.

One `handfast up --machines` and one machine that follows are the world of all cases here. What each part decides is tested beside it:

| what is wrong | who reads it, here | decided in (tests/unit, unless it says otherwise) |
|---|---|---|
| unknown pool | test_a_pool_that_is_not_there_is_named_with_those_that_are | machines/test_handler, client/test_ignition_secrets; test_machine_config_server (a pool that has gone) |
| unknown Accept | test_a_version_of_ignition_that_is_not_served_is_refused_with_those_that_are | rules/machine_config/test_accepted, machines/test_handler |
| broken Ignition | test_a_bad_machine_config_is_named_with_field_value_and_what_is_allowed | rules/machine_config/test_ignition, test_merging; machines/test_directory; cli/test_node_configuration |
| two that contradict | … | rules/machine_config/test_merging, machines/test_directory |
| a path that escapes | … | rules/machine_config/test_ignition, test_applying; node/test_root_files (links) |
| a unit without contents | …, and test_a_unit_that_only_the_machine_can_judge_is_degraded_there | rules/machine_config/test_ignition, test_applying |
| a file larger than its limit | … | rules/machine_config/test_data_urls, test_ignition, test_applying |
| `maxUnavailable` nonsense | test_max_unavailable_that_says_no_number_stops_the_pool_and_says_why | rules/machine_config/test_max_unavailable, test_pool_status; test_machine_config_pools |
| a server certificate of another CA | test_a_server_of_another_ca_is_sent_nothing_and_both_are_named | client/test_machine_configs; test_node_configuration (a running agent) |
| a secret of another pool | test_a_secret_of_another_pool_is_named_as_that_to_all_who_look | rules/machine_config/test_requester, machines/test_handler; test_machine_config_server |
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.rules.machine_config import pointer
from tests.scenarios import configurations_world as w
from tests.scenarios import configured_world, up_world
from tests.scenarios.test_node_agent import Agent
from tests.unit.rules.machine_config import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CONFIGS = "/apis/machineconfiguration.openshift.io/v1/machineconfigs"
VERSIONS = "there are 3.0.0, 3.1.0, 3.2.0, 3.3.0, 3.4.0, 3.5.0"
ALLOWED = 'it is to be a number from 0, or a percentage from "0%" to "100%" without a space'
BIG = "data:;base64," + base64.b64encode(gzip.compress(bytes(5 << 20))).decode()
V3 = {"ignition": {"version": "3.4.0"}}


class World:
    """A control plane, and w1, which has what its pool is rendered as and follows."""

    def __init__(self, plane: w.Configured, machine: configured_world.Machine, agent: Agent) -> None:
        self.plane = plane
        self.machine = machine
        self.agent = agent
        self.secret = plane.secret("--pool", "worker")
        self.good = self.target()

    def pool(self) -> dict[str, Any]:
        return self.plane.call("GET", f"{w.POOLS}/worker")[1]

    def target(self) -> str:
        return str(self.pool()["spec"]["configuration"]["name"])

    def condition(self, kind: str) -> tuple[str, str, str]:
        (row,) = [each for each in self.pool()["status"]["conditions"] if each["type"] == kind]
        return row["status"], row["reason"], row["message"]

    def says(self, kind: str, status: str, reason: str = "", seconds: float = 30) -> str:
        """The message of a condition, once it is so."""

        def so() -> bool:
            seen = self.condition(kind)
            return seen[0] == status and reason in {"", seen[1]}

        up_world.until(so, seconds, f"{kind}={status} {reason}: {self.condition(kind)}")
        return self.condition(kind)[2]

    def degraded_column(self) -> str:
        """What `kubectl get mcp` shows."""
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        with contextlib.closing(self.plane.connection(self.plane.context())) as connection:
            connection.request("GET", f"{w.POOLS}/worker", headers={"Accept": accept})
            table = json.loads(connection.getresponse().read())
        place = [column["name"] for column in table["columnDefinitions"]].index("Degraded")
        return str(table["rows"][0]["cells"][place])

    def events(self) -> set[tuple[str, str, str]]:
        rows = self.plane.call("GET", "/api/v1/namespaces/default/events")[1]["items"]
        mine = [row for row in rows if row["involvedObject"].get("name") == "worker"]
        return {(row["type"], row["reason"], row["message"]) for row in mine}

    def write(self, name: str, config: Any) -> tuple[int, dict[str, Any]]:
        labels = {"machineconfiguration.openshift.io/role": "worker"}
        document = {"metadata": {"name": name, "labels": labels}, "spec": {"config": config}}
        head = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig"}
        return self.plane.call("POST", CONFIGS, {**head, **document})

    @contextlib.contextmanager
    def written(self, **configs: Any) -> Iterator[None]:
        """With these MachineConfigs, and without any trace of them afterwards."""
        for name, config in configs.items():
            code, answer = self.write(name, config)
            assert code == 201, answer
        yield
        for name in reversed(configs):
            assert self.plane.call("DELETE", f"{CONFIGS}/{name}")[0] == 200
        self.says("RenderDegraded", "False")
        up_world.until(lambda: self.target() == self.good, 30, "the rendering of before")
        self.machine.until("Done", self.good, seconds=60)
        self.says("Degraded", "False")

    def limit(self, value: Any) -> tuple[int, dict[str, Any]]:
        """Set spec.maxUnavailable."""
        patch = json.dumps({"spec": {"maxUnavailable": value}})
        with contextlib.closing(self.plane.connection(self.plane.context())) as connection:
            headers = {"Content-Type": "application/merge-patch+json"}
            connection.request("PATCH", f"{w.POOLS}/worker", patch, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def fetch(
        self, directory: pathlib.Path, path: str, secret: str, ca: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """`handfast node configuration fetch` on a new machine."""
        ca = ca or (self.plane.directory / "pki" / "ca.crt").read_bytes()
        (directory / "root").mkdir()
        file = directory / "pointer.ign"
        file.write_text(json.dumps(pointer.document(self.plane.facts["machineConfig"] + path, ca, secret)))
        done = up_world.run(
            "node", "configuration", "fetch", "--pointer", file, "--root", directory / "root", "--timeout", "5s"
        )
        assert secret not in done.stdout + done.stderr
        assert list((directory / "root").rglob("etc")) == []
        return done

    def audited(self, status: int, reason: str) -> dict[str, Any]:
        def lines() -> list[dict[str, Any]]:
            return [line for line in self.plane.lines() if (line["status"], line.get("reason")) == (status, reason)]

        up_world.until(lambda: bool(lines()), what=f"a line {status} {reason}")
        return lines()[-1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("world")
    with w.Configured(place / "data") as plane:
        plane.ready()
        config = {**V3, "storage": {"files": [serving.file("/etc/motd", "hello")]}}
        labels = {"machineconfiguration.openshift.io/role": "worker"}
        document = {"metadata": {"name": "00-worker", "labels": labels}, "spec": {"config": config}}
        head = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig"}
        assert plane.call("POST", CONFIGS, {**head, **document})[0] == 201
        plane.operator("machine", "create", "w1", "--dns", "w1.example", "--ip", "192.0.2.7")
        machine = configured_world.Machine(plane, place, "w1.example")
        bootstrap = plane.worker(place / "o")
        flags = ("--bootstrap-kubeconfig", bootstrap, "--node-ip", "192.0.2.7", "--rotate-certificates")
        follows = ("--machine-config", "--root", machine.root, "--machine-config-server", plane.facts["machineConfig"])
        with machine.agent(*flags, *follows) as agent:
            machine.until("Done", seconds=60)
            up_world.until((machine.root / "etc/motd").exists, 30, "the first configuration")
            machine.until("Done", seconds=60)
            yield World(plane, machine, agent)


def files(*rows: dict[str, Any]) -> dict[str, Any]:
    return {**V3, "storage": {"files": list(rows)}}


@pytest.mark.parametrize(
    ("configs", "reason", "message"),
    [
        pytest.param(
            {"99-bad": {"ignition": {"version": "9.0.0"}}},
            "IgnitionInvalid",
            f'MachineConfig 99-bad: spec.config.ignition.version is "9.0.0": {VERSIONS}',
            id="broken Ignition: its version",
        ),
        pytest.param(
            {"99-bad": {**V3, "storage": {"flies": []}}},
            "IgnitionInvalid",
            "MachineConfig 99-bad: spec.config.storage.flies is no field: there are directories, disks, files, filesystems, "
            "links, luks, raid",
            id="broken Ignition: a field",
        ),
        pytest.param(
            {"50-file": files(serving.file("/etc/x", "1")), "99-bad": files(serving.file("/etc/x/y", "2"))},
            "MachineConfigsContradict",
            'MachineConfig 50-file has the file "/etc/x", and MachineConfig 99-bad has the file "/etc/x/y": '
            "a machine cannot have both",
            id="two that contradict",
        ),
        pytest.param(
            {"99-bad": files(serving.file("/etc/../../root/x", "1"))},
            "IgnitionInvalid",
            'MachineConfig 99-bad: spec.config.storage.files[0].path is "/etc/../../root/x": a path has no segment that is '
            "empty, . or .. or longer than 255 bytes, and is Unicode",
            id="a path that escapes",
        ),
        pytest.param(
            {"99-bad": {**V3, "systemd": {"units": [{"name": "none.service"}]}}},
            "IgnitionInvalid",
            'MachineConfig 99-bad: spec.config.systemd.units[0] is "none.service" without contents: it has contents, '
            "dropins, enabled or mask",
            id="a unit without contents",
        ),
        pytest.param(
            {"99-bad": files({"path": "/etc/big", "contents": {"source": BIG, "compression": "gzip"}})},
            "IgnitionInvalid",
            "MachineConfig 99-bad: spec.config.storage.files[0].contents.source is unpacked larger than a file may be, "
            'which is 4,194,304 bytes: the file is "/etc/big"',
            id="a file larger than its limit",
        ),
    ],
)
def test_a_bad_machine_config_is_named_with_field_value_and_what_is_allowed(
    world: World, configs: dict[str, Any], reason: str, message: str
) -> None:
    with world.written(**configs):
        # On the pool, for whoever describes it, and in the column of `kubectl get mcp`.
        assert world.says("RenderDegraded", "True", reason) == message
        assert world.says("Degraded", "True", "RenderDegraded") == message
        assert world.degraded_column() == "True"
        # In the Events of the pool.
        up_world.until(lambda: ("Warning", reason, message) in world.events(), 30, "an Event")
        # In the list of pools, which does not call it updated though every machine has what it is to have.
        text = world.plane.operator("machine", "pools")
        assert f"\nworker is degraded: RenderDegraded: {message}\n" in text
        (row,) = [line.split() for line in text.splitlines() if line.startswith("worker ") and "rendered-" in line]
        assert "degraded" in row
        # What was good stays: it is served, and no machine is touched by the bad one.
        assert world.plane.client().ask("/config/worker", world.secret).code == 200
        assert world.machine.annotations()["state"] in {"Done", "Working"}
        assert not list(world.machine.root.rglob("big"))


def test_what_has_not_the_form_of_the_kind_is_refused_when_it_is_written(world: World) -> None:
    code, answer = world.write("99-bad", "not an object")
    assert (code, answer["reason"]) == (422, "Invalid")
    assert "spec.config in body must be of type object" in answer["message"]


def test_a_unit_that_only_the_machine_can_judge_is_degraded_there(world: World) -> None:
    said = 'the unit "none.service" is to be enabled and has no contents, and this machine brings no unit of that name'
    hint = "add its contents to the MachineConfig, or install what brings the unit"
    with world.written(**{"99-bad": {**V3, "systemd": {"units": [{"name": "none.service", "enabled": True}]}}}):
        # On the Node, and on the pool.
        reported = world.machine.until("Degraded", world.good, "UnitWithoutContents", seconds=60)
        assert reported["reason"] == f"UnitWithoutContents: {said} ({hint})"
        assert said in world.says("Degraded", "True", "MachinesDegraded").replace('\\"', '"')
        assert f"w1.example   worker   Degraded   UnitWithoutContents: {said}" in world.plane.operator(
            "machine", "pools"
        )
        # On the machine: in its log, and for who asks there.
        lines = [line for line in world.agent.lines() if line.get("reason") == "UnitWithoutContents"]
        assert (lines[-1]["level"], lines[-1]["error"], lines[-1]["hint"]) == ("warning", said, hint)
        done = up_world.run("node", "configuration", "status", "--root", world.machine.root)
        assert done.returncode == 1
        assert f"state       Degraded\nreason      UnitWithoutContents: {said} ({hint})\n" in done.stdout
        assert f"rendering   {world.good}\n" in done.stdout


@pytest.mark.parametrize("value", ["50 percent", "150%", "", -1])
def test_max_unavailable_that_says_no_number_stops_the_pool_and_says_why(world: World, value: object) -> None:
    message = f"spec.maxUnavailable: {str(value)!r} is not allowed: {ALLOWED}"
    assert world.limit(value)[0] == 200
    assert world.says("Degraded", "True", "MaxUnavailableRefused") == message
    assert world.degraded_column() == "True"
    up_world.until(lambda: ("Warning", "MaxUnavailableRefused", message) in world.events(), 30, "an Event")
    assert f"worker is degraded: MaxUnavailableRefused: {message}" in world.plane.operator("machine", "pools")
    assert world.limit(None)[0] == 200
    world.says("Degraded", "False")


def test_max_unavailable_of_another_type_is_refused_when_it_is_written(world: World) -> None:
    code, answer = world.limit(1.5)
    assert (code, answer["reason"]) == (422, "Invalid")
    assert "spec.maxUnavailable in body must be of type integer,string" in answer["message"]


def test_a_pool_that_is_not_there_is_named_with_those_that_are(world: World, tmp_path: pathlib.Path) -> None:
    text = world.plane.operator("machine", "ignition", "--pool", "nobodys", code=1)
    assert text == 'error: there is no pool "nobodys"\nhint: there are: master, worker\nreason: NoPool\n'
    # Who has no proof for it does not learn whether it is there.
    assert world.plane.client().ask("/config/nobodys").reason == "NoProof"
    assert (
        world.fetch(tmp_path, "/config/nobodys", world.secret)
        .stderr.splitlines()[0]
        .endswith("/config/nobodys answered 403 (OtherPool): this machine may not have that configuration")
    )


def test_a_version_of_ignition_that_is_not_served_is_refused_with_those_that_are(world: World) -> None:
    wanted = "application/vnd.coreos.ignition+json;version=1.0.0"
    answer = world.plane.client().ask("/config/worker", world.secret, Accept=wanted)
    assert (answer.code, answer.reason, answer.body) == (400, "IgnitionVersionUnsupported", b"")
    line = world.audited(400, "IgnitionVersionUnsupported")
    assert line["message"] == f"Ignition 1.0.0 is not served: {VERSIONS.replace('are ', 'are 2.2.0, ')}"
    assert (line["user"], line["proof"]) == ("pool worker", "pool-secret")


def test_a_server_of_another_ca_is_sent_nothing_and_both_are_named(world: World, tmp_path: pathlib.Path) -> None:
    other = configured_world.other_authority("somebody else's CA")
    before = len(world.plane.lines())
    done = world.fetch(tmp_path, "/config/worker", world.secret, other.pem)
    assert done.returncode == 1
    assert "presents a certificate of another CA, CN=handfast-ca; the pointer configuration trusts" in done.stderr
    assert "CN=somebody else's CA (sha256:" in done.stderr
    assert "nothing was sent to it\nreason: OtherCA" in done.stderr
    assert not [line for line in world.plane.lines()[before:] if line.get("proof") == "pool-secret"]


def test_a_secret_of_another_pool_is_named_as_that_to_all_who_look(world: World, tmp_path: pathlib.Path) -> None:
    answer = world.plane.client().ask("/config/master", world.secret)
    assert (answer.code, answer.reason, answer.body) == (403, "OtherPool", b"")
    # Whose secret it was is for who reads the server's log, not for who has it.
    assert world.audited(403, "OtherPool")["message"] == "the secret is that of the pool worker"
    up_world.until(
        lambda: any(line.get("detail") == "the secret is that of the pool worker" for line in world.plane.events()),
        what="the server's log",
    )
    done = world.fetch(tmp_path, "/config/master", world.secret)
    assert done.returncode == 1
    assert "/config/master answered 403 (OtherPool): this machine may not have that configuration" in done.stderr
    assert "the secret in the pointer is of another pool or machine" in done.stderr
    assert "reason: OtherPool" in done.stderr
