# SPDX-License-Identifier: Apache-2.0
"""`handfast node`: which kubeconfig counts, what is printed where, and with which exit code."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys

import pytest
import structlog
import yaml

from handfast import errors
from handfast.api import objects, status
from handfast.bootstrap import kubeconfig
from handfast.cli import connecting, main, output
from handfast.client import api, connection
from tests.unit.controllers.fake_api import FakeClient, failing


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    for name in ("KUBECONFIG", "HANDFAST_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connecting, "SYSTEM", tmp_path / "etc" / "admin.conf")
    yield
    structlog.reset_defaults()


class Reached:
    """The API behind whatever kubeconfig was chosen: a file that need not be there, and a client without a server."""

    def __init__(self):
        self.client = FakeClient()
        self.client.put("nodes", "a")
        self.kubeconfigs = []

    def load(self, path):
        self.kubeconfigs.append(path)
        return connection.Connection(server="http://127.0.0.1:1")


@pytest.fixture
def reached(monkeypatch):
    made = Reached()
    # Below `connecting`, so that its hints are seen here, too.
    monkeypatch.setattr(connection, "load", made.load)
    monkeypatch.setattr(api, "Client", lambda _transport: made.client)
    monkeypatch.setenv("KUBECONFIG", "k")
    return made


def run(*arguments):
    # Through the root, as people do: click keeps what it finds out of a command the first time.
    return output.run(main.command, ["node", "revoke", *map(str, arguments)])


class TestOutput:
    def test_a_revocation_says_who_is_refused_and_until_when(self, reached, capsys):
        assert run("a", "--reason", "stolen") == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert out == (
            "node a is refused from now on\n\n"
            "  refused     the user system:node:a, also with a new certificate, and tokens of Pods on the node\n"
            "  until       it is undone\n"
            "  reason      stolen\n"
            "  revocation  node-a\n\n"
            "To undo it: handfast node revoke a --undo\n"
        )

    def test_a_second_revocation_says_that_it_was_so_already(self, reached, capsys):
        assert run("a", "--reason", "stolen") == 0
        capsys.readouterr()
        assert run("a") == 0
        assert capsys.readouterr().out.startswith("node a was refused already, and still is\n")

    def test_for_a_while(self, reached, capsys):
        before = datetime.datetime.now(datetime.UTC)
        assert run("a", "--for", "1d2h", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        expires = objects.parse_timestamp(found["expires"])
        length = datetime.timedelta(days=1, hours=2)
        assert datetime.timedelta(seconds=-1) <= expires - before - length <= datetime.timedelta(minutes=1)
        assert reached.client.objects["revocations", "", "node-a"]["spec"]["expires"] == found["expires"]

    def test_a_node_that_is_not_there_is_noted(self, reached, capsys):
        assert run("b") == 0
        out, err = capsys.readouterr()
        assert out.startswith("node b is refused from now on")
        assert err == "note: there is no Node b now; whoever joins by that name is refused\n"

    def test_an_undo_says_whether_the_node_was_refused(self, reached, capsys):
        assert run("a") == 0
        capsys.readouterr()
        assert run("a", "--undo") == 0
        assert capsys.readouterr().out == "node a is let in again: Revocation node-a was deleted\n"
        assert run("a", "--undo") == 0
        assert capsys.readouterr().out == "node a was not refused: Revocation node-a is not there\n"

    def test_undo_with_others(self, reached, capsys):
        reached.client.put("revocations", "x", spec={"node": "a"})
        assert run("a", "--undo") == 0
        out, err = capsys.readouterr()
        assert out == "Revocation node-a is not there, but others name node a: x\n"
        assert err == "note: `kubectl delete revocation x` lets node a in again\n"

    def test_for_machines(self, reached, capsys):
        assert run("a", "--reason", "stolen", "-o", "yaml") == 0
        assert yaml.safe_load(capsys.readouterr().out) == {
            "node": "a",
            "revocation": "node-a",
            "revoked": True,
            "changed": True,
            "reason": "stolen",
            "expires": None,
            "nodeExists": True,
        }
        assert run("a", "--undo", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == {
            "node": "a",
            "revocation": "node-a",
            "revoked": False,
            "changed": True,
            "namedBy": [],
        }


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "reason", "code"),
        [
            (["a", "--undo", "--reason", "x"], "Usage", 2),
            (["a", "--undo", "--for", "1h"], "Usage", 2),
            (["a", "--reason", ""], "Usage", 2),
            (["a", "--for", "soon"], "Usage", 2),
            (["a", "--for", ""], "Usage", 2),
            (["a", "--for", "0h"], "Usage", 2),
            (["a", "--for", "-1h"], "Usage", 2),
            (["a", "--for", "1h "], "Usage", 2),
            (["a", "--for", "999999d"], "Usage", 2),
            (["a", "--for", "١h"], "Usage", 2),
            ([], "Usage", 2),
            (["Not-A-Node"], "BadNodeName", 2),
        ],
    )
    def test_wrong_input(self, reached, capsys, arguments, reason, code):
        assert run(*arguments) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines()[-1] == f"reason: {reason}"
        assert reached.client.calls == []

    @pytest.mark.parametrize(
        ("error", "code", "last"),
        [
            (status.forbidden("revocations", "handfast.dev", "node-a", "no"), 1, "Forbidden"),
            (status.StatusError("Unauthorized", "Unauthorized"), 1, "Unauthorized"),
        ],
    )
    def test_a_credential_that_is_not_enough(self, reached, capsys, error, code, last):
        reached.client.before = failing(error)
        assert run("a") == code
        lines = capsys.readouterr().err.splitlines()
        assert lines[-2:] == ["hint: choose another credential with --kubeconfig", f"reason: {last}"]

    def test_no_answer(self, reached, capsys):
        reached.client.before = failing(errors.Unavailable("https://x cannot be reached", reason="Unreachable"))
        assert run("a", "-o", "json") == 3
        assert json.loads(capsys.readouterr().err)["reason"] == "Unreachable"

    def test_other_refusals_have_no_such_hint(self, reached, capsys):
        reached.client.before = failing(status.StatusError("InternalError", "broken"))
        assert run("a") == 1
        assert "hint" not in capsys.readouterr().err


class TestKubeconfig:
    def test_the_flag_first(self, reached, tmp_path):
        assert run("a", "--kubeconfig", "flag", "--dir", tmp_path) == 0
        assert reached.kubeconfigs == ["flag"]

    def test_then_the_environment(self, reached, tmp_path):
        (tmp_path / "handfast-data").mkdir()
        (tmp_path / "handfast-data" / "admin.conf").touch()
        assert run("a") == 0
        assert reached.kubeconfigs == ["k"]

    def test_a_named_directory_goes_before_the_environment(self, reached, tmp_path):
        assert run("a", "--dir", tmp_path / "d") == 0
        assert reached.kubeconfigs == [str(tmp_path / "d" / "admin.conf")]

    def test_then_the_data_directory_then_the_system(self, reached, tmp_path, monkeypatch):
        monkeypatch.delenv("KUBECONFIG")
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "admin.conf").touch()
        assert run("a") == 0
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "admin.conf").touch()
        monkeypatch.setenv("HANDFAST_DIR", str(tmp_path / "d"))
        assert run("a") == 0
        assert reached.kubeconfigs == [str(tmp_path / "etc" / "admin.conf"), str(tmp_path / "d" / "admin.conf")]

    def test_without_a_kubeconfig_it_is_refused(self, capsys):
        assert run("a") == 1
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("error: no kubeconfig: $KUBECONFIG is not set, and there is neither ")
        assert lines[-1] == "reason: NoKubeconfig"

    def test_several_files_that_are_not_there_are_all_named(self, monkeypatch, capsys):
        monkeypatch.setenv("KUBECONFIG", "one:two")
        assert run("a") == 1
        assert capsys.readouterr().err.splitlines() == [
            "error: there is none of these kubeconfig files: one, two",
            "hint: name another file with --kubeconfig",
            "reason: FileNotFound",
        ]

    def test_a_missing_file(self, tmp_path, capsys):
        assert run("a", "--kubeconfig", tmp_path / "none") == 1
        lines = capsys.readouterr().err.splitlines()
        assert lines[-2:] == ["hint: name another file with --kubeconfig", "reason: FileNotFound"]

    def test_a_server_that_is_not_there(self, tmp_path, capsys):
        path = tmp_path / "k"
        cluster = kubeconfig.Cluster(name="c", server="http://127.0.0.1:1")
        path.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=cluster, user=None)))
        assert run("a", "--kubeconfig", path) == 3
        out, err = capsys.readouterr()
        assert out == ""
        # No line of the client's log beside the error.
        assert [line.split(":")[0] for line in err.splitlines()] == ["error", "hint", "reason"]
        assert err.splitlines()[-1] == "reason: ConnectionRefused"


@pytest.mark.slow
def test_help_is_light():
    code = (
        "import sys\nfrom handfast.cli import main, node, output\n"
        "assert output.run(node.command, ['revoke', '--help']) == 0\n"
        "print('HEAVY', sorted({'aiohttp', 'cryptography', 'asyncio', 'msgspec', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[-1] == "HEAVY []"
