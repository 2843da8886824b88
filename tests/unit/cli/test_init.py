# SPDX-License-Identifier: Apache-2.0
"""`handfast init`: which words it takes, what it prints where, and what it leaves in the directory."""

import contextlib
import json

import pytest
import structlog
import yaml

from handfast import errors
from handfast.assembly import config, init
from handfast.cli import connecting, invocation, main, output
from handfast.client import connection, introduction
from handfast.datadir import layout
from handfast.runtime import clock, files
from tests.unit.controllers.fake_api import FakeClient

TOKEN = "abcdef.0123456789abcdef"
SECRET = TOKEN.partition(".")[2]
LISTEN = ("--listen", "127.0.0.1:7777")


class FakeTransport:
    async def request(self, method, path):
        return b'{"gitVersion":"v1.36.4"}'


class Client(FakeClient):
    """The API of whatever was chosen; what a directory's own would have been opened with is in `opened`."""

    def __init__(self):
        super().__init__()
        self.transport = FakeTransport()  # type: ignore[assignment]
        self.put("namespaces", "kube-system")
        self.opened: list[tuple[layout.Layout, config.Configuration]] = []


@pytest.fixture
def client(monkeypatch):
    made = Client()

    @contextlib.asynccontextmanager
    async def served(place, chosen, _clock):
        made.opened.append((place, chosen))
        yield made

    monkeypatch.setattr(init, "served", served)
    for name in ("KUBECONFIG", "HANDFAST_DIR", "HANDFAST_LISTEN"):
        monkeypatch.delenv(name, raising=False)
    yield made
    structlog.reset_defaults()


@pytest.fixture
def reached(client, monkeypatch, tmp_path):
    """The API of a kubeconfig."""
    from handfast.datadir import preparation
    from handfast.runtime import addresses

    place = layout.Layout.at(tmp_path / "elsewhere")
    preparation.prepare(place, server=addresses.Address("10.0.0.1", 6443), now=clock.SystemClock().now())
    found = connection.load(str(place.admin_kubeconfig))

    @contextlib.asynccontextmanager
    async def connected(path):
        assert path == "k"
        yield connecting.Reached(client, found)

    monkeypatch.setattr(connecting, "connected", connected)
    return client


def run(*arguments):
    return output.run(main.command, ["init", *map(str, arguments)])


def ids(client):
    return [name.removeprefix("bootstrap-token-") for plural, _, name in client.objects if plural == "secrets"]


class TestDirectory:
    def test_first_time(self, client, tmp_path, capsys):
        root = tmp_path / "with space"
        assert run("--dir", root, *LISTEN, "--token", TOKEN, "--token-ttl", "0") == 0
        out, err = capsys.readouterr()
        assert out.startswith(
            f"To start it:\n\n  {invocation.program()} up --dir '{root}'\n\n"
            "To join this machine:\n\n"
            f"  {invocation.program()} join 127.0.0.1:7777 --token {TOKEN} --discovery-token-ca-cert-hash sha256:"
        )
        start = f"start `{invocation.program()} up` with --listen 0.0.0.0:7777"
        assert f"\n\nNo other machine reaches 127.0.0.1; to let others join, {start}" in out
        lines = err.splitlines()
        assert f"created {root}/pki/ca.key" in lines
        assert "created ConfigMap kube-public/cluster-info" in lines
        assert lines[-1].startswith("warning: whoever holds the token abcdef.… can join machines")
        assert SECRET not in err
        for name in ("admin.conf", "config.yaml", "pki/ca.crt"):
            assert (root / name).exists(), name
        files.lock_directory(root).release()

    def test_a_second_time_makes_no_token_and_keeps_what_is_there(self, client, tmp_path, capsys):
        assert run("--dir", tmp_path) == 0
        capsys.readouterr()
        assert run("--dir", tmp_path) == 0
        out, err = capsys.readouterr()
        assert f"No token was made. To make one: {invocation.program()} token create --print-join-command" in out
        assert err == "kept 14 objects that were there already\n"
        assert len(ids(client)) == 1

    def test_other_addresses_than_those_published(self, client, tmp_path, capsys):
        assert run("--dir", tmp_path, *LISTEN) == 0
        assert run("--dir", tmp_path, "--listen", "127.0.0.1:7778") == 0
        assert "cluster-info that is there names other servers or another CA; `handfast up` brings it up" in (
            capsys.readouterr().err
        )

    def test_no_token(self, client, tmp_path, capsys):
        assert run("--dir", tmp_path, "--token", "") == 0
        out, err = capsys.readouterr()
        assert "No token was made" in out
        assert "warning" not in err
        assert ids(client) == []

    def test_a_token_from_a_file(self, client, tmp_path, capsys):
        (tmp_path / "t").write_text(TOKEN)
        assert run("--dir", tmp_path / "d", "--token-file", tmp_path / "t") == 0
        assert ids(client) == ["abcdef"]

    def test_flags_are_kept_for_those_who_serve(self, client, tmp_path, capsys):
        assert run("--dir", tmp_path, *LISTEN, "--advertise", "a:1", "--advertise", "[::1]:2") == 0
        text = (tmp_path / "config.yaml").read_text()
        assert {key: value for key, value in yaml.safe_load(text).items() if key not in {"apiVersion", "kind"}} == {
            "listen": "127.0.0.1:7777",
            "advertise": ["a:1", "[::1]:2"],
        }
        config.parse(text.encode(), "f")
        (_place, chosen) = client.opened[0]
        assert [str(each) for each in chosen.advertise] == ["a:1", "[::1]:2"]
        published = client.objects["configmaps", "kube-public", "cluster-info"]["data"]["kubeconfig"]
        assert "server: https://a:1\n" in published
        capsys.readouterr()
        # From here on the file says it, and stays as it is.
        assert run("--dir", tmp_path) == 0
        assert str(client.opened[1][1].listen) == "127.0.0.1:7777"
        assert run("--dir", tmp_path, "--store", "other.db") == 0
        note = f"note: {tmp_path}/config.yaml is left as it is: give store to `handfast up` as well"
        assert note in capsys.readouterr().err
        assert (tmp_path / "config.yaml").read_text() == text

    def test_a_configuration_file_elsewhere_is_only_read(self, client, tmp_path, capsys):
        (tmp_path / "c").write_text(config.template({"listen": "127.0.0.1:8888"}))
        assert run("--dir", tmp_path / "d", "--config", tmp_path / "c", "--advertise", "a:1") == 0
        assert str(client.opened[0][1].listen) == "127.0.0.1:8888"
        assert (tmp_path / "d" / "config.yaml").read_text() == config.template()

    def test_for_machines(self, client, tmp_path, capsys):
        assert run("--dir", tmp_path, "--token", TOKEN, "--token-ttl", "0", "-o", "json") == 0
        out, err = capsys.readouterr()
        found = json.loads(out)
        assert found["directory"] == str(tmp_path)
        assert found["kubeconfig"] == str(tmp_path / "admin.conf")
        assert {"file": "pki/ca.crt", "outcome": "created"} in found["files"]
        assert {"object": "ConfigMap kube-system/kubeadm-config", "outcome": "created"} in found["objects"]
        assert (found["new"], found["token"], found["tokenID"], found["expires"]) == (True, TOKEN, "abcdef", None)
        assert found["joinCommand"].startswith("handfast join 127.0.0.1:6443 --token ")
        assert found["servers"] == ["https://127.0.0.1:6443"]
        assert len(found["caCertHashes"]) == 1
        assert err.startswith("warning: ")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--token", "x"], "--token: the bootstrap token"),
            (["--token", TOKEN, "--token-file", "f"], "--token and --token-file do not go together"),
            (["--token-ttl", "x"], '--token-ttl: "x" is no duration'),
            (["--listen", "127.0.0.1:0"], "--listen: 127.0.0.1:0 has no port that could be told to others"),
            (["--listen", "x"], "--listen: the value"),
        ],
    )
    def test_wrong_words_leave_nothing_behind(self, client, tmp_path, capsys, arguments, message):
        assert run("--dir", tmp_path / "d", *arguments) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "d").exists()

    def test_a_directory_in_use(self, client, tmp_path, capsys, monkeypatch):
        def taken(directory):
            raise errors.Refused("in use", reason="DirectoryInUse")

        monkeypatch.setattr(files, "lock_directory", taken)
        assert run("--dir", tmp_path, "-o", "json") == 1
        assert json.loads(capsys.readouterr().err)["reason"] == "DirectoryInUse"

    def test_a_failure_gives_the_directory_back(self, client, tmp_path, capsys):
        def fail(verb, plural, name):
            raise errors.Unavailable("no")

        client.before = fail
        assert run("--dir", tmp_path) == 3
        files.lock_directory(tmp_path).release()


class TestCluster:
    def test_no_directory_is_made(self, reached, tmp_path, capsys):
        assert run("--kubeconfig", "k", "--dir", tmp_path / "d") == 0
        out, err = capsys.readouterr()
        assert out.startswith("To join a machine, there:\n\n  handfast join 10.0.0.1:6443 --token ")
        assert "created ClusterRole kubeadm:get-nodes" in err.splitlines()
        assert not (tmp_path / "d").exists()
        assert not reached.opened

    def test_other_addresses(self, reached, capsys):
        assert run("--kubeconfig", "k", "--advertise", "a:1", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["servers"] == ["https://a:1"]
        assert "directory" not in found

    def test_an_api_that_does_not_answer(self, reached, capsys):
        def fail(verb, plural, name):
            raise errors.Unavailable("no")

        reached.before = fail
        assert run("--kubeconfig", "k") == 3
        assert capsys.readouterr().err.splitlines()[-1] == "reason: ServiceUnavailable"

    def test_what_says_something_else_is_told(self, reached, capsys):
        reached.put("clusterroles", "kubeadm:get-nodes", rules=[])
        assert run("--kubeconfig", "k") == 0
        assert "kept, though it says something else: ClusterRole kubeadm:get-nodes" in capsys.readouterr().err

    def test_another_cluster_info_is_told(self, reached, capsys):
        reached.put("configmaps", "cluster-info", "kube-public", data={"kubeconfig": "theirs"})
        assert run("--kubeconfig", "k") == 0
        err = capsys.readouterr().err
        assert "kept, though it says something else: ConfigMap kube-public/cluster-info\n" in err
        assert "warning: the ConfigMap kube-public/cluster-info that is there names other servers or another CA" in err
        assert "kubectl delete configmap cluster-info --namespace kube-public" in err
        assert reached.objects["configmaps", "kube-public", "cluster-info"]["data"] == {"kubeconfig": "theirs"}
        assert run("--kubeconfig", "k", "-o", "json") == 0
        assert "names other servers or another CA" in capsys.readouterr().err

    def test_its_own_is_not(self, reached, capsys):
        assert [run("--kubeconfig", "k"), run("--kubeconfig", "k")] == [0, 0]
        assert "another CA" not in capsys.readouterr().err


class TestFirstStart:
    """What `up` runs."""

    def test_an_api_server_that_is_restarting_is_waited_for(self, reached, capsys, monkeypatch):
        failures = [errors.Unavailable("no"), errors.Unavailable("no")]
        slept = []

        def fail(verb, plural, name):
            if failures:
                raise failures.pop()

        async def sleep(_self, seconds):
            slept.append(seconds)

        monkeypatch.setattr(clock.SystemClock, "sleep", sleep)
        reached.before = fail
        assert run("--kubeconfig", "k", "--first-start", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["new"]
        assert len(slept) == 2

    def test_later_ones_do_nothing(self, reached, capsys):
        assert run("--kubeconfig", "k", "--first-start", "--token", TOKEN) == 0
        calls = len(reached.calls)
        capsys.readouterr()
        assert run("--kubeconfig", "k", "--first-start", "--token", "ghijkl.0123456789abcdef", "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["new"], found["objects"]) == (False, [])
        assert "token" not in found
        assert len(reached.calls) == calls


def test_the_outcomes_have_different_words():
    assert len({introduction.CREATED, introduction.KEPT, introduction.DIFFERENT}) == 3
