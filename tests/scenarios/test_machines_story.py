# SPDX-License-Identifier: Apache-2.0
"""Seed 003 on real processes: credentials before the cluster, machines that join by inventory, intruders, and revocation.

Between the steps the API server, the controllers and the node agents are killed with SIGKILL and started again, and that
changes nothing. The tests of single parts are beside this: `test_bootstrap_cas`, `test_worker_credential`,
`test_machine_approver`, `test_machine_inventory`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from handfast.bootstrap import kubeconfig
from handfast.pki import keys, pairs
from handfast.rules.machines import bootstrapper
from tests.scenarios import certified, machines_world, up_world
from tests.scenarios.machines_world import Fleet, Holder
from tests.scenarios.test_node_agent import Agent, Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

RACK = "name,dns,ip,role\nm1,m1.example,10.0.0.1,master\nm2,m2.example,10.0.0.2,master\nw1,w1.example,10.0.0.11,\n"
CLOSED = "nodeClientCert: {disabled: true}"
KILLED = -9
FILED = ("create", "certificatesigningrequests")
TRUST = f"/api/v1/namespaces/{bootstrapper.CONFIG_NAMESPACE}/configmaps/{bootstrapper.CONFIG_MAP}"


@pytest.fixture
def rack(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "rack.csv"
    path.write_text(RACK)
    return path


@pytest.fixture
def fleet(tmp_path: pathlib.Path, rack: pathlib.Path) -> Iterator[Fleet]:
    """A control plane for machines, whose tokens are signed with RSA: without a random claim they would come back."""
    directory = machines_world.with_key(tmp_path / "data", keys.Kind.RSA)
    with Fleet(directory, "--inventory", rack) as plane:
        yield plane.ready()


def machine(plane: Fleet, name: str) -> Machine:
    home = plane.directory.parent / name
    home.mkdir(exist_ok=True)
    return Machine(plane, home, name)


def agent(each: Machine, credential: pathlib.Path, ip: str, code: int = 0) -> Any:
    """`handfast node run`, as the unit of a machine has it."""
    return each.agent("--bootstrap-kubeconfig", credential, "--node-ip", ip, code=code)


def filed(each: Machine) -> dict[str, Any]:
    """The one request of a machine, once it is there."""
    up_world.until(lambda: len(each.requests()) > 0, what=f"a request of {each.name}")
    (request,) = each.requests()
    return request


def kill(running: Agent) -> None:
    running.process.kill()
    running.process.wait(30)


def require_joined(plane: Fleet, running: Agent, name: str) -> None:
    """It runs on its own certificate, and the operator sees every stage done."""
    running.until_well(60)
    path = f"{machines_world.MACHINES}/{name}"
    up_world.until(lambda: bool(plane.call("GET", path)[1]["status"].get("nodeRef")), what=f"{name} linked")
    assert [row["state"] for row in plane.table("machine", "explain", name)["stages"]] == ["done"] * 7


def require_by_the_five_steps(plane: Fleet, each: Machine) -> None:
    """Seed 003, "How Kubelets Create Credentials", as the request and the audit log have it."""
    (request,) = each.requests()
    spec = request["spec"]
    # 2. filed with the bootstrap credential, for the node
    assert spec["username"] == bootstrapper.USER
    assert set(bootstrapper.GROUPS) <= set(spec["groups"])
    assert str(each.current().leaf.subject) == f"CN=system:node:{each.name},O=system:nodes"
    # 3. approved by the machine-approver
    conditions = {row["type"]: row for row in request["status"]["conditions"]}
    assert conditions["Approved"]["reason"] == "NodeCSRApprove"
    # 4. retrieved with the bootstrap credential, which did nothing else
    kinds = {(verb, kind) for verb, kind, code in plane.audited(bootstrapper.USER) if code < 300}
    assert FILED in kinds
    assert {kind for _, kind in kinds} == {"certificatesigningrequests"}
    assert {"get", "list", "watch"} & {verb for verb, _ in kinds}
    # 5. as itself from then on
    assert ("create", "nodes", 201) in plane.audited(f"system:node:{each.name}")


def require_kept_at_home(plane: Fleet, *pairs_: pairs.Pair) -> None:
    """No private key of these is in any object, nor in a log; and no other but the one that is there by intention."""
    with_keys = []
    for document in plane.objects():
        for data in machines_world.decoded(document):
            for pair in pairs_:
                require_without(data, pair)
            if b"PRIVATE KEY-----" in data:
                with_keys.append((document["metadata"]["namespace"], document["metadata"]["name"]))
    # The masters' credential, for whoever renders their configuration: its key is in the kubeconfig, in base64.
    assert with_keys in ([], [(bootstrapper.NAMESPACE, "kubelet-bootstrap-kubeconfig")])
    for path in (plane.directory / "audit" / "audit.log", plane.log):
        for pair in pairs_:
            require_without(path.read_bytes(), pair)


def require_without(data: bytes, pair: pairs.Pair) -> None:
    loaded: Any = serialization.load_pem_private_key(pair.key_pem, None)
    scalar = loaded.private_numbers().private_value.to_bytes(32, "big")
    assert scalar not in data
    assert not any(line in data for line in pair.key_pem.splitlines()[1:-1] if len(line) > 20)


def test_credentials_before_any_api_server_and_both_kinds_of_machines_join(
    tmp_path: pathlib.Path, rack: pathlib.Path
) -> None:
    data, port = tmp_path / "data", machines_world.free_port()
    url = f"https://127.0.0.1:{port}"
    # Nothing listens, and there is not even a directory.
    done = up_world.run(
        "machine", "credentials", "create", "--kind", "master", "--server", url, "--out", tmp_path / "o"
    )
    assert done.returncode == 0, done.stderr
    require_one_use_signer(tmp_path / "o")
    done = up_world.run("init", "--dir", data, "--listen", f"127.0.0.1:{port}", "--machines", "--inventory", rack)
    assert done.returncode == 0, done.stderr
    # A second signer beside the first, still before anything listens.
    words = ("machine", "credentials", "create", "--kind", "master", "--server", url, "--dir", data)
    done = up_world.run(*words, "--out", data / "machines", "-o", "json")
    assert json.loads(done.stdout)["signers"] == 2, done.stderr

    plane = Fleet(data, "--listen", f"127.0.0.1:{port}")
    with plane:
        m1 = machine(plane, "m1.example")
        # The machine is on before the API server answers, and loses its power.
        with agent(m1, plane.master, "10.0.0.1", code=KILLED) as early:
            early.until_said("a certificate is asked for")
            kill(early)
        plane.ready()
        plane.settings(CLOSED)
        # Filed, and not judged: everything dies.
        with agent(m1, plane.master, "10.0.0.1", code=KILLED) as first:
            request = filed(m1)
            up_world.until(lambda: "FlowDisabled" in plane.reasons(request["metadata"]["name"]), what="an Event")
            # The audit log is written a little later.
            up_world.until(lambda: (*FILED, 201) in plane.audited(bootstrapper.USER), what="a line of the audit log")
            kill(first)
        plane.kill()
        plane.settings("")
        with agent(m1, plane.master, "10.0.0.1", code=KILLED) as second:
            require_joined(plane, second, "m1")
            # It went on with the same key and the same request.
            assert filed(m1)["metadata"]["uid"] == request["metadata"]["uid"]
            require_by_the_five_steps(plane, m1)
            serial = m1.current().leaf.serial
            kill(second)
        # 1. of the five steps: a certificate that is there and valid is used, and nothing is asked.
        with agent(m1, tmp_path / "o" / "nothing", "10.0.0.1") as third:
            third.until_well(60)
            assert (m1.current().leaf.serial, len(m1.requests())) == (serial, 1)
            require_second_signer(plane)
            w1, worker = machine(plane, "w1.example"), plane.worker(tmp_path / "workers")
            plane.kill("controllers")
            with agent(w1, worker, "10.0.0.11") as other:
                require_joined(plane, other, "w1")
                require_by_the_five_steps(plane, w1)
                plane.kill("apiserver")
                other.until_well(60)
                third.until_well(60)
        require_kept_at_home(plane, m1.current(), w1.current())


def require_one_use_signer(out: pathlib.Path) -> None:
    """The one private key in the directory is the credential's own; the signer's is nowhere."""
    config = kubeconfig.parse((out / "kubeconfig-kubelet").read_text())
    assert config.user is not None
    assert (out / "kubeconfig-kubelet").stat().st_mode & 0o777 == 0o600
    (public,) = {keys.private_from_pem(config.user.client_key_data or b"").public.spki}
    document = manifest(out)
    place = (document["metadata"]["namespace"], document["metadata"]["name"])
    assert place == (bootstrapper.CONFIG_NAMESPACE, bootstrapper.CONFIG_MAP)
    assert [path.name for path in out.iterdir() if b"PRIVATE" in path.read_bytes()] == []
    assert public not in document["data"]["ca-bundle.crt"].encode()


def require_second_signer(plane: Fleet) -> None:
    """A second signer beside the first counts once its manifest is applied, and the first goes on."""
    second = plane.directory / "machines" / "kubeconfig-kubelet-2"
    code, answer = plane.call("PUT", TRUST, manifest(plane.directory / "machines"))
    assert code == 200, answer

    def both() -> bool:
        with contextlib.suppress(OSError), Holder(plane, second) as new, Holder(plane, plane.master) as old:
            return (new.code(), old.code()) == (200, 200)
        # Its signer has never been trusted before: not even the handshake goes through.
        return False

    up_world.until(both, what="both signers")


def manifest(out: pathlib.Path) -> dict[str, Any]:
    """The ConfigMap that makes a credential count."""
    documents = yaml.safe_load_all((out / "kubelet-bootstrap-kubeconfig.yaml").read_text())
    (document,) = [each for each in documents if each["kind"] == "ConfigMap"]
    return dict(document)


def test_intruders_get_nothing_and_revoked_credentials_end_at_once(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    worker, leaked = fleet.worker(tmp_path / "workers"), fleet.token()
    m1 = machine(fleet, "m1.example")
    with agent(m1, fleet.master, "10.0.0.1") as running:
        running.until_well(60)
        refuse_the_unknown(fleet)
        refuse_a_second_key(fleet)
        revoke_the_masters(fleet)
        revoke_the_workers(fleet, worker)
        # Nobody who is a node already was concerned.
        fleet.kill("apiserver")
        running.until_well(60)
        with Holder(fleet, worker) as thief:
            assert thief.code() == 401
        w1 = machine(fleet, "w1.example")
        with agent(w1, fleet.worker(tmp_path / "new"), "10.0.0.11") as joining:
            require_joined(fleet, joining, "w1")
            require_by_the_five_steps(fleet, w1)
        assert fleet.token() not in {"", leaked}
        require_kept_at_home(fleet, m1.current(), w1.current())


def refuse_the_unknown(plane: Fleet) -> None:
    """An intruder with the masters' certificate, and no Machine."""
    ghost = machine(plane, "ghost.example")
    with agent(ghost, plane.master, "10.0.0.66", code=KILLED) as intruder:
        name = filed(ghost)["metadata"]["name"]
        up_world.until(lambda: "NoMachine" in plane.reasons(name), what="an Event")
        plane.kill("controllers")
        said = plane.operator("csr", "explain", name)
        assert 'no Machine has the InternalDNS name "ghost.example"' in said
        assert "judged by: machine-approver\n" in said
        assert "NoMachine" in said
        assert "there is no Machine" in plane.operator("machine", "explain", "ghost", code=1)
        require_undecided(plane, name)
        kill(intruder)
    assert not (ghost.pki / "kubelet-client-current.pem").exists()


def refuse_a_second_key(plane: Fleet) -> None:
    """One whose Machine is known, after another key was approved for it; and one who asks as a node that is there."""
    with Holder(plane, plane.master) as honest:
        code, answer = honest.ask("POST", certified.PATH, certified.request("m2.example", name="honest"))
        assert code == 201, answer
        up_world.until(lambda: bool(honest.ask("GET", f"{certified.PATH}/honest")[1]["status"].get("certificate")))
        for name, node, reason in (
            ("second-key", "m2.example", "AnotherKeyApproved"),
            ("as-a-node", "m1.example", "NodeExists"),
        ):
            code, answer = honest.ask("POST", certified.PATH, certified.request(node, name=name))
            assert code == 201, answer
            up_world.until(lambda name=name, reason=reason: reason in plane.reasons(name), what=reason)
            require_undecided(plane, name)
    said = plane.operator("machine", "explain", "m2")
    assert "waits: " in said
    assert "handfast machine readmit m2" in said
    assert "AnotherKeyApproved" in plane.operator("csr", "explain", "second-key")


def require_undecided(plane: Fleet, name: str) -> None:
    request = plane.call("GET", f"{certified.PATH}/{name}")[1]
    assert not (request.get("status") or {}).get("conditions")
    assert not (request.get("status") or {}).get("certificate")


def revoke_the_masters(plane: Fleet) -> None:
    with Holder(plane, plane.master) as holder, holder.watching() as watch:
        assert holder.code() == 200
        would = plane.table("machine", "credentials", "revoke", "--kind", "master", "--dry-run")
        assert would["dryRun"]
        assert (would["connections"] >= 2, would["watches"]) == (True, 1)
        assert {"second-key", "as-a-node"} <= set(would["requests"])
        assert holder.code() == 200, "a dry run changes nothing"
        # No controller is needed for it.
        os.kill(plane.pids()["controllers"], signal.SIGKILL)
        cut = plane.table("machine", "credentials", "revoke", "--kind", "master")
        assert f"ConfigMap {bootstrapper.CONFIG_NAMESPACE}/{bootstrapper.CONFIG_MAP}" in cut["objects"]
        assert {"second-key", "as-a-node"} <= set(cut["requests"])
        assert (holder.code(), holder.code_anew()) == (401, 401)
        while watch.read1():
            pass
    plane.kill("apiserver")
    with Holder(plane, plane.master) as holder:
        assert holder.code() == 401


def revoke_the_workers(plane: Fleet, leaked: pathlib.Path) -> None:
    with Holder(plane, leaked) as thief, thief.watching() as watch:
        assert thief.code() == 200
        would = plane.table("machine", "credentials", "revoke", "--kind", "worker", "--dry-run")
        assert would["watches"] == 1
        cut = plane.table("machine", "credentials", "revoke", "--kind", "worker")
        assert cut["objects"] == [f"Secret {bootstrapper.NAMESPACE}/{bootstrapper.TOKEN_SECRET}"]
        assert (thief.code(), thief.code_anew()) == (401, 401)
        while watch.read1():
            pass
