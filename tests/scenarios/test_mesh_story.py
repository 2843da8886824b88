# SPDX-License-Identifier: Apache-2.0
"""The seed's story, end to end: two programs talk plain HTTP to localhost, and get a connection on which both know the other and nobody else can read.

On real processes: `handfast up --mesh`, `handfast mesh run` twice, Envoys, and nothing that was made for a test between them.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from handfast.pki import certificates, keys, pem
from handfast.runtime import mounts
from tests.scenarios import mesh_world, run_world, up_world, wire_capture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

WEB = mesh_world.identity_of("shop", "web")
CLIENT = mesh_world.identity_of("shop", "client")
URL = "http://web.shop.svc.cluster.local:8080"
HEADERS = ("--annotation", "mesh.handfast.dev/identity-headers=enabled")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mesh_world.Plane]:
    with run_world.plane(tmp_path_factory.mktemp("story")) as plane:
        run_world.service(plane)
        yield plane


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def web(plane: mesh_world.Plane, directory: pathlib.Path) -> Iterator[run_world.Run]:
    with run_world.server(plane, directory, *HEADERS) as run:
        run.ready()
        up_world.until(lambda: run_world.endpoints(plane).get(run.ip) is True, 30, "the endpoint")
        yield run


@pytest.fixture(scope="module")
def client(plane: mesh_world.Plane, directory: pathlib.Path) -> Iterator[run_world.Run]:
    with run_world.client(plane, directory, *HEADERS) as run:
        run.ready()
        yield run


def reaches(run: run_world.Run, url: str) -> bool:
    return run.ask(url)[0] == 200


def test_two_programs_reach_one_another_and_each_knows_who_the_other_is(client, web):
    up_world.until(lambda: reaches(client, f"{URL}/"), 40, f"an answer\n{client.text()}\n{web.text()}")
    code, headers, body = client.ask(f"{URL}/hello")
    seen = json.loads(body)
    assert (code, seen["pod"], seen["path"]) == (200, web.name, "/hello")
    assert {name.lower(): value for name, value in seen["headers"].items()}["l5d-client-id"] == CLIENT
    assert {name.lower(): value for name, value in headers.items()}["l5d-server-id"] == WEB


def test_nobody_who_reads_the_network_sees_what_they_say(plane, client, directory):
    """Proves that on the leg between the proxies there is TLS 1.3 and nothing else."""
    with run_world.server(plane, directory, "--label", "app=fresh", account="web") as fresh:
        run_world.service(plane, "fresh")
        fresh.ready()
        up_world.until(lambda: run_world.endpoints(plane, "fresh").get(fresh.ip) is True, 30, "the endpoint")
        secret = "a-secret-on-the-wire"
        with wire_capture.Capture() as capture:
            code, _, body = client.ask(f"http://fresh.shop.svc.cluster.local:8080/{secret}")
        assert (code, secret in body) == (200, True)
        mesh_leg = (fresh.ip, 8080)
        # The capture has it where the programs talk to their own proxies …
        plain = capture.seen(secret.encode())
        assert (("127.0.0.1", int(client.environment["http_proxy"].rpartition(":")[2])) in plain, len(plain)) >= (
            True,
            2,
        )
        assert {host for host, _ in plain} == {"127.0.0.1"}
        # … and on the way between them, TLS from its first octet.
        (sent,), (answered,) = capture.to(mesh_leg), capture.sent_by(mesh_leg)
        assert (sent[0], answered[0]) == (22, 22)
        assert WEB.encode() in sent[:2000]
        assert wire_capture.chosen_version(answered) == 0x0304
        assert not any(word in sent + answered for word in (b"HTTP/1", b"PRI *", b"shop.svc", CLIENT.encode()))


def test_openssl_believes_what_the_workload_shows(plane, web, directory):
    anchors = directory / "anchors.pem"
    anchors.write_bytes(plane.anchors())
    first = ("openssl", "s_client", "-connect", f"{web.ip}:8080", "-servername", WEB, "-CAfile", anchors)
    words = (*first, "-verify_return_error", "-verify_hostname", WEB, "-showcerts")
    done = subprocess.run(
        [*map(str, words), "-tls1_3"], input="", capture_output=True, text=True, timeout=30, check=False
    )
    assert "Verify return code: 0 (ok)" in done.stdout, done.stdout + done.stderr
    assert "New, TLSv1.3" in done.stdout
    shown = pem.certificates_from_pem(_certificates(done.stdout))
    leaf, others = directory / "leaf.pem", directory / "others.pem"
    leaf.write_bytes(pem.encode(pem.CERTIFICATE, shown[0]))
    others.write_bytes(b"".join(pem.encode(pem.CERTIFICATE, der) for der in shown[1:]))
    for purpose in ("sslserver", "sslclient"):
        line = [
            "openssl",
            "verify",
            "-CAfile",
            anchors,
            "-untrusted",
            others,
            "-purpose",
            purpose,
            "-x509_strict",
            leaf,
        ]
        done = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=30, check=False)
        assert done.stdout == f"{leaf}: OK\n", done.stderr
    older = subprocess.run(
        [*map(str, words), "-tls1_2"], input="", capture_output=True, text=True, timeout=30, check=False
    )
    assert "Verify return code: 0" not in older.stdout or "Cipher is (NONE)" in older.stdout


def _certificates(text: str) -> bytes:
    blocks = text.split("-----BEGIN CERTIFICATE-----")[1:]
    rows = [
        f"-----BEGIN CERTIFICATE-----{block.partition('-----END')[0]}-----END CERTIFICATE-----\n" for block in blocks
    ]
    # The server's is shown twice by some versions.
    return "".join(dict.fromkeys(rows)).encode()


def test_the_key_is_in_memory_and_nowhere_else(plane, web, client, directory):
    store = web.directory() / "identity"
    assert mounts.in_memory(store)
    key = keys.private_from_der((store / "key.der").read_bytes())
    written = {key.to_der(), base64.b64encode(key.to_der()), *_lines(key.to_pem())}
    assert oct((store / "key.der").stat().st_mode & 0o777) == "0o400"
    for place in (plane.directory.parent, directory, pathlib.Path(os.environ["XDG_RUNTIME_DIR"])):
        for path in place.rglob("*"):
            if path.is_file() and store not in path.parents:
                octets = path.read_bytes()
                assert not [each for each in written if each in octets], path
    for run in (web, client):
        for pid in (run.process.pid, *run.descendants()):
            for name in ("cmdline", "environ"):
                octets = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
                assert not [each for each in written if each in octets]
                assert b"PRIVATE KEY" not in octets


def _lines(text: bytes) -> list[bytes]:
    return [line for line in text.splitlines() if not line.startswith(b"-----")]


def test_before_there_is_a_certificate_its_name_is_refused(plane, directory):
    """The identity service is asleep, so nobody has a certificate. The application waits, as its start-up probe says."""
    pid = plane.pids()["identity"]
    os.kill(pid, signal.SIGSTOP)
    try:
        with run_world.server(plane, directory) as run:
            up_world.until(lambda: bool(_address(plane)), 30, run.text())
            ip = _address(plane)
            up_world.until(lambda: run_world.listens(ip), 30, run.text())
            with pytest.raises(OSError):
                run_world.certificate_at(plane, ip, WEB)
            # Plaintext is let through; only that nobody is there to answer.
            assert run_world.has(ip) == 503
            assert run.process.poll() is None
            os.kill(pid, signal.SIGCONT)
            run.ready()
            assert run_world.certificate_at(plane, ip, WEB)[1] == "TLSv1.3"
            assert run_world.has(ip) == 200
    finally:
        os.kill(pid, signal.SIGCONT)


def _address(plane: mesh_world.Plane) -> str:
    """Of the Pod that has not started."""
    for item in plane.call("GET", "/api/v1/namespaces/shop/pods")[1]["items"]:
        if item["status"].get("phase") == "Pending" and item["status"].get("podIP"):
            return str(item["status"]["podIP"])
    return ""


def test_certificates_that_last_a_minute(plane, directory):
    """One workload is renewed under its clients, without a failed request. Of another the account is deleted: its certificate ends, and it is refused.

    A minute is the shortest that there is: nobody waits for it, but requests are made all the time.
    """
    plane.install("--set", "identity.lifetime=1m")
    for account in ("brief", "doomed"):
        plane.account("shop", account)
        run_world.service(plane, account)
    name = mesh_world.identity_of("shop", "doomed")
    with (
        run_world.server(plane, directory, *HEADERS, account="brief") as brief,
        run_world.server(plane, directory, account="doomed") as doomed,
        run_world.client(plane, directory, account="doomed") as caller,
        run_world.client(plane, directory) as client,
    ):
        for run in (brief, doomed, client, caller):
            run.ready()
        for account in ("brief", "doomed"):
            up_world.until(
                lambda account=account: reaches(client, f"http://{account}.shop.svc.cluster.local:8080/"), 40, account
            )
        assert _seen_by(caller) == name
        assert plane.call("DELETE", "/api/v1/namespaces/shop/serviceaccounts/doomed")[0] == 200
        first = {run: run.identity()["serial"] for run in (brief, client)}
        failed, answered = [], 0

        def all_happened() -> bool:
            nonlocal answered
            code, _, body = client.ask("http://brief.shop.svc.cluster.local:8080/")
            if code == 200:
                answered += 1
            else:
                failed.append((code, body))
            # The end is the last of it: until then, nobody else is asked.
            ended = all(run.identity()["state"] == "Expired" for run in (doomed, caller))
            return ended and all(run.identity()["serial"] not in {None, serial} for run, serial in first.items())

        up_world.until(all_happened, 120, "two renewals and an end")
        assert (failed, answered > 20) == ([], True)
        # At its end: its name is refused, plaintext goes on, and whoever watches is told.
        with pytest.raises(OSError):
            run_world.certificate_at(plane, doomed.ip, name)
        assert run_world.has(doomed.ip) == 200
        assert (doomed.admin("/live")[0], doomed.admin("/ready")[0], brief.admin("/live")[0]) == (503, 503, 200)
        up_world.until(lambda: not doomed.is_ready(), 20, "the status")
        assert client.ask("http://doomed.shop.svc.cluster.local:8080/")[0] in {502, 503, 504}
        # It calls others as before, and shows no certificate.
        assert _seen_by(caller) is None
        shown, _ = run_world.certificate_at(plane, brief.ip, mesh_world.identity_of("shop", "brief"))
        assert certificates.read(shown).serial not in first.values()


def _seen_by(caller: run_world.Run) -> str | None:
    """Who a server says that a caller is."""
    code, _, body = caller.ask("http://brief.shop.svc.cluster.local:8080/")
    assert code == 200, body
    headers = {name.lower(): value for name, value in json.loads(body)["headers"].items()}
    return headers.get("l5d-client-id")
