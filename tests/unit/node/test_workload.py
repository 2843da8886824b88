# SPDX-License-Identifier: Apache-2.0
"""A workload from its Pod to its end, with real processes in place of Envoy and the application."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.node import workload, workload_directory, workload_life, workload_probes, workload_token
from handfast.rules.mesh import sidecar, workload_pod
from handfast.runtime import addresses, backoff, children, claims
from handfast.runtime import clock as clocks
from tests.unit.node import workload_world

pytestmark = pytest.mark.slow

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    monkeypatch.setattr(workload_directory, "home", lambda _variables: path)
    monkeypatch.setattr(children, "command", workload_world.proxy)
    for name in ("_PERIOD", "_STEADY", "_LOOK", "_EAGER"):
        monkeypatch.setattr(workload_life, name, 0.05)
    return path


@pytest.fixture
def client() -> workload_world.Api:
    return workload_world.Api()


def options(*words: str, **more: Any) -> workload_life.Options:
    words = words or SLEEP
    given = {"namespace": "shop", "account": "web", "program": shutil.which(words[0]) or words[0], "words": words}
    return workload_life.Options(**{**given, **more})


def made(client: workload_world.Api, wanted: workload_life.Options, node: str = "") -> workload.Workload:
    return workload.Workload(wanted, workload_world.access(client, node), clocks.SystemClock())


async def until(question: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not question():
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(client: workload_world.Api, *words: str, **more: Any) -> AsyncIterator[Any]:
    """A workload whose application has started; leaving the block ends it."""
    started: list[str] = []
    work = made(client, options(*words, on_running=started.append, **more))
    task = asyncio.create_task(work.run())
    try:
        await until(lambda: started or task.done())
        yield work, task, started
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run_directory(home: pathlib.Path) -> pathlib.Path:
    (path,) = [each for each in home.iterdir() if each.is_dir()]
    return path


async def test_the_exit_code_is_that_of_the_application_and_nothing_is_left(home, client):
    assert await made(client, options("sh", "-c", "exit 7")).run() == 7
    assert client.pods == {}
    assert [path.name for path in home.iterdir() if path.is_dir()] == []
    assert client.statuses[-1]["phase"] == "Failed"
    assert [client.tokens[0]["audiences"], client.tokens[0]["expirationSeconds"]] == [["a"], 600]
    assert client.tokens[0]["boundObjectRef"]["uid"].startswith("uid-web-")


async def test_an_application_that_a_signal_killed_has_the_code_of_a_shell(home, client):
    assert await made(client, options("sh", "-c", "kill -9 $$")).run() == 137


async def test_the_proxy_has_the_pods_environment_with_real_paths_and_nothing_else(home, client, monkeypatch):
    monkeypatch.setenv("SECRET_OF_MINE", "x")
    async with running(client, name="w", ports=(), spiffe_socket="/run/s.sock") as (_, _, started):
        words, variables = workload_world.seen(run_directory(home) / "seen.json")
        token = pathlib.Path(variables["LINKERD2_PROXY_IDENTITY_TOKEN_FILE"])
        assert (token.read_text(), oct(token.stat().st_mode & 0o777)) == ("token-1", "0o400")
        assert variables["LINKERD2_PROXY_IDENTITY_STORE_DIR"] == str(run_directory(home) / "identity")
        assert (variables["K8S_POD"], variables["LINKERD2_PROXY_INBOUND_IPS"]) == (
            "w",
            words[words.index("--pod-ip") + 1],
        )
        assert "SECRET_OF_MINE" not in variables
        assert words[words.index("--spiffe-socket") + 1] == "/run/s.sock"
        assert "Pod shop/w runs at 127." in started[0]


async def test_a_pod_of_somebody_else_writes_and_loads_nothing_here(home, client, tmp_path):
    container = {"name": "web"}
    pod = client.add(
        {"metadata": {"name": "p", "namespace": "shop"}, "spec": {"nodeName": "n", "containers": [container]}}
    )
    (victim := tmp_path / "victim").write_text("precious")
    # From the directory of tokens, of the run, and of the user.
    path = "../../../victim"
    pod["spec"]["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["path"] = path
    proxy = pod["spec"]["initContainers"][1]
    proxy["env"][2]["value"] = f"{sidecar.TOKENS}/{path}"
    proxy["env"].append({"name": "PYTHONPATH", "value": "/tmp/of-another"})
    client.pods["p"] = pod
    look = f"grep -q PYTHONPATH {home}/*/seen.json"
    assert await made(client, options("sh", "-c", look, account="", name="p"), node="n").run() == 1
    assert victim.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_at_the_proxys_port_is_not_taken_for_the_proxy(home, client, monkeypatch, tmp_path):
    monkeypatch.setattr(children, "command", workload_world.taken)
    monkeypatch.setattr(workload_pod, "patience", lambda _pod: 1.5)
    with pytest.raises(errors.Unavailable) as refused:
        await made(client, options("touch", str(tmp_path / "started"))).run()
    assert refused.value.reason == "ProxyNotReady"
    assert not (tmp_path / "started").exists()
    assert {workload_world.ready(row) for row in client.statuses} == {"False"}


async def test_who_takes_the_applications_port_before_it_starts_is_not_called(
    home, client, monkeypatch, unused_tcp_port, tmp_path
):
    servers: list[asyncio.Server] = []

    async def take(_admin: object) -> None:
        servers.append(await asyncio.start_server(lambda *_: None, "127.0.0.1", unused_tcp_port))

    monkeypatch.setattr(workload_probes, "why_not_ready", take)
    monkeypatch.setattr(workload_life.Life, "_report", lambda _life: asyncio.sleep(60))
    ports = (workload_pod.Port(8080, unused_tcp_port),)
    with pytest.raises(errors.Refused) as refused:
        await made(client, options("touch", str(tmp_path / "started"), ports=ports)).run()
    servers[0].close()
    assert refused.value.reason == "AddressInUse"
    assert not (tmp_path / "started").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_a_workload_ends_when_another_user_listens_for_its_calls(home, client):
    async with running(client, ports=()) as (_, task, started):
        port = started[0].partition("proxy is http://127.0.0.1:")[2].partition(",")[0]
        intruder = await asyncio.create_subprocess_exec(sys.executable, "-c", workload_world.INTRUDER, port)
        try:
            with pytest.raises(errors.Refused) as refused:
                await asyncio.wait_for(task, 20)
        finally:
            intruder.kill()
            await intruder.wait()
    assert refused.value.reason == "ProxyPortTaken"
    assert client.pods == {}


async def test_it_is_ready_with_its_proxy_and_while_its_ports_accept(home, client, unused_tcp_port):
    script = f"import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port={unused_tcp_port}, bind='127.0.0.1')"
    ports = (workload_pod.Port(8080, unused_tcp_port),)
    async with running(client, sys.executable, "-c", script, ports=ports):
        await until(lambda: client.statuses and workload_world.ready(client.statuses[-1]) == "True")
        assert client.statuses[-1]["phase"] == "Running"
        (run_directory(home) / "unwell").touch()
        await until(lambda: workload_world.ready(client.statuses[-1]) == "False")
        (why,) = [each["message"] for each in client.statuses[-1]["conditions"] if each["type"] == "Ready"]
        assert why == "it is unwell"


async def test_a_proxy_that_is_not_ready_for_a_moment_takes_no_requests_away(home, client, monkeypatch):
    moments: list[str] = []
    looks: list[str | None] = []
    look = workload_probes.why_not_ready

    async def hesitates(admin: addresses.Address) -> str | None:
        looks.append(moments.pop() if moments else await look(admin))
        return looks[-1]

    monkeypatch.setattr(workload_probes, "why_not_ready", hesitates)
    monkeypatch.setattr(workload_life, "_STEADY", 0.05)
    monkeypatch.setattr(workload_life, "_PERIOD", 0.05)
    async with running(client, ports=()):
        await until(lambda: client.statuses and workload_world.ready(client.statuses[-1]) == "True")
        before = len(client.statuses)
        moments.extend(["the certificate is not with Envoy"] * 2)
        looks.clear()
        await until(lambda: len(looks) > 3)
        assert client.statuses[before:] == []


async def test_an_application_that_accepts_nothing_is_not_ready(home, client, unused_tcp_port):
    async with running(client, ports=(workload_pod.Port(8080, unused_tcp_port),)):
        await until(lambda: client.statuses and client.statuses[-1]["phase"] == "Running")
        await until(lambda: "does not accept" in client.statuses[-1]["conditions"][-1]["message"])


async def test_a_signal_is_passed_on_and_it_is_not_ready_from_then_on(home, client):
    listening = home / "listening"
    script = f"import pathlib, signal, time; signal.signal(15, lambda *_: (time.sleep(0.5), exit(3))); pathlib.Path({str(listening)!r}).touch(); time.sleep(60)"
    async with running(client, sys.executable, "-c", script) as (work, task, _):
        await until(lambda: client.statuses and workload_world.ready(client.statuses[-1]) == "True")
        await until(listening.exists)
        assert work.signal(signal.SIGTERM)
        assert await task == 3
        assert not work.signal(signal.SIGTERM)
    assert "it ends" in str(client.statuses)


async def test_before_its_start_there_is_nobody_to_have_a_signal(home, client):
    assert not made(client, options()).signal(signal.SIGTERM)


async def test_a_proxy_that_dies_is_started_again(home, client):
    async with running(client):
        directory = run_directory(home)
        await until(lambda: client.statuses and workload_world.ready(client.statuses[-1]) == "True")
        (directory / "seen.json").unlink()
        (pid,) = [int(path.parent.name) for path in _processes(str(directory))]
        os.kill(pid, signal.SIGKILL)
        await until((directory / "seen.json").exists)
        await until(lambda: client.statuses[-1]["initContainerStatuses"][1]["restartCount"] == 1)


def _processes(word: str) -> list[pathlib.Path]:
    """Those whose environment says this, of the proxies."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TMPDIR={word}".encode() in path.read_bytes():
                found.append(path)
    return found


async def test_a_proxy_that_does_not_start_ends_everything(home, client, monkeypatch):
    monkeypatch.setattr(children, "command", workload_world.failing)
    with pytest.raises(errors.Unavailable) as failed:
        await made(client, options()).run()
    assert (failed.value.reason, "exit code 3" in failed.value.message) == ("ProxyFailed", True)
    assert client.pods == {}


async def test_an_application_does_not_wait_for_ever(home, client, monkeypatch):
    monkeypatch.setattr(workload_pod, "patience", lambda _pod: 0.3)
    script = workload_world.PROXY.replace("well = not", "well = None and not")
    monkeypatch.setattr(workload_world, "PROXY", script)
    with pytest.raises(errors.Unavailable) as failed:
        await made(client, options()).run()
    assert (failed.value.reason, "is not ready after 0.3 s: " in failed.value.message) == ("ProxyNotReady", True)
    assert client.pods == {}


async def test_what_the_identity_service_refuses_is_not_waited_for(home, client, monkeypatch):
    script = workload_world.PROXY.replace("well = not", "well = None and not").replace(
        "REFUSES = False", "REFUSES = True"
    )
    monkeypatch.setattr(workload_world, "PROXY", script)
    with pytest.raises(errors.Refused) as refused:
        await made(client, options()).run()
    assert refused.value.reason == "CertificateRefused"
    assert refused.value.message.endswith(" gets no certificate: it is revoked")
    assert client.pods == {}


async def test_where_no_probe_says_so_it_does_not_wait(home, client, monkeypatch):
    monkeypatch.setattr(workload_pod, "patience", lambda _pod: None)
    assert await made(client, options("sh", "-c", "exit 4")).run() == 4


async def test_the_token_is_replaced_before_it_ends(home, client):
    client.lifetime = datetime.timedelta(seconds=2)
    async with running(client):
        await until(lambda: len(client.tokens) >= 2)
        client.lifetime = datetime.timedelta(hours=1)
        await until(lambda: [path.read_text() for path in (run_directory(home) / "tokens").iterdir()] > ["token-1"])


async def test_while_the_api_server_is_away_the_workload_goes_on(home, client, monkeypatch):
    monkeypatch.setattr(workload_token, "_RETRY", backoff.Schedule(initial=0.05, cap=0.1))
    client.lifetime = datetime.timedelta(seconds=1)
    async with running(client) as (_, task, _):
        client.away = True
        (run_directory(home) / "unwell").touch()
        await asyncio.sleep(1.5)
        assert not task.done()
        before = len(client.tokens)
        client.away = False
        await until(lambda: len(client.tokens) > before)
        await until(lambda: workload_world.ready(client.statuses[-1]) == "False")


async def test_a_pod_that_is_deleted_ends_its_application(home, client):
    async with running(client) as (_, task, _):
        client.pods.clear()
        assert await task == 128 + signal.SIGTERM


async def test_a_pod_that_is_there_is_run_and_stays(home, client):
    container = {"name": "web", "env": [{"name": "GREETING", "value": "hello"}]}
    spec = {"serviceAccountName": "web", "nodeName": "n1", "containers": [container]}
    client.add({"metadata": {"name": "web-0", "namespace": "shop"}, "spec": spec})
    wanted = options("sh", "-c", '[ "$GREETING" = hello ]', account="", name="web-0")
    assert await made(client, wanted, "n1").run() == 0
    assert list(client.pods) == ["web-0"]
    # It may be started again.
    assert client.pods["web-0"]["status"]["phase"] == "Running"
    async with running_pod(client, wanted) as work:
        with pytest.raises(errors.Refused) as refused:
            await work.run()
        assert refused.value.reason == "PodRuns"


@contextlib.asynccontextmanager
async def running_pod(client: workload_world.Api, wanted: workload_life.Options) -> AsyncIterator[workload.Workload]:
    """Another run of the same Pod is under way."""
    with claims.Claims() as held:
        assert held.take(f"pod uid-{wanted.name}")
        yield made(client, wanted, "n1")


async def test_what_a_killed_run_left_is_removed_by_the_next(home, client):
    client.add(workload_pod.manifest(workload_pod.Wanted(namespace="shop", account="web", name="old", run="r-old")))
    client.add(workload_pod.manifest(workload_pod.Wanted(namespace="shop", account="web", name="kept", run="other")))
    for run, server, name in (("r-old", workload_world.SERVER, "old"), ("r-else", "https://elsewhere", "kept")):
        (home / run / "tokens").mkdir(parents=True, mode=0o700)
        (home / run).chmod(0o700)
        (home / run / "tokens" / "t").write_text("secret")
        workload_directory.Directory(home / run).remember(workload_directory.Record(server, "shop", name, run))
    assert await made(client, options("true")).run() == 0
    assert list(client.pods) == ["kept"]
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"r-else"}
    assert not (home / "r-else" / "tokens").exists()


async def test_what_these_credentials_may_not_remove_stops_nobody(home, client, monkeypatch):
    get = client.get

    async def as_a_node(resource, name, **more):
        if name == "old":
            raise status.forbidden("pods", "", name, "it is of no node")
        return await get(resource, name, **more)

    monkeypatch.setattr(client, "get", as_a_node)
    (home / "r-old").mkdir(mode=0o700)
    record = workload_directory.Record(workload_world.SERVER, "shop", "old", "r-old")
    workload_directory.Directory(home / "r-old").remember(record)
    assert await made(client, options("true")).run() == 0
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"r-old"}


async def test_a_pod_that_could_not_be_removed_is_remembered(home, client):
    async with running(client, "sh", "-c", "sleep 0.3", name="w") as (_, task, _):
        client.away = True
        assert await task == 0
    assert list(client.pods) == ["w"]
    client.away = False
    assert await made(client, options("true")).run() == 0
    assert client.pods == {}


async def test_a_run_that_is_cancelled_cleans_up(home, client):
    async with running(client, name="w") as (_, task, _):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert client.pods == {}
    assert not [path for path in home.iterdir() if path.is_dir()]
