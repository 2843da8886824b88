# SPDX-License-Identifier: Apache-2.0
"""The second half of `handfast join`: what is asked for, what is left behind, and what a person is told."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import socket
from typing import Any

import pytest
import structlog

from handfast import errors
from handfast.assembly import node, node_config
from handfast.bootstrap import kubeconfig
from handfast.cli import join_cluster, join_flags, join_node, main, output
from handfast.client import connection
from handfast.client import discovery as searching
from handfast.node import units
from tests.unit.cli.test_join import INFO, PINNED, FakeDiscovery
from tests.unit.node import pairing
from tests.world.tls_cluster import TOKEN


class World:
    """Where everything goes, and what comes of asking."""

    def __init__(self, root):
        self.root = root
        self.asked = []
        self.obtained = node.Obtained(pairing.pair("worker-1"), is_new=True, node_existed=False)
        self.error = None
        self.rehearsed = []
        self.asks = True
        self.waits_for = None

    async def obtain(self, where, seconds, *, clock, on_waiting):
        if self.waits_for:
            on_waiting(*self.waits_for)
        self.asked.append((where, seconds, where.bootstrap_kubeconfig.read_text()))
        if self.error is not None:
            raise self.error
        return self.obtained

    async def rehearse(self, where, connection, *, clock, on_waiting):
        if self.waits_for:
            on_waiting(*self.waits_for)
        self.rehearsed.append((where.node, connection.server, connection.token))
        if self.error is not None:
            raise self.error
        return self.asks

    @property
    def bootstrap(self):
        return self.root / "etc" / "bootstrap.conf"


def node_defaults(root):
    """The rows of the settings, with places under `root`."""
    places = {"kubeconfig": str(root / "etc" / "kubelet.conf"), "cert-dir": str(root / "pki")}
    return tuple(dataclasses.replace(row, default=places.get(row.flag, row.default)) for row in node_config._SETTINGS)


@pytest.fixture(autouse=True)
def world(monkeypatch, tmp_path):
    made = World(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HANDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(searching, "Discovery", FakeDiscovery)
    monkeypatch.setattr(FakeDiscovery, "made", [])
    # Whatever a test forgets to say, it does not reach the machine's own files.
    monkeypatch.setattr(join_flags, "DEFAULT_FILE", str(made.bootstrap))
    monkeypatch.setattr(node_config, "KUBECONFIG", str(tmp_path / "etc" / "kubelet.conf"))
    monkeypatch.setattr(node_config, "CERT_DIR", str(tmp_path / "pki"))
    monkeypatch.setattr(node_config, "_SETTINGS", node_defaults(tmp_path))
    monkeypatch.setattr(units, "DIRECTORY", tmp_path / "systemd")
    monkeypatch.setattr(units, "BOOTED", tmp_path / "booted")
    monkeypatch.setattr(units, "program", lambda: ["/usr/bin/handfast"])
    monkeypatch.setattr(node, "obtain", made.obtain)
    monkeypatch.setattr(node, "rehearse", made.rehearse)
    yield made
    structlog.reset_defaults()


def run(*arguments):
    words = ["join", "a", "--token", TOKEN.text, *PINNED, "--node-name", "worker-1", *map(str, arguments)]
    return output.run(main.command, words)


def test_to_the_end(world, capsys):
    assert run() == 0
    out, err = capsys.readouterr()
    assert out.startswith("this machine has joined the cluster as node worker-1\n\n  server      https://a:6443\n")
    assert "  certificate CN=system:node:worker-1,O=system:nodes, until " in out
    # What is the default need not be said.
    assert out.endswith("To start it:\n\n  /usr/bin/handfast node run --node-name worker-1 --rotate-certificates\n")
    assert "note: asking for a certificate as node worker-1\n" in err
    (where, seconds, text) = world.asked[0]
    assert (where.node, where.rotate, seconds) == ("worker-1", False, 300)
    assert (str(where.kubeconfig), str(where.directory)) == (node_config.KUBECONFIG, node_config.CERT_DIR)
    assert kubeconfig.parse(text).user == kubeconfig.User(name=join_cluster.USER, token=TOKEN.text)
    assert not world.bootstrap.exists()
    assert TOKEN.secret not in out + err


def test_for_machines(world, capsys):
    assert run("-o", "json", "--cert-dir", "certs", "--kubeconfig", "k", "--timeout", "9s") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["joined"], found["node"], found["nodeExisted"]) == (True, "worker-1", False)
    assert (found["bootstrapKubeconfig"], found["systemdUnit"], found["left"]) == (None, None, None)
    assert found["certificate"]["new"] is True
    assert found["agentCommand"][5:] == [
        *("--kubeconfig", str(world.root / "k"), "--cert-dir", str(world.root / "certs")),
        "--rotate-certificates",
    ]
    assert world.asked[0][1] == 9


def test_joined_before(world, capsys):
    world.obtained = node.Obtained(pairing.pair("worker-1"), is_new=False, node_existed=True)
    assert run() == 0
    out = capsys.readouterr().out
    assert "a Node of this name is there already" in out
    assert ", which was here already\n" in out


@pytest.mark.parametrize("booted", [False, True])
def test_a_unit(world, capsys, monkeypatch, booted):
    ran: list[Any] = []
    monkeypatch.setattr(units, "_run", ran.append)
    if booted:
        units.BOOTED.mkdir()
    assert run("--systemd") == 0
    out = capsys.readouterr().out
    unit = (world.root / "systemd" / units.NAME).read_text()
    words = ("/usr/bin/handfast", "node", "run", "--node-name", "worker-1", "--rotate-certificates")
    assert f"ExecStart={' '.join(json.dumps(word) for word in words)}\n" in unit
    for place in (world.root / "pki", world.root / "etc"):
        assert f'ReadWritePaths="-{place}"\n' in unit
    assert ("the agent runs now" in out) is booted
    assert ("systemctl daemon-reload" in out) is not booted
    assert len(ran) == (2 if booted else 0)


class TestVariables:
    """What the node's agent reads from the environment, join reads there, too."""

    @pytest.fixture(autouse=True)
    def _set(self, world, monkeypatch):
        monkeypatch.setenv("HANDFAST_NODE_NAME", "From-Env")
        monkeypatch.setenv("HANDFAST_KUBECONFIG", str(world.root / "env.conf"))
        monkeypatch.setenv("HANDFAST_CERT_DIR", str(world.root / "env-pki"))
        monkeypatch.setenv("HANDFAST_BOOTSTRAP_KUBECONFIG", str(world.root / "env-bootstrap.conf"))

    def test_variables_count_where_no_flag_does(self, world):
        assert output.run(main.command, ["join", "a", "--token", TOKEN.text, *PINNED, "--systemd"]) == 0
        ((where, _, _),) = world.asked
        assert where.node == "from-env"
        assert (where.kubeconfig, where.directory) == (world.root / "env.conf", world.root / "env-pki")
        assert where.bootstrap_kubeconfig == world.root / "env-bootstrap.conf"
        # systemd starts the agent without them.
        unit = (world.root / "systemd" / units.NAME).read_text()
        assert f'"--kubeconfig" "{world.root / "env.conf"}" "--cert-dir" "{world.root / "env-pki"}"' in unit

    def test_behind_the_flags(self, world):
        assert run("--kubeconfig", "k", "--cert-dir", "c", "--bootstrap-kubeconfig", "b") == 0
        ((where, _, _),) = world.asked
        assert where.node == "worker-1"
        assert (where.kubeconfig, where.directory) == (world.root / "k", world.root / "c")
        assert where.bootstrap_kubeconfig == world.root / "b"

    def test_empty_is_not_set(self, world, monkeypatch):
        for name in ("KUBECONFIG", "CERT_DIR", "BOOTSTRAP_KUBECONFIG"):
            monkeypatch.setenv(f"HANDFAST_{name}", "")
        assert run() == 0
        ((where, _, _),) = world.asked
        assert (where.directory, where.bootstrap_kubeconfig) == (world.root / "pki", world.bootstrap)

    def test_a_bad_name_is_told_with_its_origin(self, monkeypatch, capsys):
        monkeypatch.setenv("HANDFAST_NODE_NAME", "a_b")
        assert output.run(main.command, ["join", "a", "--token", TOKEN.text, *PINNED]) == 1
        assert capsys.readouterr().err.startswith('error: $HANDFAST_NODE_NAME: the value "a_b" cannot be a Node')

    def test_of_others_are_not_looked_at(self, world, monkeypatch):
        monkeypatch.setenv("HANDFAST_VERBOSITY", "x")
        assert run() == 0
        assert len(world.asked) == 1


def test_a_program_that_others_can_change_is_told_of(world, capsys, monkeypatch):
    monkeypatch.setattr(units, "exposed", lambda _: "/home/jane/bin")
    assert run("--systemd") == 0
    assert "warning: the agent runs as root, and others than root can change /home/jane/bin" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(world, capsys):
    assert run("--dry-run", "--systemd") == 0
    out = capsys.readouterr().out
    assert f"would write {world.bootstrap}, ask for a certificate as node worker-1,\n" in out
    assert f"would write {world.root / 'systemd' / units.NAME}\n" in out
    assert world.asked == []
    assert list(world.root.iterdir()) == []
    assert world.rehearsed == [("worker-1", "https://a:6443", TOKEN.text)]
    assert "The cluster would take the request" in out
    assert run("--dry-run", "-o", "json") == 0
    out = capsys.readouterr().out
    assert "systemd" not in out
    assert json.loads(out)["requestAccepted"] is True


def test_a_dry_run_of_a_machine_that_has_joined(world, capsys):
    world.asks = False
    assert run("--dry-run") == 0
    assert (
        f"would ask for nothing: a certificate of node worker-1 is in {world.root / 'pki'}" in capsys.readouterr().out
    )


def test_a_dry_run_of_a_join_that_would_be_refused(world, capsys):
    world.error = errors.Refused("none is left", reason="TokenUsedUp")
    assert run("--dry-run") == 1
    assert capsys.readouterr().err.endswith("reason: TokenUsedUp\n")


class TestALivingNode:
    def test_its_name_is_not_taken(self, world, capsys):
        world.waits_for = ("NodeIsAlive", 'the Node "worker-1" is alive')
        assert run() == 1
        err = capsys.readouterr().err
        assert 'error: the Node "worker-1" is alive\n' in err
        assert "--node-name" in err
        assert "--replace-node" in err
        assert err.endswith("reason: NodeIsAlive\n")
        assert world.asked == []

    def test_unless_that_is_said(self, world, capsys):
        world.waits_for = ("NodeIsAlive", 'the Node "worker-1" is alive')
        assert run("--replace-node") == 0
        assert 'the Node "worker-1" is alive: waiting until its Lease has ended' in capsys.readouterr().err
        assert len(world.asked) == 1

    def test_a_dry_run_says_the_same(self, world, capsys):
        world.waits_for = ("NodeIsAlive", 'the Node "worker-1" is alive')
        assert run("--dry-run") == 1
        assert capsys.readouterr().err.endswith("reason: NodeIsAlive\n")
        assert world.rehearsed == []
        assert run("--dry-run", "--replace-node") == 0
        assert 'the Node "worker-1" is alive: a join would wait until its Lease has ended' in capsys.readouterr().err


class TestFailures:
    def test_no_certificate_in_time(self, world, capsys):
        world.error = errors.Unavailable("no certificate", reason="BootstrapTimeout", hint="look at it")
        assert run() == 3
        err = capsys.readouterr().err
        assert "hint: look at it; or run the same command again, which goes on with the same request\n" in err
        # With it the machine can be started again, and no unit was written.
        assert world.bootstrap.exists()

    def test_without_a_hint_of_its_own(self, world, capsys):
        world.error = errors.Unavailable("no certificate", reason="BootstrapTimeout")
        assert run() == 3
        assert "hint: run the same command again" in capsys.readouterr().err

    def test_others_are_themselves(self, world, capsys):
        world.error = errors.Refused("another's", reason="CertificateRefused", hint="remove it")
        assert run("--systemd") == 1
        assert capsys.readouterr().err.endswith("hint: remove it\nreason: CertificateRefused\n")
        assert not (world.root / "systemd").exists()

    @pytest.mark.parametrize("name", ["UPPER CASE", "a_b", "-"])
    def test_a_bad_name_is_found_before_anything_is_asked(self, capsys, name):
        assert run("--node-name", name) == 2
        err = capsys.readouterr().err
        assert f'error: --node-name: the value "{name}" cannot be a Node' in err
        assert err.endswith("reason: BadNodeName\n")
        assert FakeDiscovery.made == []

    def test_a_host_name_that_is_none_is_told_with_both_ways(self, capsys, monkeypatch):
        monkeypatch.setattr(socket, "gethostname", lambda: "a_b")
        assert output.run(main.command, ["join", "a", "--token", TOKEN.text, *PINNED]) == 1
        err = capsys.readouterr().err
        assert "error: the host name 'a_b' cannot be a Node's name" in err
        assert "--node-name or $HANDFAST_NODE_NAME" in err

    @pytest.mark.parametrize("flag", ["--cert-dir", "--kubeconfig"])
    def test_an_empty_path_is_refused(self, world, capsys, flag):
        assert run(flag, "") == 2
        err = capsys.readouterr().err
        assert err.startswith(f"error: {flag}: the value is empty\n")
        assert err.endswith("reason: Usage\n")
        assert FakeDiscovery.made == world.asked == []


class TestAnotherCluster:
    def write(self, world, server):
        path = world.root / "k"
        cluster = kubeconfig.Cluster(name="c", server=server)
        path.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="c", cluster=cluster, user=None)))
        return path

    def test_is_left_alone(self, world, capsys):
        path = self.write(world, "https://other:6443")
        before = path.read_text()
        assert run("--kubeconfig", path) == 1
        err = capsys.readouterr().err
        assert f"{path} names https://other:6443" in err
        assert err.endswith("reason: AlreadyJoined\n")
        assert (path.read_text(), world.asked, world.bootstrap.exists()) == (before, [], False)

    @pytest.mark.parametrize("server", [*INFO.servers, "https://a:6443/"])
    def test_the_same_cluster_is_no_other(self, world, server):
        path = self.write(world, server)
        assert run("--kubeconfig", path) == 0
        assert [where.kubeconfig for where, *_ in world.asked] == [path]

    def test_a_directory_in_its_place_is_told_at_once(self, world, capsys):
        assert run("--kubeconfig", world.root) == 1
        err = capsys.readouterr().err
        assert f"error: cannot read {world.root}: is a directory\nhint: name another file with --kubeconfig\n" in err
        assert world.asked == []

    def test_one_that_may_not_be_read_is_told_at_once(self, world, capsys, monkeypatch):
        def closed(*_):
            raise errors.Refused("cannot read it", reason="PermissionDenied", hint="change who may use it")

        monkeypatch.setattr(connection, "load", closed)
        assert run() == 1
        assert "hint: change who may use it, or name another file with --kubeconfig\n" in capsys.readouterr().err
        assert world.asked == []

    def test_one_that_is_no_kubeconfig_stands_in_nobodys_way(self, world):
        (world.root / "k").write_text("broken: [")
        assert run("--kubeconfig", "k") == 0
        assert [where.kubeconfig for where, *_ in world.asked] == [world.root / "k"]


def test_printing_ends_early(world, capsys):
    assert run("--print-kubeconfig") == 0
    assert kubeconfig.parse(capsys.readouterr().out).user == kubeconfig.User(name=join_cluster.USER, token=TOKEN.text)
    assert world.asked == []


def test_paths_with_blanks_can_be_pasted(world):
    plan = join_node.NodePlan(
        name="n", kubeconfig=world.root / "a b", certificate_directory=world.root, unit_directory=None
    )
    assert str(world.root / "a b") in plan.command()
    # As it is shown to people, who have no unit: the last line of what they read.
    unused: Any = None
    shown = join_node.Joined(unused, plan, unused, join_node.Service())._next().splitlines()[-1]
    assert shlex.split(shown) == plan.command()
