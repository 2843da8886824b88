# SPDX-License-Identifier: Apache-2.0
"""Credentials are revoked to the end, on real processes: cut at once and followed, or replaced everywhere and then cut.

The controllers are killed between every two steps. Who cannot follow is named, and keeps nobody waiting who revokes at once.
"""

from __future__ import annotations

import json
import pathlib

import pytest

from handfast.bootstrap import kubeconfig
from handfast.rules.machine_config import host_paths, names
from handfast.rules.machines import bootstrapper
from tests.scenarios import (
    certified,
    configurations_world,
    configured_world,
    machines_world,
    rollout_world,
    up_world,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

REVOKE = ("machine", "credentials", "revoke", "--kind")
TRUST = f"/api/v1/namespaces/{bootstrapper.CONFIG_NAMESPACE}/configmaps/{bootstrapper.CONFIG_MAP}"


def test_the_workers_token_is_replaced_everywhere_before_it_is_cut(tmp_path: pathlib.Path) -> None:
    with rollout_world.Rollout(tmp_path / "data") as fleet:
        fleet.began("worker", "master")
        for name in ("w1", "w2"):
            fleet.node(name)
        fleet.node("stock", agent=False)
        fleet.settled(worker=2)
        leaked, before = fleet.token(), fleet.credential("w1")
        with machines_world.Holder(fleet, fleet.kubeconfig(tmp_path, leaked)) as thief:
            assert thief.code() == 200
            assert thief.ask("POST", certified.PATH, certified.request("late.example", name="stolen"))[0] == 201
            # 1. asked for; nobody applies anything yet
            fleet.applying.clear()
            asked = fleet.operator(*REVOKE, "worker", "--after-rollout", "--no-wait")
            assert "is cut once everyone with an agent has the replacement" in asked
            fleet.kill("controllers")
            up_world.until(lambda: bool(fleet.secret(rollout_world.NEXT)), 60, "the next token")
            following = fleet.secret(rollout_world.NEXT)
            assert bootstrapper.NEXT_TOKEN_SECRET in fleet.operator("machine", "credentials", "show")
            fleet.kill("controllers")
            # 2. a command that waits for too short a time says who is behind, and that nothing is cut
            said = fleet.operator(*REVOKE, "worker", "--after-rollout", "--timeout", "4s", code=3)
            assert "is being replaced already" in said
            assert "the worker credential is not cut yet" in said
            assert "w1 (Working)" in said
            assert "reason: RolloutIncomplete" in said
            assert (thief.code_anew(), fleet.token()) == (200, leaked)
            # 3. one of two has it: no cut
            fleet.applying.add("w1")
            up_world.until(lambda: fleet.have("w1") and fleet.credential("w1") != before, 60, "w1")
            fleet.kill("controllers")
            assert thief.code_anew() == 200
            with fleet.command(*REVOKE, "worker", "--after-rollout", "-o", "json") as command:
                # 4. both have it: the old one is cut, and the next one counts
                fleet.applying.add("w2")
                up_world.until(lambda: thief.code_anew() == 401, 60, "the cut")
                fleet.applying.clear()
                fleet.kill("controllers")
                up_world.until(lambda: fleet.token() not in {"", leaked}, 60, "a new token")
                # What was filed with the old one is denied, also for a machine that is known now. The next one lets it in.
                fleet.operator("machine", "create", "late", "--dns", "late.example", "--ip", "10.0.0.9")
                assert _conditions(fleet, "stolen") == [("Denied", "BootstrapCredentialRevoked")]
                with machines_world.Holder(fleet, fleet.kubeconfig(tmp_path, following)) as late:
                    assert late.ask("POST", certified.PATH, certified.request("late.example", name="honest"))[0] == 201
                up_world.until(lambda: "Approved" in dict(_conditions(fleet, "honest")), 60, "approval")
                # 5. and when both have the new one, the next one goes
                fleet.applying |= {"w1", "w2"}
                out, err = command.communicate(timeout=90)
                assert command.returncode == 0, err
            done = json.loads(out)
            (row,) = [each for each in done["pools"] if each["name"] == "worker"]
            assert (done["complete"], row["have"], row["machines"]) == (True, 2, 3)
            assert [(each["node"], each["reason"]) for each in row["behind"]] == [("stock", "NoAgent")]
            assert "kubelet v1.30.1" in row["behind"][0]["message"]
            assert fleet.call("GET", rollout_world.NEXT)[0] == 404
        for token, code in ((leaked, 401), (following, 401), (fleet.token(), 200)):
            with machines_world.Holder(fleet, fleet.kubeconfig(tmp_path, token)) as holder:
                assert holder.code() == code
        assert len({fleet.credential("w1"), fleet.credential("w2"), before}) == 2
        assert "BootstrapCredentialCut" in _reasons(fleet)
        # No object shows a token, but the Secret that is for it.
        shown = json.dumps(
            [each for each in fleet.objects() if each.get("type") != "kubernetes.io/service-account-token"]
        )
        for token in (leaked, following, fleet.token()):
            assert token not in shown


def test_the_masters_certificate_is_replaced_before_it_is_cut(tmp_path: pathlib.Path) -> None:
    with rollout_world.Rollout(tmp_path / "data") as fleet:
        fleet.began("worker", "master")
        for name in ("m1", "m2"):
            fleet.node(name, "master")
        fleet.settled(master=2)
        assert fleet.credential("m1").startswith(f"{names.CERTIFICATE} ")
        with machines_world.Holder(fleet, fleet.master) as thief:
            assert thief.code() == 200
            fleet.applying.clear()
            with fleet.command(*REVOKE, "master", "--after-rollout") as command:
                up_world.until(lambda: names.REVOKE_AFTER_ROLLOUT in _annotations(fleet, TRUST), 60, "the mark")
                fleet.kill("controllers")
                fleet.applying.add("m1")
                up_world.until(lambda: fleet.credential("m1").startswith(f"{names.SERVICE_ACCOUNT} "), 60, "m1")
                assert thief.code_anew() == 200
                # The command dies, and the controllers go on.
                command.kill()
            fleet.kill("controllers")
            assert fleet.call("GET", TRUST)[0] == 200
            fleet.applying.add("m2")
            up_world.until(lambda: thief.code_anew() == 401, 60, "the cut")
        up_world.until(lambda: fleet.call("GET", TRUST)[0] == 404, 60, "no ConfigMap")
        up_world.until(
            lambda: fleet.call("GET", f"{rollout_world.SECRETS}/kubelet-bootstrap-kubeconfig")[0] == 404,
            60,
            "no Secret",
        )
        assert {fleet.credential(name).partition(" ")[0] for name in ("m1", "m2")} == {names.SERVICE_ACCOUNT}
        # Once more: there is nothing to replace any more.
        said = fleet.operator(*REVOKE, "master", "--after-rollout", code=1)
        assert "there is no master credential to replace" in said
        assert "reason: NothingToReplace" in said


def test_a_cut_at_once_is_followed_by_all_who_can_and_names_the_others(tmp_path: pathlib.Path) -> None:
    with rollout_world.Rollout(tmp_path / "data") as fleet:
        fleet.began("worker", "master")
        fleet.pool("infra")
        for name in ("w1", "w2"):
            fleet.node(name)
        fleet.node("i1", "infra")
        fleet.node("stock", agent=False)
        fleet.settled(worker=2, infra=1)
        fleet.patched(f"{rollout_world.POOLS}/infra", {"spec": {"paused": True}})
        fleet.dies("w2")
        leaked = fleet.token()
        fleet.operator("machine", "create", "late-1", "--dns", "late-1.example", "--ip", "10.0.0.9")
        fleet.operator("machine", "ignition", "late-1")
        rehearsed = fleet.operator(*REVOKE, "worker", "--dry-run")
        for line in (
            "Machine openshift-machine-api/late-1 is in flight: it has a pointer configuration, and has not asked for a certificate yet",
            "Secret openshift-machine-config-operator/node-bootstrapper-token would be deleted",
            "0 of 1 machines of the pool infra, which is paused would follow",
            "i1 of infra would not: Paused: the pool infra is paused",
            "1 of 3 machines of the pool worker would follow",
            "w2 of worker would not: NodeSilent: it is not ready: its last word may be old",
            "stock of worker would not: NoAgent: it runs a kubelet v1.30.1 and no agent that follows configurations",
        ):
            assert line in rehearsed.splitlines()
        assert fleet.token() == leaked
        waiting = fleet.table(*REVOKE, "worker", "--dry-run", "--after-rollout")
        assert (waiting["afterRollout"], waiting["complete"]) == (True, False)
        with machines_world.Holder(fleet, fleet.kubeconfig(tmp_path, leaked)) as thief:
            assert thief.code() == 200
            said = fleet.operator(*REVOKE, "worker", "--timeout", "60s").splitlines()
            assert thief.code() == 401
        assert said[0] == "Secret openshift-machine-config-operator/node-bootstrapper-token deleted"
        assert "infra: 0 of 1 machines have the new credential" in said
        assert "worker: 1 of 3 machines have the new credential" in said
        assert "i1 of infra does not have it: Paused: the pool infra is paused" in said
        assert "w2 of worker does not have it: NodeSilent: it is not ready: its last word may be old" in said
        # The same in the list of pools.
        listed = fleet.operator("machine", "pools")
        rows = {line.split()[0]: line for line in listed.splitlines() if line}
        assert (rows["infra"].split()[2:5], rows["infra"].split()[5]) == (["0", "of", "1"], "paused")
        assert rows["worker"].split()[5:] == ["updating", "service-account"]
        assert "NodeSilent" in rows["w2"]
        assert rows["master"].split()[-1] == names.CERTIFICATE
        # When it is resumed, and the dead one is back, both follow by themselves.
        fleet.patched(f"{rollout_world.POOLS}/infra", {"spec": {"paused": False}})
        fleet.applying.add("w2")
        fleet.settled(worker=2, infra=1)


def test_revoking_shows_its_progress_on_a_terminal_and_says_when_time_is_over(tmp_path: pathlib.Path) -> None:
    with rollout_world.Rollout(tmp_path / "data") as fleet:
        fleet.began("worker")
        fleet.node("w1")
        fleet.settled(worker=1)
        fleet.applying.clear()
        words = [*up_world.COMMAND, *REVOKE, "worker", "--timeout", "8s", "--dir", str(fleet.directory)]
        with up_world.Terminal(words, up_world.environment()) as terminal:
            terminal.shows("worker: 0 of 1 machines have the new credential; waits for w1 (Working)")
            text = terminal.shows("reason: RolloutIncomplete")
            assert terminal.process.wait(10) == 3
        assert "the old credential is cut, and not everyone has the replacement; behind: w1 (Working)" in text
        fleet.applying.add("w1")
        fleet.settled(worker=1)


def test_without_a_pool_that_is_rendered_it_says_that_nothing_is_rolled_out(tmp_path: pathlib.Path) -> None:
    with rollout_world.Rollout(tmp_path / "data") as fleet:
        fleet.began()
        for name in ("master", "worker"):
            assert fleet.call("DELETE", f"{rollout_world.POOLS}/{name}")[0] == 200
        said = fleet.operator(*REVOKE, "worker", "--after-rollout", code=1)
        assert "nothing is rolled out" in said
        assert "reason: NothingIsRolledOut" in said
        assert "hint: revoke without --after-rollout" in said
        done = up_world.run(*REVOKE, "worker", "--kubeconfig", fleet.directory / "admin.conf")
        assert done.returncode == 0
        assert "node-bootstrapper-token deleted" in done.stdout
        assert "nothing is rolled out" in done.stderr
        # The same on a cluster that has no such kind, and for whoever may not look on.
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/machineconfigpools.machineconfiguration.openshift.io"
        assert fleet.call("DELETE", path)[0] == 200
        up_world.until(lambda: bool(fleet.token()), 60, "a token")
        done = up_world.run(*REVOKE, "worker", "--kubeconfig", fleet.directory / "admin.conf")
        assert (done.returncode, "nothing is rolled out" in done.stderr) == (0, True)
        assert "reason: NoPoolKind" in fleet.operator("machine", "pools", code=1)


def test_a_real_machine_has_the_new_credential_when_the_command_ends(tmp_path: pathlib.Path) -> None:
    with configurations_world.Configured(tmp_path / "data") as plane:
        plane.ready()
        plane.operator("machine", "create", "w1", "--dns", "w1.example", "--ip", "192.0.2.7", "--role", "worker")
        worker = configured_world.Machine(plane, tmp_path, "w1.example")
        pointer = tmp_path / "w1.ign"

        def rendered() -> str:
            pool = plane.call("GET", f"{rollout_world.POOLS}/worker")[1]
            return str(pool["spec"].get("configuration", {}).get("name", ""))

        up_world.until(lambda: bool(rendered()), 60, "a rendering")
        pointer.write_text(plane.operator("machine", "ignition", "w1", "--url", plane.facts["machineConfig"]))
        done = up_world.run("node", "configuration", "fetch", "--pointer", pointer, "--root", worker.root)
        assert done.returncode == 0, done.stderr
        flags = ("--rotate-certificates", "--machine-config", "--root", worker.root, "--node-ip", "192.0.2.7")
        with worker.agent(*flags, "--machine-config-server", plane.facts["machineConfig"]) as agent:
            agent.until_said("this node has its identity")
            up_world.until(lambda: worker.node() is not None, what="the Node")
            worker.label("node-role.kubernetes.io/worker")
            worker.until("Done", rendered(), seconds=60)
            for words in (("--after-rollout",), ()):
                leaked = plane.token()
                assert _held(worker) == leaked
                said = plane.operator(*REVOKE, "worker", *words)
                assert "worker: 1 of 1 machines have the new credential" in said
                assert _held(worker) == plane.token() != leaked
            agent.until_well()


def _held(worker: configured_world.Machine) -> str:
    """The token that a machine would join with."""
    config = kubeconfig.parse((worker.root / host_paths.KUBECONFIG[1:]).read_text())
    assert config.user is not None
    return config.user.token


def _conditions(fleet: rollout_world.Rollout, name: str) -> list[tuple[str, str]]:
    request = fleet.call("GET", f"{certified.PATH}/{name}")[1]
    return [(row["type"], row["reason"]) for row in request["status"].get("conditions") or ()]


def _annotations(fleet: rollout_world.Rollout, path: str) -> dict[str, str]:
    return fleet.call("GET", path)[1]["metadata"].get("annotations") or {}


def _reasons(fleet: rollout_world.Rollout) -> set[str]:
    events = fleet.call("GET", f"/api/v1/namespaces/{bootstrapper.NAMESPACE}/events")[1]["items"]
    return {each["reason"] for each in events}
