# SPDX-License-Identifier: Apache-2.0
"""A control plane from its first start to its last stop, on real processes.

Proves that `handfast up` needs nothing but a directory, goes on where it stopped, survives the death of every one of
its processes, stops in time, and leaves nobody behind.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import time
from urllib import parse as urls

import pytest

from tests.scenarios import up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "data"


def test_first_start_then_resume(directory):
    with up_world.Up(directory) as up:
        up.ready()
        assert up.call("GET", "/api/v1/namespaces/kube-system")[0] == 200
        up.create_config_map("kept")
        ca = (directory / "pki" / "ca.crt").read_bytes()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        for path in directory.rglob("*"):
            if path.is_file() and not path.name.startswith("store.db"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert up.facts["kubeconfig"] == str(directory / "admin.conf")
        pids = up.pids()
        code, seconds = up.stop()
        assert code == 0, up.log.read_text()
        assert seconds < 10
        assert not any(up_world.alive(pid) for pid in pids.values())
        assert not (directory / "endpoints.json").exists()
        assert "Traceback" not in up.log.read_text()
    with up_world.Up(directory) as again:
        again.ready()
        assert again.has_config_map("kept")
        assert (directory / "pki" / "ca.crt").read_bytes() == ca


def test_every_line_of_the_written_configuration_says_what_up_uses(directory):
    """The children are told the same, whether the lines of config.yaml are comments or not."""

    def told(up: up_world.Up) -> dict[str, list[str]]:
        ports = {urls.urlsplit(up.facts[name]).port: name for name in ("apiserver", "controllersAdmin")}
        words = {role: pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0") for role, pid in up.pids().items()}
        # Ports are the kernel's choice, and so are descriptors.
        return {
            role: [
                next((name for port, name in ports.items() if word.endswith(f":{port}")), word)
                for word, before in zip(line, ["", *line], strict=False)
                if before not in {"--listen-fd", "--socket", "--supervised"}
            ]
            for role, line in words.items()
        }

    with up_world.Up(directory) as up:
        before = told(up.ready())
        assert up.stop()[0] == 0
    path = directory / "config.yaml"
    text = path.read_text()
    path.write_text(re.sub(r"^#(?! )", "", text, flags=re.MULTILINE))
    with up_world.Up(directory) as again:
        assert told(again.ready()) == before
    shown = json.loads(up_world.run("config", "show", "--dir", directory, "-o", "json").stdout)
    # What is null is as if it were left out.
    said = {key for key in shown["origins"] if shown[key] is not None}
    assert {key for key, origin in shown["origins"].items() if origin == f"{path}: {key}"} == said
    assert len(said) > 15
    path.unlink()
    without = json.loads(up_world.run("config", "show", "--dir", directory, "-o", "json").stdout)
    assert {**without, "origins": {}} == {**shown, "origins": {}}


@pytest.fixture
def taken():
    """The ports of the defaults, which this or some other process of this machine has."""
    with contextlib.ExitStack() as stack:
        for port in (6443, 9990):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


def test_a_person_reads_few_lines_and_then_what_to_type(directory, taken):
    """A first start that was told nothing but --dir, while something else has the ports of the defaults."""
    words = [*up_world.COMMAND, "up", "--dir", str(directory)]
    coloured = {name: value for name, value in up_world.environment().items() if name != "NO_COLOR"}
    with up_world.Terminal(words, coloured) as terminal:
        text = terminal.shows("To stop it: Ctrl-C here")
        facts = json.loads((directory / "endpoints.json").read_bytes())
        terminal.interrupt()
        assert terminal.process.wait(30) == 0, terminal.text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    before, page = plain.split("\nHandfast is ready\n\n")
    # A slow machine may say that a request held the loop.
    *lines, warning = (line for line in before.splitlines() if "held the event loop" not in line)
    api, admin = (urls.urlsplit(facts[name]).port for name in ("apiserver", "controllersAdmin"))
    assert api != 6443
    assert admin != 9990
    expected = (
        rf"warning: port 6443 is taken, so that port {api} is used; --listen names another",
        rf"warning: port 9990 is taken, so that port {admin} is used; --admin-listen names another",
        rf"created \d+ files in {directory}",
        rf"\d\d:\d\d:\d\d INFO    API server started address=127.0.0.1:{api} logger=\S+",
        r"\d\d:\d\d:\d\d INFO    controllers started count=\d+ logger=\S+",
    )
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line
    assert warning.startswith("warning: whoever holds the token ")
    assert f"export KUBECONFIG={directory}/admin.conf\n  kubectl get namespaces\n" in page
    assert re.search(rf"^  \S*handfast join 127.0.0.1:{api} --token ", page, re.MULTILINE)
    assert re.search(rf"\nNo other machine reaches 127.0.0.1; .* up` with --listen 0.0.0.0:{api}, ", page)
    assert page.count(f"kill {facts['pids']['supervisor']}") == 1
    assert "\n\x1b[1;32mHandfast is ready\x1b[0m\n" in text
    assert "\x1b[33mwarning\x1b[0m: port" in text


def test_off_a_terminal_there_are_json_lines_and_nothing_else(directory):
    """Up to the end. An error at the end is told in its three lines, as by every command."""
    words = [*up_world.COMMAND, "up", "--dir", str(directory), *up_world.FREE]
    log = directory.parent / "log"
    with (
        log.open("wb") as both,
        subprocess.Popen(words, stdout=both, stderr=both, env=up_world.environment()) as process,
    ):
        up_world.until(lambda: b"Handfast is ready" in log.read_bytes(), 60, "its start")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert [event for event in events if "started" in event] == ["API server started", "controllers started"]
    (ready,) = [line for line in lines if line["event"] == "Handfast is ready"]
    assert ready["pids"]["supervisor"] == process.pid
    assert ready["kubeconfig"] == str(directory / "admin.conf")
    assert ready["tokenFile"] == str(directory / "first-token")
    token = pathlib.Path(ready["tokenFile"]).read_text().strip()
    assert token not in log.read_text()


def test_the_supervisor_stays_small(directory):
    with up_world.Up(directory) as up:
        up.ready()
        rollup = pathlib.Path(f"/proc/{up.process.pid}/smaps_rollup").read_text()
        pss = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        assert pss <= 30 * 1024, f"{pss} KiB"


@pytest.mark.parametrize("role", ["apiserver", "controllers"])
def test_a_killed_child_comes_back(directory, role):
    with up_world.Up(directory) as up:
        up.ready()
        up.create_config_map("kept")
        before = up.pids()
        os.kill(before[role], signal.SIGKILL)
        # The port never closes: a client that comes now waits for the new server instead of being refused.
        assert up.has_config_map("kept")
        up_world.until(lambda: up.pids().get(role, before[role]) != before[role], what=f"a new {role}")
        after = up.pids()
        assert {name for name in after if after[name] != before[name]} == {role}
        code, seconds = up.stop()
        assert (code, seconds < 10) == (0, True)


@pytest.mark.parametrize("role", ["apiserver", "controllers"])
def test_a_stopped_child_is_noticed_and_comes_back(directory, role):
    """`kill -STOP`: it neither dies nor answers."""
    with up_world.Up(directory, "--watchdog-seconds", 12) as up:
        up.ready()
        up.create_config_map("kept")
        before = up.pids()
        # A start has ten minutes: only who has answered the watchdog once, which asks every few seconds, can fall silent.
        time.sleep(8)
        os.kill(before[role], signal.SIGSTOP)
        # A client that comes now waits, and is answered by the next one.
        assert up.has_config_map("kept")
        up_world.until(lambda: up.pids().get(role, before[role]) != before[role], 60, f"a new {role}")
        after = up.pids()
        assert {name for name in after if after[name] != before[name]} == {role}
        up.create_config_map("and-after")
        (killed,) = [line for line in up.events() if line["event"] == f"the {role} does not answer and is killed"]
        assert (killed["level"], killed["reason"], killed["pid"]) == ("error", "NotAnswering", before[role])
        assert "/livez was not answered 3 times in a row" in killed["why"]
        assert "it is stopped (SIGSTOP)" in killed["why"]
        (again,) = [line for line in up.events() if line["event"] == f"the {role} ended and is started again"]
        assert again["why"] == f"killed: {killed['why']}"
        up_world.until(lambda: up.readiness() == (200, "ok"), 60, "controllers that are ready")
        code, seconds = up.stop()
        assert (code, seconds < 10) == (0, True)


def test_controllers_are_not_ready_while_the_api_server_is_silent(directory):
    with up_world.Up(directory, "--watchdog-seconds", 0) as up:
        up.ready()
        pid = up.pids()["apiserver"]
        os.kill(pid, signal.SIGSTOP)
        up_world.until(lambda: up.readiness()[0] == 500, 60, "controllers that are not ready")
        assert "[-]apiserver failed: the API server does not answer: " in up.readiness()[1]
        os.kill(pid, signal.SIGCONT)
        up_world.until(lambda: up.readiness() == (200, "ok"), 60, "controllers that are ready")
        # Nobody watches: it is the same process.
        assert up.pids()["apiserver"] == pid


def test_the_loop_is_measured(directory):
    with up_world.Up(directory) as up:
        up.ready()

        def measured():
            url = urls.urlsplit(up.facts["apiserver"])
            connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=up.context(), timeout=30)
            connection.request("GET", "/metrics")
            found = connection.getresponse().read().decode()
            connection.close()
            assert "# TYPE handfast_apiserver_request_held_loop_total counter" in found
            assert "handfast_event_loop_lateness_seconds_count" in found
            return "handfast_event_loop_lateness_seconds_count 0.0" not in found

        up_world.until(measured, what="a measure of the loop")


def test_one_that_keeps_dying_ends_it_and_the_last_line_says_why(directory):
    with up_world.Up(directory) as up:
        up.ready()
        died = 0
        while died < 5:
            pid = up.pids().get("controllers", 0)
            if pid:
                os.kill(pid, signal.SIGKILL)
                died += 1
                up_world.until(lambda pid=pid: not up_world.alive(pid), what="its death")
                if died < 5:
                    gone = {pid, 0}
                    up_world.until(lambda gone=gone: up.pids().get("controllers", 0) not in gone, what="the next one")
        assert up.process.wait(30) == 1
        last = up.log.read_text().splitlines()[-1]
        assert json.loads(last) == {
            "error": "the controllers died 5 times in a row, each time within 30 s of its start, so that everything was "
            "stopped; the last time: killed by SIGKILL",
            "hint": "the messages of the controllers are above; once the cause is gone, start again",
            "reason": "ChildFailed",
        }


def test_a_killed_supervisor_leaves_no_file_that_names_the_dead(directory):
    with up_world.Up(directory) as up:
        up.ready()
        up.stop(signal.SIGKILL)
        up_world.until(lambda: not (directory / "endpoints.json").exists(), 10, "the end of endpoints.json")


def test_a_killed_supervisor_leaves_nobody_and_the_next_one_takes_over(directory):
    with up_world.Up(directory) as up:
        up.ready()
        up.create_config_map("kept")
        pids = up.pids()
        up.stop(signal.SIGKILL)
        with up_world.Up(directory) as again:
            again.ready()
            assert not any(up_world.alive(pid) for pid in pids.values())
            assert again.has_config_map("kept")


def test_a_killed_supervisor_leaves_nobody_even_without_a_next_one(directory):
    with up_world.Up(directory) as up:
        up.ready()
        pids = up.pids()
        up.stop(signal.SIGKILL)
        up_world.until(lambda: not any(up_world.alive(pid) for pid in pids.values()), 10, "the children's end")


def test_one_ctrl_c_stops_and_children_do_not_see_it_first(directory):
    with up_world.Up(directory) as up:
        up.ready()
        groups = {os.getpgid(pid) for role, pid in up.pids().items() if role != "supervisor"}
        assert os.getpgid(up.process.pid) not in groups
        code, seconds = up.stop(signal.SIGINT)
        assert (code, seconds < 10) == (0, True)


@pytest.mark.parametrize("witness", ["pki", "endpoints.json"], ids=["preparing", "starting"])
def test_a_stop_during_the_start_is_a_stop(directory, witness):
    with up_world.Up(directory) as up:
        up_world.until((directory / witness).exists, what=witness)
        code, seconds = up.stop()
        assert (code, seconds < 10) == (0, True)
    # What was cut short is completed by the next start.
    with up_world.Up(directory) as again:
        again.ready()


def test_open_watches_do_not_hold_the_stop(directory):
    with up_world.Up(directory) as up:
        up.ready()
        url = urls.urlsplit(up.facts["apiserver"])
        connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=up.context(), timeout=30)
        connection.request("GET", "/api/v1/namespaces?watch=true")
        response = connection.getresponse()
        assert response.status == 200
        code, seconds = up.stop()
        assert (code, seconds < 10) == (0, True)
        response.close()
        connection.close()


def test_each_role_runs_alone_and_stops_on_its_own_signal(directory):
    environment = up_world.environment()
    for number in (signal.SIGINT, signal.SIGTERM):
        log = directory.parent / f"{number.name}.log"
        with log.open("wb") as stream:
            words = [*up_world.COMMAND, "serve", "apiserver", "--dir", str(directory), "--listen", "127.0.0.1:0"]
            process = subprocess.Popen(words, stdout=stream, stderr=stream, env=environment)
        with process:
            up_world.until(lambda log=log: b'"API server started"' in log.read_bytes(), what=log)
            controllers = subprocess.Popen(
                [*up_world.COMMAND, "serve", "controllers", "--dir", str(directory), "--admin-listen", "127.0.0.1:0"],
                stderr=subprocess.PIPE,
                env=environment,
            )
            with controllers:
                assert controllers.stderr is not None
                assert b"controllers started" in controllers.stderr.readline()
                controllers.send_signal(number)
                assert controllers.wait(10) == 0
            process.send_signal(number)
            assert process.wait(10) == 0, log.read_text()
        assert "error" not in log.read_text()
