# SPDX-License-Identifier: Apache-2.0
"""`handfast up`: what it says, and what it refuses before anything starts."""

import datetime
import io
import json
import os
import stat
import sys

import pytest

from handfast.assembly import config, up
from handfast.cli import invocation, main, output
from handfast.cli import up as up_command
from handfast.datadir import endpoints, layout
from handfast.runtime import clock as clocks
from handfast.runtime import files
from tests.world.clock import MovableClock

FREE = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
FOUND = endpoints.Endpoints(
    apiserver="https://a:1", controllers_admin="http://b:2", supervisor=7, pids={"apiserver": 8}
)


def run(*arguments):
    return output.run(main.command, ["up", *map(str, arguments)])


class Person(io.StringIO):
    """A terminal that somebody reads."""

    def isatty(self):
        return True


class Stop(Exception):
    """Stands for the end of a control plane."""


FIRST = {
    "new": True,
    "objects": [{"object": "Role a", "outcome": "created"}],
    "token": "abcdef.0123456789abcdef",
    "tokenID": "abcdef",
    "expires": "2030-01-01T00:00:00Z",
    "joinCommand": "handfast join a:1 --token abcdef.0123456789abcdef",
}


@pytest.fixture
def introduced():
    """What `handfast init` said: nothing, where a test does not say otherwise."""


@pytest.fixture
def warned():
    """What the preparation warned of: nothing, where a test does not say otherwise."""


@pytest.fixture
def started(monkeypatch, introduced, warned):
    """What would have been run."""
    calls = []

    async def fake(place, lock, chosen, console, *, role_flags, token):
        assert "--enable-bootstrap-token-auth" in role_flags.apiserver
        assert " ".join(role_flags.controllers).startswith("--cluster-signing-duration ")
        os.fstat(lock.descriptor)
        calls.append((place, chosen, console, token))
        done = [["pki/ca.crt", "created"]]
        console.prepared(json.dumps({"done": done, "seconds": 1.0, "warning": warned}).encode())
        if introduced is not None:
            console.introduced(json.dumps(introduced).encode())
        console.event("info", "an event", role="x")
        console.ready(FOUND)

    monkeypatch.setattr(up, "run", fake)
    return calls


@pytest.mark.parametrize("warned", ["the CA ends"])
def test_warnings_of_the_preparation_are_told(started, tmp_path, capsys):
    assert run("--dir", tmp_path / "d", *FREE) == 0
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert ("warning", "the CA ends") in [(event["level"], event["event"]) for event in events]


@pytest.fixture
def terminal(monkeypatch):
    """Standard output is one, as far as the command can tell."""
    monkeypatch.setattr(output, "to_terminal", lambda: True)


def test_says_where_everything_is(started, terminal, tmp_path, capsys):
    directory = tmp_path / "with space"
    assert run("--dir", directory, *FREE) == 0
    out, err = capsys.readouterr()
    assert "https://a:1" in out
    assert "http://b:2" in out
    assert f"export KUBECONFIG='{directory}/admin.conf'" in out
    assert "kill 7" in out
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert events == [f"created {directory}/pki/ca.crt", "an event"]
    files.lock_directory(directory).release()


@pytest.mark.parametrize("introduced", [None, FIRST, {"new": True, "objects": []}])
def test_off_a_terminal_it_writes_json_lines_and_nothing_else(started, tmp_path, capsys):
    assert run("--dir", tmp_path, *FREE) == 0
    out, err = capsys.readouterr()
    (ready,) = map(json.loads, out.splitlines())
    assert (
        ready.items()
        >= {
            "event": "Handfast is ready",
            "level": "info",
            "apiserver": "https://a:1",
            "controllersAdmin": "http://b:2",
            "directory": str(tmp_path),
            "kubeconfig": str(tmp_path / "admin.conf"),
        }.items()
    )
    assert all(json.loads(line)["event"] for line in err.splitlines())


def test_a_person_is_told_how_many_files_were_made(tmp_path, monkeypatch):
    done = [["a", "created"], ["b", "created"], ["c", "renewed"]]
    monkeypatch.setattr(sys, "stderr", person := Person())
    console = up_command._Console(layout.Layout.at(tmp_path), "text")
    console.prepared(json.dumps({"done": done, "warning": None}).encode())
    console.prepared(json.dumps({"done": done[2:], "warning": None}).encode())
    assert person.getvalue().splitlines() == [
        f"created 2 files in {tmp_path}",
        f"renewed {tmp_path}/c",
        f"renewed {tmp_path}/c",
    ]


def test_a_person_is_not_told_of_objects_one_line_before_the_join_command(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", person := Person())
    up_command._Console(layout.Layout.at(tmp_path), "json").introduced(json.dumps(FIRST).encode())
    assert person.getvalue() == ""


class TestPorts:
    """Whose ports may be others than those of the configuration."""

    @pytest.fixture
    def unnamed(self, monkeypatch):
        heard = []

        async def fake(*_arguments, role_flags, **_more):
            heard.append(set(role_flags.unnamed))

        monkeypatch.setattr(up, "run", fake)
        for name in ("HANDFAST_LISTEN", "HANDFAST_ADMIN_LISTEN"):
            monkeypatch.delenv(name, raising=False)
        return heard

    def test_those_that_nobody_named(self, unnamed, tmp_path):
        assert run("--dir", tmp_path) == 0
        assert run("--dir", tmp_path, "--listen", "127.0.0.1:6443") == 0
        assert run("--dir", tmp_path, "--admin-listen", "127.0.0.1:9990") == 0
        assert unnamed == [{"--listen", "--admin-listen"}, {"--admin-listen"}, {"--listen"}]

    def test_with_machines_there_are_two_more(self, unnamed, tmp_path):
        assert run("--dir", tmp_path, "--machines", "--machine-config-listen", "127.0.0.1:22623") == 0
        assert unnamed == [{"--listen", "--admin-listen", "--machine-config-admin-listen"}]

    def test_an_environment_and_a_file_name_them_too(self, unnamed, tmp_path, monkeypatch):
        monkeypatch.setenv("HANDFAST_LISTEN", "127.0.0.1:6443")
        (tmp_path / "config.yaml").write_text(
            f'apiVersion: {config.API_VERSION}\nkind: {config.KIND}\nadminListen: "127.0.0.1:9990"\n'
        )
        assert run("--dir", tmp_path) == 0
        assert unnamed == [set()]

    def test_an_advertised_address_leads_to_the_port_there_is(self, unnamed, tmp_path):
        assert run("--dir", tmp_path, "--advertise", "192.0.2.1:6443") == 0
        assert unnamed == [{"--admin-listen"}]


def test_says_it_for_machines(started, tmp_path, capsys):
    assert run("--dir", tmp_path, *FREE, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "apiserver": "https://a:1",
        "controllersAdmin": "http://b:2",
        "pids": {"supervisor": 7, "apiserver": 8},
        "directory": str(tmp_path),
        "kubeconfig": str(tmp_path / "admin.conf"),
    }


def test_it_goes_on_where_nobody_reads_along(tmp_path, monkeypatch):
    tried = []

    class Gone(io.StringIO):
        def write(self, text):
            tried.append(text)
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    up_command._Console(layout.Layout.at(tmp_path), "text").ready(FOUND)
    assert tried


def test_the_signing_settings_are_told_to_the_controllers(monkeypatch, tmp_path):
    heard = []

    async def fake(*_arguments, role_flags, **_more):
        heard.extend(role_flags.controllers)

    monkeypatch.setattr(up, "run", fake)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "config.yaml").write_text(
        f"apiVersion: {config.API_VERSION}\nkind: {config.KIND}\nclusterSigningDuration: 24h\n"
        "clusterSigningKubeletClientCertFile: c.crt\n"
    )
    half = run("--dir", tmp_path / "d", *FREE)
    typed = ("--cluster-signing-kubelet-client-key-file", "/k")
    assert (half, run("--dir", tmp_path / "d", *FREE, *typed)) == (2, 0)
    certificate = f"--cluster-signing-kubelet-client-cert-file {tmp_path}/d/c.crt"
    assert " ".join(heard) == (
        f"--cluster-signing-duration 24h {certificate} --cluster-signing-kubelet-client-key-file /k"
    )


def test_a_bad_flag_leaves_no_directory(started, tmp_path, capsys):
    assert run("--dir", tmp_path / "d", "--listen", "x") == 2
    assert not (tmp_path / "d").exists()
    assert not started


def test_an_unknown_controller_is_refused_before_anything_starts(started, tmp_path, capsys):
    assert run("--dir", tmp_path / "d", *FREE, "--controllers", "*,bootstrap-singer-controller") == 2
    err = capsys.readouterr().err
    assert "there is no controller 'bootstrap-singer-controller'; there are: namespace-controller, " in err
    assert not (tmp_path / "d").exists()
    assert not started


def test_a_directory_in_use(started, tmp_path, capsys):
    lock = files.lock_directory(tmp_path)
    assert run("--dir", tmp_path, *FREE, "-o", "json") == 1
    assert json.loads(capsys.readouterr().err)["reason"] == "DirectoryInUse"
    assert not started
    lock.release()


def test_a_failure_gives_the_directory_back(tmp_path, monkeypatch, capsys):
    async def fail(*_arguments, **_more):
        raise Stop

    monkeypatch.setattr(up, "run", fail)
    assert run("--dir", tmp_path, *FREE) == 1
    assert "Stop" in capsys.readouterr().err
    files.lock_directory(tmp_path).release()


class TestFirstToken:
    @pytest.fixture
    def introduced(self):
        return FIRST

    def test_no_secret_goes_to_the_log_of_a_service(self, started, tmp_path, capsys):
        assert run("--dir", tmp_path, *FREE, "--token", FIRST["token"]) == 0
        out, err = capsys.readouterr()
        assert "0123456789abcdef" not in out + err
        assert not (tmp_path / "first-token").exists()
        ready = json.loads(out)
        assert ready["joinCommand"] == "handfast join a:1 --token-file FILE"
        assert "tokenFile" not in ready
        assert "handfast token delete abcdef" in err

    def test_elsewhere_it_is_in_a_file_that_the_log_names(self, started, tmp_path, capsys):
        assert run("--dir", tmp_path, *FREE) == 0
        assert started[0][3] == up.FirstToken(None, "24h")
        path = tmp_path / "first-token"
        assert path.read_text() == f"{FIRST['token']}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        out, err = capsys.readouterr()
        assert "0123456789abcdef" not in out + err
        ready = json.loads(out)
        assert (ready["joinCommand"], ready["tokenFile"]) == ("handfast join a:1 --token-file FILE", str(path))
        (line,) = [found for found in map(json.loads, err.splitlines()) if "path" in found]
        assert (line["event"], line["path"]) == ("the first token was made, and written to a file", str(path))

    def test_the_file_goes_when_the_token_has_expired(self, started, tmp_path, capsys, monkeypatch):
        path = tmp_path / "first-token"
        assert run("--dir", tmp_path, *FREE) == 0
        console = started[0][2]
        for now, there in (("2029-12-31T23:59:59", True), ("2030-01-01T00:00:00", False), ("2030-01-02", False)):
            clock = MovableClock(datetime.datetime.fromisoformat(now).replace(tzinfo=datetime.UTC))
            monkeypatch.setattr(clocks, "SystemClock", lambda clock=clock: clock)
            # As every hour.
            console.prepared(b'{"done": [], "seconds": 1.0, "warning": null}')
            assert path.exists() == there
        assert capsys.readouterr().err.count("the file of the first token was removed") == 1

    @pytest.mark.parametrize("expires", ["2030-01-01T00:00:00Z", None])
    def test_the_file_goes_at_the_next_start(self, started, tmp_path, monkeypatch, expires):
        path = tmp_path / "first-token"
        monkeypatch.setitem(FIRST, "expires", expires)
        assert run("--dir", tmp_path, *FREE) == 0
        console = started[0][2]
        console.prepared(b'{"done": [], "seconds": 1.0, "warning": null}')
        assert path.exists()
        monkeypatch.setitem(FIRST, "token", None)
        assert run("--dir", tmp_path, *FREE) == 0
        assert not path.exists()

    def test_a_file_that_cannot_be_removed_is_told_of(self, started, tmp_path, capsys):
        (tmp_path / "first-token").mkdir()
        assert run("--dir", tmp_path, *FREE) == 0
        assert "the file of the first token is still there" in capsys.readouterr().err

    def test_a_file_that_cannot_be_written(self, started, tmp_path, capsys):
        (tmp_path / "first-token").mkdir()
        assert run("--dir", tmp_path, *FREE) == 0
        out, err = capsys.readouterr()
        assert "the first token was not written" in err
        again = f"{invocation.program()} token create --print-join-command --dir {tmp_path}"
        assert json.loads(out)["createToken"] == again
        assert "0123456789abcdef" not in out + err

    def test_the_join_command_is_told_with_its_warning(self, started, terminal, tmp_path, capsys):
        assert run("--dir", tmp_path, *FREE) == 0
        out, err = capsys.readouterr()
        assert "To join a machine, there:" in out
        assert "No other machine" not in out
        assert out.count("  handfast join a:1 --token abcdef.0123456789abcdef\n") == 1
        assert out.rstrip().endswith("kill 7")
        events = [json.loads(line)["event"] for line in err.splitlines()]
        assert "created what machines need to join" in events
        (warning,) = [event for event in events if event.startswith("whoever holds")]
        assert "until it expires at 2030-01-01T00:00:00Z" in warning
        assert "handfast token delete abcdef" in warning
        assert "0123456789abcdef" not in err

    def test_for_machines(self, started, tmp_path, capsys):
        assert run("--dir", tmp_path, *FREE, "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert {key: found[key] for key in ("token", "expires", "joinCommand")} == {
            "token": FIRST["token"],
            "expires": FIRST["expires"],
            "joinCommand": FIRST["joinCommand"],
        }

    @pytest.mark.parametrize(
        ("arguments", "token"),
        [
            ([], up.FirstToken(None, "24h")),
            (["-o", "json"], up.FirstToken(None, "24h")),
            (["--token", ""], up.FirstToken("", "24h")),
            (["--token", "abcdef.0123456789abcdef", "--token-ttl", "0"], up.FirstToken("abcdef.0123456789abcdef", "0")),
        ],
    )
    def test_what_is_passed_on(self, started, terminal, tmp_path, arguments, token):
        assert run("--dir", tmp_path, *FREE, *arguments) == 0
        assert started[0][3] == token

    @pytest.mark.parametrize("arguments", [["--token", "x"], ["--token-ttl", "soon"]])
    def test_a_wrong_one_leaves_no_directory(self, started, tmp_path, capsys, arguments):
        assert run("--dir", tmp_path / "d", *FREE, *arguments) == 2
        assert not (tmp_path / "d").exists()


class TestReach:
    """Whether other machines get to the server that the join command names."""

    @pytest.fixture
    def introduced(self):
        return {
            **FIRST,
            "servers": ["https://127.0.0.1:7443"],
            "joinCommand": f"handfast join 127.0.0.1:7443 --token {FIRST['token']}",
        }

    def test_where_there_is_no_way_that_is_said_with_what_to_set(self, started, terminal, tmp_path, capsys):
        assert run("--dir", tmp_path, *FREE) == 0
        out = capsys.readouterr().out
        assert f"To join this machine:\n\n  {invocation.program()} join 127.0.0.1:7443 --token " in out
        start = f"start `{invocation.program()} up` with --listen 0.0.0.0:7443"
        assert f"No other machine reaches 127.0.0.1; to let others join, {start}" in out
        assert "--advertise HOST:7443" in out

    def test_also_in_a_log(self, started, tmp_path, capsys):
        assert run("--dir", tmp_path, *FREE) == 0
        assert json.loads(capsys.readouterr().out)["note"].startswith("no other machine reaches 127.0.0.1; to let")


class TestNoToken:
    @pytest.fixture
    def introduced(self):
        return {key: FIRST[key] for key in ("new", "objects")}

    def test_where_to_get_one(self, started, terminal, tmp_path, capsys):
        assert run("--dir", tmp_path / "a b", *FREE) == 0
        assert (
            f"  {invocation.program()} token create --print-join-command --dir '{tmp_path}/a b'\n"
            in capsys.readouterr().out
        )


class TestLaterStarts:
    @pytest.fixture
    def introduced(self):
        return {"new": False, "objects": []}

    def test_nothing_is_said(self, started, tmp_path, capsys):
        assert run("--dir", tmp_path, *FREE) == 0
        out, err = capsys.readouterr()
        assert "join" not in out
        assert "join" not in err
