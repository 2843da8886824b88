# SPDX-License-Identifier: Apache-2.0
"""The release before beside this one: its data directory is upgraded, and its agents work on and are shown as unable to follow.

`tests/vectors/release-before-machines.tar.gz` is a data directory that the release before (commit 1e1d113) has left: `up --machines`
with an inventory of two masters and a worker, of which m1 and w1 had joined. Its store is as it was, but for the ids of the computer it was made
on. The audit log, the locks and the reserve were left out. Its keys let nobody in anywhere.

The agent is of the release before where `HANDFAST_RELEASE_BEFORE` names its command, as in "/opt/before/bin/python -m handfast". Else it is this
release's without --machine-config, which says the same of itself: nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sqlite3
import tarfile
from typing import Any

import pytest

from handfast.bootstrap import kubeconfig
from handfast.rules.machine_config import host_paths, names
from handfast.rules.machines import bootstrapper, installation
from tests.scenarios import configurations_world as w
from tests.scenarios import configured_world, machines_world, up_world
from tests.scenarios.test_node_agent import LEASES, Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

RECORDED = pathlib.Path(__file__).parent.parent / "vectors" / "release-before-machines.tar.gz"
OLD_AGENT = "its agent of release 0.1.0 runs without --machine-config, or is older than that option"
KUBECONFIG_DATA = f"/api/v1/namespaces/{bootstrapper.NAMESPACE}/configmaps/kubeconfig-data"
MARKER = f"/api/v1/namespaces/{installation.MARKER_NAMESPACE}/configmaps/{installation.MARKER}"


@pytest.fixture
def left(tmp_path: pathlib.Path) -> pathlib.Path:
    """The directory as the release before left it."""
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    with tarfile.open(RECORDED) as archive:
        # It is our own file. Filters came with later patch releases of Python 3.11 than Debian's.
        archive.extractall(directory)
    for new in ("machine-config.conf", "pki/machine-config.crt", "pki/machine-config.key"):
        assert not (directory / new).exists()
    return directory


def pools(plane: w.Configured) -> dict[str, Any]:
    return {row["name"]: row for row in plane.table("machine", "pools")["pools"]}


def rendered(plane: w.Configured) -> None:
    up_world.until(lambda: all(row["rendering"] for row in pools(plane).values()), 60, "both pools rendered")


def renewed(plane: w.Configured, name: str) -> str:
    return str(plane.call("GET", f"{LEASES}/{name}")[1].get("spec", {}).get("renewTime", ""))


def run_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    if command := os.environ.get("HANDFAST_RELEASE_BEFORE", ""):
        monkeypatch.setattr(up_world, "COMMAND", tuple(command.split()))


def test_a_directory_of_the_release_before_gets_what_is_missing_and_keeps_what_it_had(left: pathlib.Path) -> None:
    kept = [left / "pki" / "ca.crt", left / "pki" / "sa.key", left / "encryption.key", left / "config.yaml"]
    before = [path.read_bytes() for path in kept]
    master = (left / "machines" / "kubeconfig-kubelet").read_bytes()
    with w.Configured(left) as plane:
        plane.ready()
        rendered(plane)
        assert [path.read_bytes() for path in kept] == before
        # What is new: a pair, a kubeconfig, rights, the address for machines.
        assert (left / "machine-config.conf").stat().st_mode & 0o777 == 0o600
        assert (left / "pki" / "machine-config.key").stat().st_mode & 0o777 == 0o600
        assert installation.CONFIGURATIONS in plane.call("GET", MARKER)[1]["data"]
        assert plane.call("GET", KUBECONFIG_DATA)[1]["data"]["server"] == plane.facts["apiserver"]
        # What was there: Machines, linked to their Nodes, and the masters' credential, which is served now.
        machines = {row["metadata"]["name"]: row for row in plane.call("GET", machines_world.MACHINES)[1]["items"]}
        assert {name: (row["status"].get("nodeRef") or {}).get("name") for name, row in machines.items()} == {
            "m1": "m1.example",
            "m2": None,
            "w1": "w1.example",
        }
        answer = plane.served("/config/master", plane.secret("--pool", "master"))
        assert answer.files[host_paths.KUBECONFIG].encode() == master
        held = kubeconfig.parse(
            plane.served("/config/worker", plane.secret("--pool", "worker")).files[host_paths.KUBECONFIG]
        )
        assert held.user is not None
        assert held.user.token == plane.token()
        assert plane.stop()[0] == 0
    # Once more: nothing is made twice.
    with sqlite3.connect(left / "store.db") as store:
        (written,) = store.execute("select count(*) from cur where key like '%rendered-%'").fetchone()
    assert written == 2
    with w.Configured(left) as plane:
        plane.ready()
        rendered(plane)


def test_an_agent_of_the_release_before_works_on_and_is_named_as_unable_to_follow(
    left: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with w.Configured(left) as plane, contextlib.ExitStack() as stack:
        plane.ready()
        worker = Machine(plane, tmp_path, "w1.example")
        places = ("--kubeconfig", worker.static_kubeconfig(), "--cert-dir", worker.pki)
        with monkeypatch.context() as patch:
            run_as_before(patch)
            agent = stack.enter_context(worker.agent("--node-ip", "10.0.0.11", places=places))
        agent.until_well(60)
        rendered(plane)
        since = renewed(plane, worker.name)
        require_named(plane)
        require_revoked(plane)
        # Nothing of it has touched the agent, nor its Node.
        up_world.until(lambda: renewed(plane, worker.name) > since, 60, "a Lease that is kept")
        agent.until_well()
        node = worker.node() or {}
        assert not [key for key in node["metadata"]["annotations"] if key in {names.AGENT, names.DESIRED}]
        assert {row["type"]: row["status"] for row in node["status"]["conditions"]}["Ready"] == "True"
        # The same machine with this release's agent: it follows, and the pool is complete.
        stack.close()
        require_follows_once_upgraded(plane, configured_world.Machine(plane, tmp_path, worker.name), places)


def require_follows_once_upgraded(
    plane: w.Configured, worker: configured_world.Machine, places: tuple[object, ...]
) -> None:
    flags = ("--machine-config", "--root", worker.root, "--machine-config-server", plane.facts["machineConfig"])
    with worker.agent("--node-ip", "10.0.0.11", *flags, places=places):
        worker.until("Done", pools(plane)["worker"]["rendering"], seconds=60)
        held = kubeconfig.parse((worker.root / host_paths.KUBECONFIG[1:]).read_text())
        assert held.user is not None
        assert held.user.token == plane.token()
        up_world.until(lambda: pools(plane)["worker"]["state"] == "updated", 60, "a pool that is updated")


def require_named(plane: w.Configured) -> None:
    """The operator reads who cannot follow, and why, in every place."""
    row = pools(plane)["worker"]
    assert (row["state"], row["have"], row["machines"]) == ("not followed by all", 0, 1)
    assert [(each["node"], each["reason"], each["message"]) for each in row["behind"]] == [
        ("w1.example", "NoAgent", OLD_AGENT)
    ]
    assert f"w1.example   worker   NoAgent   {OLD_AGENT}" in plane.operator("machine", "pools")
    text = plane.operator("machine", "credentials", "revoke", "--kind", "worker", "--dry-run")
    assert "0 of 1 machines of the pool worker would follow" in text
    assert f"w1.example of worker would not: NoAgent: {OLD_AGENT}" in text
    conditions = {each["type"]: each for each in plane.call("GET", f"{w.POOLS}/worker")[1]["status"]["conditions"]}
    assert (conditions["Updating"]["status"], conditions["Updating"]["reason"]) == ("False", "NoAgent")
    assert "without an agent that follows: w1.example" in conditions["Updated"]["message"]


def require_revoked(plane: w.Configured) -> None:
    """Nobody waits for who cannot follow: at once, and after a roll-out."""
    for flags in ((), ("--after-rollout",)):
        before = plane.token()
        text = plane.operator("machine", "credentials", "revoke", "--kind", "worker", "--timeout", "60s", *flags)
        assert f"w1.example of worker does not have it: NoAgent: {OLD_AGENT}" in text
        up_world.until(lambda before=before: plane.token() not in {"", before}, 60, "another token")


def test_an_agent_that_follows_says_that_its_control_plane_names_no_configuration(tmp_path: pathlib.Path) -> None:
    # A control plane without fleets is for the agent as one of the release before: nobody renders, sends or serves.
    with up_world.Up(tmp_path / "data") as plane:
        plane.ready()
        machine = configured_world.Machine(plane, tmp_path, "n1")
        machine.joined()
        with machine.agent("--rotate-certificates", "--machine-config", "--root", machine.root) as agent:
            agent.until_said("no configuration is named for this node")
            (line,) = [each for each in agent.lines() if each.get("reason") == "NotSent"]
            assert line["why"].startswith("the control plane names no configuration for this node: ")
            assert "of a release that renders and serves none" in line["why"]
            # It is no trouble: it goes on as a node.
            agent.until_well()
            assert machine.annotations() == {"configuration-agent": "v1"}
            done = up_world.run("node", "configuration", "status", "--root", machine.root, "-o", "json")
            assert (done.returncode, json.loads(done.stdout)["state"]) == (0, None)
            assert json.loads(done.stdout)["reason"].startswith("NotSent: ")
