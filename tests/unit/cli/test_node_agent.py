# SPDX-License-Identifier: Apache-2.0
"""`handfast node run|status|rotate|recover`: what is understood, printed where, and with which exit code."""

from __future__ import annotations

import datetime
import json
import os
import pathlib

import pytest
import structlog
import yaml

from handfast import errors
from handfast.api import objects
from handfast.assembly import node, node_config
from handfast.bootstrap import diagnosis, kubeconfig
from handfast.cli import durations, main, node_agent, node_status, output
from handfast.client import anonymous, connection
from handfast.node import certificate_store, recovery, report
from handfast.runtime import clock
from tests.unit.node import pairing

NOW = datetime.datetime.now(datetime.UTC)


class World:
    def __init__(self, root):
        self.root = root
        self.pki = root / "pki"
        self.kubeconfig = root / "kubelet.conf"
        self.store = certificate_store.CertificateStore(self.pki, certificate_store.CLIENT, clock.SystemClock())
        self.started = []
        self.refusal: str | None = None
        self.answer: anonymous.Answer | anonymous.Troubled = anonymous.Answer(
            # Not NOW: this file may have been imported minutes before this test runs.
            200,
            b"{}",
            f"{datetime.datetime.now(datetime.UTC):%a, %d %b %Y %H:%M:%S} GMT",
        )

    async def run(self, found, *, clock):
        self.started.append(found)

    async def ask(self, url, trust, token=None):
        assert token is None
        assert url == "https://192.0.2.1:6443/version"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def refused(self, kubeconfig, pair):
        assert connection.load(str(kubeconfig)).server == "https://192.0.2.1:6443"
        return self.refusal

    def config(self):
        cluster = kubeconfig.Cluster(
            name="c", server="https://192.0.2.1:6443", certificate_authority_data=pairing.CA.pem
        )
        self.kubeconfig.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=cluster, user=None)))

    def joined(self, begins=NOW - pairing.HOUR, lasts=100 * pairing.HOUR):
        self.config()
        pair = pairing.pair(begins=begins, lasts=lasts)
        self.store.save(pair)
        return pair

    def agent(self, **more):
        """A running one, as far as can be seen."""
        self.pki.mkdir(exist_ok=True)
        found = report.Report(
            **{
                "node": "n1",
                "pid": os.getpid(),
                "written": objects.timestamp(datetime.datetime.now(datetime.UTC)),
                "phase": "running",
                "rotation": True,
                "certificate": "old",
                **more,
            }
        )
        report.write(self.pki, found)

    def command(self, word, *more):
        words = ["node", word, "--kubeconfig", str(self.kubeconfig), "--cert-dir", str(self.pki), *map(str, more)]
        return output.run(main.command, words)

    def status(self):
        """… by somebody who names the certificate directory alone."""
        return output.run(main.command, ["node", "status", "--cert-dir", str(self.pki)])


@pytest.fixture
def world(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("HANDFAST_"):
            monkeypatch.delenv(name)
    made = World(tmp_path)
    monkeypatch.setattr(node, "run", made.run)
    monkeypatch.setattr(anonymous, "ask", made.ask)
    monkeypatch.setattr(node_status, "_refused", made.refused)
    monkeypatch.setattr(node_config, "KUBECONFIG", str(tmp_path / "default.conf"))
    monkeypatch.setattr(node_config, "BOOTSTRAP_KUBECONFIG", str(tmp_path / "bootstrap.conf"))
    monkeypatch.setattr(node_agent, "_POLL", 0.01)
    yield made
    structlog.reset_defaults()


class TestRun:
    def test_flags_reach_the_agent(self, world):
        words = ("--rotate-certificates", "--node-ip", "192.0.2.1", "-v", "2", "--static-pods-dir", "/s")
        assert world.command("run", *words) == 0
        (found,) = world.started
        assert found.rotate_certificates
        assert (found.node_ip, found.log_level, str(found.static_pods_dir)) == (("192.0.2.1",), "debug", "/s")
        assert found.bootstrap_kubeconfig is None

    @pytest.mark.parametrize(
        ("words", "rotates"),
        [
            ((), False),
            (("--rotate-certificates",), True),
            (("--rotate-certificates=true",), True),
            (("--rotate-certificates=false",), False),
        ],
    )
    def test_a_switch_as_the_kubelet_writes_it(self, world, words, rotates):
        assert world.command("run", *words) == 0
        assert world.started[0].rotate_certificates is rotates

    @pytest.mark.parametrize("words", [("-v=3",), ("--v=3",), ("-v", "3"), ("-v3",)])
    def test_verbosity_as_the_kubelet_writes_it(self, world, words):
        assert world.command("run", *words) == 0
        assert world.started[0].verbosity == 3

    def test_a_file(self, world, monkeypatch):
        path = world.root / "kubelet.yaml"
        path.write_text(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\nport: 7\n"
        )
        monkeypatch.setenv("HANDFAST_NODE_LISTEN", "127.0.0.1:8")
        assert world.command("run", "--config", path) == 0
        assert world.started[0].rotate_certificates
        assert world.started[0].listen.port == 8

    @pytest.mark.parametrize(
        ("flag", "text", "field"),
        [
            ("bootstrap-kubeconfig", "/b", "bootstrap_kubeconfig"),
            ("node-name", "n9", "node_name"),
            ("rotate-certificates", "true", "rotate_certificates"),
            ("rotate-server-certificates", "true", "rotate_server_certificates"),
            ("static-pods-dir", "/s", "static_pods_dir"),
            ("listen", "127.0.0.1:9", "listen"),
            ("verbosity", "4", "verbosity"),
        ],
    )
    def test_every_variable_that_the_help_names_is_read(self, world, monkeypatch, capsys, flag, text, field):
        assert output.run(main.command, ["node", "run", "--help"]) == 0
        assert f"${node_config.variable(flag)}" in capsys.readouterr().out
        monkeypatch.setenv(node_config.variable(flag), text)
        assert world.command("run") == 0
        assert str(getattr(world.started[0], field)).lower() == text

    def test_the_variable_of_its_addresses(self, world, monkeypatch):
        monkeypatch.setenv("HANDFAST_NODE_IP", "192.0.2.9,2001:db8::9")
        assert world.command("run") == 0
        assert world.started[0].node_ip == ("192.0.2.9", "2001:db8::9")

    def test_the_usual_bootstrap_kubeconfig(self, world):
        (world.root / "bootstrap.conf").touch()
        assert world.command("run") == 0
        assert world.started[0].bootstrap_kubeconfig == world.root / "bootstrap.conf"

    @pytest.mark.parametrize(
        ("words", "code", "reason"),
        [
            (("--rotate-certificates=maybe",), 2, "InvalidConfiguration"),
            (("--listen", "x"), 2, "InvalidConfiguration"),
            (("--node-name", "Foo_bar"), 2, "BadNodeName"),
            (("--node-ip", "foo"), 2, "BadNodeIP"),
            (("--config", "none"), 1, "FileNotFound"),
            (("--config", "/"), 1, "NotAFile"),
        ],
    )
    def test_a_wrong_flag_starts_no_agent(self, world, capsys, words, code, reason):
        assert world.command("run", *words) == code
        assert capsys.readouterr().err.endswith(f"reason: {reason}\n")
        assert world.started == []

    @pytest.mark.parametrize(("name", "text"), [("NODE_NAME", "Foo_bar"), ("NODE_IP", "foo"), ("VERBOSITY", "x")])
    def test_a_wrong_variable_is_named(self, world, capsys, monkeypatch, name, text):
        monkeypatch.setenv(f"HANDFAST_{name}", text)
        assert world.command("run") == 1
        assert capsys.readouterr().err.startswith(f'error: $HANDFAST_{name}: the value "{text}" ')
        assert world.started == []

    @pytest.mark.parametrize(
        ("words", "message", "hint"),
        [
            (("-v", "99"), '-v: the value "99" is not a number from 0 to 10', "0 to 10"),
            (("--feature-gates", "A=maybe"), "has 'maybe' for A, which is neither true nor false", "NAME=true"),
            (("--feature-gates", "A=true,=true"), "has a gate without a name", "NAME=true"),
            (("--feature-gates", "A"), "has 'A' without =true or =false", "NAME=true"),
        ],
    )
    def test_a_wrong_flag_is_told_with_what_is_allowed(self, world, capsys, words, message, hint):
        assert world.command("run", *words) == 2
        err = capsys.readouterr().err
        assert message in err
        assert f"hint: allowed: {hint}" in err

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a: [", "line 2: "),
            ("", "not a mapping of keys to values"),
            ("- a", "not a mapping of keys to values"),
            ("apiVersion: v1\nkind: Pod", 'apiVersion: the value "v1" is not kubelet.config.k8s.io/v1beta1'),
        ],
    )
    def test_a_wrong_file_is_told_with_what_is_wanted(self, world, capsys, text, message):
        path = world.root / "kubelet.yaml"
        path.write_text(text)
        assert world.command("run", "--config", path) == 1
        err = capsys.readouterr().err
        assert f"error: {path}: {message}" in err
        assert "hint: --config takes one YAML document with apiVersion: kubelet.config.k8s.io/v1beta1" in err

    def test_who_may_not_look_for_the_bootstrap_kubeconfig(self, world, monkeypatch):
        """/etc/kubernetes is often closed to all but root."""
        plain = pathlib.Path.exists

        def closed(path, **more):
            if str(path) == node_config.BOOTSTRAP_KUBECONFIG:
                raise PermissionError(13, "Permission denied")
            return plain(path, **more)

        monkeypatch.setattr(pathlib.Path, "exists", closed)
        assert world.command("run") == 0
        assert world.started[0].bootstrap_kubeconfig is None

    def test_an_error_ends_it_with_its_code(self, world, monkeypatch, capsys):
        async def fail(*_, **__):
            raise errors.Unavailable("no certificate", reason="BootstrapTimeout")

        monkeypatch.setattr(node, "run", fail)
        assert world.command("run") == 3
        assert capsys.readouterr().err.endswith("reason: BootstrapTimeout\n")


class TestStatus:
    def test_nothing_at_all(self, world, capsys):
        assert world.command("status") == 1
        out = capsys.readouterr().out
        assert "certificate  none\nagent        not running\nserver       unknown: cannot read " in out
        assert out.endswith("clock        not compared; name the kubeconfig with --kubeconfig\n")

    def test_the_agent_says_which_kubeconfig_is_its_own(self, world, capsys):
        world.joined()
        world.agent(server="https://192.0.2.1:6443", kubeconfig=str(world.kubeconfig))
        assert world.status() == 0
        out = capsys.readouterr().out
        assert "server       https://192.0.2.1:6443\nclock        agrees with the server's\n" in out
        assert node_config.KUBECONFIG not in out

    @pytest.mark.parametrize("by", ["flag", "variable"])
    def test_but_one_that_is_named_counts(self, world, capsys, monkeypatch, by):
        world.joined()
        world.agent(server="https://192.0.2.9:6443", kubeconfig=str(world.root / "another"))
        monkeypatch.setenv("HANDFAST_KUBECONFIG", str(world.kubeconfig) if by == "variable" else "")
        assert (world.command("status") if by == "flag" else world.status()) == 0
        assert "clock        agrees with the server's\n" in capsys.readouterr().out

    @pytest.mark.parametrize("kubeconfig", ["", "gone.conf"])
    def test_the_agent_says_which_server_it_is(self, world, capsys, kubeconfig):
        """Also one that an older agent wrote, or whose kubeconfig went away."""
        world.joined()
        world.agent(server="https://192.0.2.1:6443", kubeconfig=kubeconfig and str(world.root / kubeconfig))
        assert world.status() == 0
        assert "server       https://192.0.2.1:6443\nclock        not compared: cannot read " in capsys.readouterr().out

    @pytest.mark.parametrize("word", ["status", "recover"])
    def test_a_directory_that_is_none(self, world, capsys, word):
        world.pki.write_text("")
        assert world.command(word) == 1
        err = capsys.readouterr().err
        assert f"error: cannot read {world.pki}/kubelet-client-current.pem: a part of this path is a file" in err
        assert "hint: name another directory with --cert-dir\n" in err

    @pytest.mark.parametrize("word", ["status", "recover", "rotate"])
    def test_a_directory_that_is_closed(self, world, capsys, monkeypatch, word):
        def closed(path, *_, **__):
            raise PermissionError(13, "Permission denied", str(path))

        world.joined()
        monkeypatch.setattr(pathlib.Path, "readlink", closed)
        monkeypatch.setattr(os, "open", closed)
        assert world.command(word) == 1
        err = capsys.readouterr().err
        assert err.startswith(f"error: cannot read {world.pki}/")
        assert err.endswith("reason: PermissionDenied\n")
        assert "hint: " in err

    def test_a_kubeconfig_that_is_none(self, world, capsys):
        world.joined()
        world.kubeconfig.write_text("foo: bar")
        assert world.command("status") == 0
        assert (
            f"server       unknown: {world.kubeconfig}: kubeconfig: current-context: not set" in capsys.readouterr().out
        )

    def test_not_an_agent_that_has_ended(self, world, capsys):
        world.joined()
        world.agent(written="2020-01-01T00:00:00Z", server="https://192.0.2.1:6443", kubeconfig=str(world.kubeconfig))
        assert world.status() == 0
        assert "server       unknown: cannot read " in capsys.readouterr().out

    def test_a_certificate_and_no_agent(self, world, capsys):
        pair = world.joined()
        assert world.command("status", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["node"], found["agent"]) == ("n1", None)
        assert found["certificate"]["serial"] == pair.leaf.serial
        assert found["certificate"]["inForce"] is True
        assert found["server"] == "https://192.0.2.1:6443"
        assert abs(found["clockDifferenceSeconds"]) < 60

    def test_one_that_the_server_refuses(self, world, capsys):
        world.joined()
        world.refusal = "it was revoked"
        assert world.command("status") == 1
        out = capsys.readouterr().out
        assert "CN=system:node:n1,O=system:nodes, REFUSED\n" in out
        assert "refused      it was revoked\n" in out
        assert world.command("status", "-o", "json") == 1
        assert json.loads(capsys.readouterr().out)["refused"] == "it was revoked"

    def test_an_expired_one(self, world, capsys):
        world.joined(NOW - 2 * pairing.HOUR, pairing.HOUR)
        assert world.command("status") == 1
        assert "CN=system:node:n1,O=system:nodes, NOT in force\n" in capsys.readouterr().out

    def test_an_agent(self, world, capsys):
        world.joined()
        world.agent(next_renewal="2027-01-01T00:00:00Z", last_error="Timeout: late", problems={"lease": "lost"}, pods=2)
        assert world.command("status") == 0
        out = capsys.readouterr().out
        assert (
            "renewal      2027-01-01T00:00:00Z\nlast error   Timeout: late\nPods         2 of the API, 0 static\n"
            in out
        )
        assert "problem      lease: lost\n" in out

    @pytest.mark.parametrize(("rotation", "word"), [(True, "not known yet"), (False, "off")])
    def test_no_renewal(self, world, capsys, rotation, word):
        world.joined()
        world.agent(rotation=rotation)
        assert world.command("status") == 0
        assert f"renewal      {word}\n" in capsys.readouterr().out

    def test_a_file_that_is_none(self, world, capsys):
        world.joined()
        (world.pki / "kubelet-client-2099-01-01-00-00-00.pem").write_text("x")
        (world.pki / "kubelet-client-current.pem").unlink()
        assert world.command("status") == 0
        assert "unusable     " in capsys.readouterr().out

    def test_a_server_that_is_away(self, world, capsys):
        world.joined()
        world.answer = anonymous.Troubled(diagnosis.Trouble.CONNECTION_REFUSED)
        assert world.command("status", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["clockDifferenceSeconds"] is None
        assert "https://192.0.2.1:6443" in found["serverTrouble"]

    def test_a_server_without_a_date(self, world, capsys):
        world.joined()
        world.answer = anonymous.Answer(200, b"{}", "")
        assert world.command("status") == 0
        assert "clock        the server does not say its time" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["status", "rotate", "recover"])
def test_variables_of_settings_that_a_command_does_not_have_are_not_looked_at(world, capsys, monkeypatch, word):
    for name in ("VERBOSITY", "NODE_LISTEN", "NODE_NAME", "NODE_IP", "ROTATE_CERTIFICATES", "FEATURE_GATES"):
        monkeypatch.setenv(f"HANDFAST_{name}", "_")
    world.joined()
    world.command(word)
    assert "$HANDFAST" not in capsys.readouterr().err
    monkeypatch.setenv("HANDFAST_KUBECONFIG", "/elsewhere")
    assert output.run(main.command, ["node", word, "--cert-dir", ""]) == 2
    assert "error: --cert-dir: the value is empty" in capsys.readouterr().err


class TestRotate:
    def test_no_agent(self, world, capsys):
        assert world.command("rotate") == 3
        assert capsys.readouterr().err.endswith("reason: AgentNotRunning\n")
        world.agent(written="2020-01-01T00:00:00Z")
        assert world.command("rotate") == 3
        assert not (world.pki / report.ROTATE).exists()

    def test_rotation_off(self, world, capsys):
        world.agent(rotation=False)
        assert world.command("rotate") == 1
        assert capsys.readouterr().err.endswith("reason: RotationOff\n")

    def test_until_it_has(self, world, capsys, monkeypatch):
        world.agent()
        real = report.ask_to_rotate

        def ask(directory):
            real(directory)
            assert (directory / report.ROTATE).exists()
            world.agent(certificate="new", next_renewal="later")

        monkeypatch.setattr(report, "ask_to_rotate", ask)
        assert world.command("rotate") == 0
        assert capsys.readouterr().out == "node n1 has a new certificate, serial new\nnext renewal later\n"
        world.agent()
        assert world.command("rotate", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == {"node": "n1", "serial": "new", "nextRenewal": "later"}

    def test_not_in_time(self, world, capsys, monkeypatch):
        world.agent(last_error="RequestDenied: no")
        monkeypatch.setattr(durations, "parse", lambda *_: datetime.timedelta(seconds=0.05))
        assert world.command("rotate") == 3
        err = capsys.readouterr().err
        assert "the last error: RequestDenied: no" in err
        assert err.endswith("reason: Timeout\n")

    @pytest.mark.parametrize("text", ["soon", "0s", "200h", ""])
    def test_a_timeout_that_is_no_duration_is_a_wrong_usage(self, world, capsys, text):
        assert world.command("rotate", "--timeout", text) == 2
        assert capsys.readouterr().err.endswith("reason: Usage\n")


class TestRecover:
    def test_in_force(self, world, capsys):
        world.joined()
        assert world.command("recover") == 0
        assert capsys.readouterr().out.startswith("nothing to recover: the certificate CN=system:node:n1")
        assert world.command("recover", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["recovered"] is False

    def test_an_expired_certificate_is_recovered(self, world, capsys, monkeypatch):
        old = world.joined(NOW - 2 * pairing.HOUR, pairing.HOUR)

        async def recover(store, pair, path, *, clock, seconds):
            assert (pair, path, seconds) == (old, world.kubeconfig, 60)
            return pairing.pair()

        monkeypatch.setattr(recovery, "recover", recover)
        assert world.command("recover") == 0
        assert capsys.readouterr().out.startswith("recovered: the certificate CN=system:node:n1")
        assert world.command("recover", "-o", "yaml") == 0
        found = yaml.safe_load(capsys.readouterr().out)
        assert found["recovered"] is True
        assert found["subject"].startswith("CN=system:node:n1")
        assert list(found) == ["recovered", "subject", "serial", "notAfter"]

    def test_not_while_an_agent_runs(self, world, capsys):
        world.joined(NOW - 2 * pairing.HOUR, pairing.HOUR)
        with node.owned(world.pki):
            assert world.command("recover") == 1
        assert capsys.readouterr().err.endswith("reason: DirectoryInUse\n")

    def test_without_a_certificate_there_is_nothing_to_recover(self, world, capsys):
        assert world.command("recover") == 1
        assert capsys.readouterr().err.endswith("reason: NoCertificate\n")

    def test_it_went_away_meanwhile(self, world, capsys, monkeypatch):
        monkeypatch.setattr(recovery, "expired", lambda *_: None)
        world.pki.mkdir()
        assert world.command("recover") == 3
        assert "went away" in capsys.readouterr().err
