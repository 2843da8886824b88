# SPDX-License-Identifier: Apache-2.0
"""A worker from nothing to the newest credential, on real processes: `up --machines` with its server, renderer and pools, and an agent.

Proves: a machine that only has a pointer gets its configuration, joins by the bootstrap kubeconfig in it, follows its pool by a watch,
gets a new file and a new credential without a restart, and is the pool's updated machine; and a bad MachineConfig that is withdrawn
leaves no trace.
"""

from __future__ import annotations

import json
import pathlib
import stat
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.bootstrap import kubeconfig
from handfast.rules.machine_config import host_paths
from tests.scenarios import configurations_world as w
from tests.scenarios import configured_world, machines_world, up_world
from tests.unit.rules.machine_config import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONFIGS = "/apis/machineconfiguration.openshift.io/v1/machineconfigs"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[w.Configured]:
    with w.Configured(tmp_path_factory.mktemp("plane") / "data") as running:
        yield running.ready()


def write(plane: w.Configured, name: str, *files: dict[str, Any], **spec: Any) -> None:
    document = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": list(files)}}, **spec},
    }
    plane.call("DELETE", f"{CONFIGS}/{name}")
    code, answer = plane.call("POST", CONFIGS, document)
    assert code == 201, answer


def pool(plane: w.Configured) -> dict[str, Any]:
    return plane.call("GET", f"{w.POOLS}/worker")[1]


def target(plane: w.Configured, before: str = "") -> str:
    def name() -> str:
        return str(pool(plane)["spec"].get("configuration", {}).get("name", ""))

    up_world.until(lambda: name() not in {"", before}, 60, "a rendering")
    return name()


def follows(worker: configured_world.Machine, rendering: str) -> None:
    worker.until("Done", rendering, seconds=60)


def test_a_worker_comes_up_by_a_pointer_and_follows_to_the_newest_credential(
    plane: w.Configured, tmp_path: pathlib.Path
) -> None:
    write(plane, "50-motd", serving.file("/etc/motd", "one"))
    plane.operator("machine", "create", "w1", "--dns", "w1.example", "--ip", "192.0.2.7", "--role", "worker")
    assert target(plane).startswith("rendered-worker-")
    worker = configured_world.Machine(plane, tmp_path, "w1.example")
    pointer = tmp_path / "w1.ign"
    pointer.write_text(plane.operator("machine", "ignition", "w1", "--url", plane.facts["machineConfig"]))
    done = up_world.run("node", "configuration", "fetch", "--pointer", pointer, "--root", worker.root, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rendering"].startswith("rendered-worker-")
    held = worker.root / host_paths.KUBECONFIG[1:]
    assert stat.S_IMODE(held.stat().st_mode) == 0o600
    assert (worker.root / "etc/hostname").read_text() == "w1.example\n"

    flags = ("--rotate-certificates", "--machine-config", "--root", worker.root)
    server = ("--machine-config-server", plane.facts["machineConfig"])
    with worker.agent(*flags, *server, "--node-ip", "192.0.2.7") as agent:
        # It joins by the kubeconfig that the configuration brought: nobody named it.
        agent.until_said("this node has its identity")
        up_world.until(lambda: worker.node() is not None, what="the Node")
        worker.label("node-role.kubernetes.io/worker")
        follows(worker, target(plane))

        # A new file.
        before = target(plane)
        write(plane, "60-issue", serving.file("/etc/issue", "two"))
        follows(worker, target(plane, before))
        assert (worker.root / "etc/issue").read_text() == "two"
        assert (worker.root / "etc/hostname").read_text() == "w1.example\n"

        # What cannot be applied, and its end.
        good = target(plane)
        write(plane, "70-kernel", kernelArguments=["quiet"])
        worker.until("Degraded", good, "kernelArguments", seconds=60)
        assert plane.call("DELETE", f"{CONFIGS}/70-kernel")[0] == 200
        follows(worker, good)

        # The worker's credential is revoked: a new one is there without a restart.
        old = kubeconfig.parse(held.read_text())
        assert plane.call("DELETE", machines_world.SECRET)[0] == 200
        latest = target(plane, good)
        follows(worker, latest)
        new = kubeconfig.parse(held.read_text())
        assert old.user is not None
        assert new.user is not None
        assert old.user.token != new.user.token
        assert new.user.token == plane.token()
        assert new.user.token not in agent.text()
        up_world.until(lambda: pool(plane)["status"].get("updatedMachineCount") == 1, 60, f"{pool(plane)['status']}")
        agent.until_well()
