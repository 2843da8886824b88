# SPDX-License-Identifier: Apache-2.0
"""The root of a mesh is replaced under load, on real processes: `up --mesh`, two workloads by `mesh run`, and an operator who is killed at every write."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import signal
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest

from handfast.pki import certificates
from handfast.rules.mesh import issuer
from handfast.runtime import clock
from tests.scenarios import mesh_world, run_world, up_world, wire_capture
from tests.world import killed_commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

WEB = mesh_world.identity_of("shop", "web")
# Who reads the network may see neither what is asked for nor who asks.
SECRET = "a-secret-on-the-wire"
URL = f"http://web.shop.svc.cluster.local:8080/{SECRET}"
WORDS = tuple(
    word.encode() for word in (SECRET, "HTTP/1", "PRI *", "shop.svc", mesh_world.identity_of("shop", "client"))
)
CONTROL = "in-plaintext"
ROTATION = "/api/v1/namespaces/linkerd/secrets/linkerd-anchor-rotation"
_HANDSHAKE = 22
_TLS_1_3 = 0x0304
POLICY = {
    "apiVersion": "handfast.dev/v1alpha1",
    "kind": "MeshPolicy",
    "metadata": {"name": "web"},
    "spec": {"targets": {"serviceAccounts": ["web"]}, "clients": [{"serviceAccount": {"name": "client"}}]},
}


class World:
    """A mesh with a server that lets in one account alone, and its client."""

    def __init__(
        self,
        plane: mesh_world.Plane,
        web: run_world.Run,
        client: run_world.Run,
        zygote: killed_commands.Zygote,
    ) -> None:
        self.plane, self.web, self.client, self._zygote = plane, web, client, zygote
        # The root that the workloads began with.
        (self.first,) = self.roots

    def mesh(self, *words: object, kill_at: int = 0) -> killed_commands.Outcome:
        """`handfast mesh …`, by a process that needs no start."""
        return self._zygote.run(["mesh", *words, "--dir", self.plane.directory], kill_at)

    def anchors(self, *words: object, kill_at: int = 0) -> killed_commands.Outcome:
        return self.mesh("anchors", *words, kill_at=kill_at)

    def is_over(self) -> bool:
        """No rotation is under way."""
        return self.plane.call("GET", ROTATION)[0] == 404

    def rotate(self, *words: object) -> dict[str, Any]:
        """One call; its one step."""
        done = self.anchors("rotate", *words, "-o", "json")
        assert done.code == 0, done.stderr
        (step,) = json.loads(done.stdout)["steps"]
        return dict(step)

    def shown(self) -> dict[str, Any]:
        done = self.anchors("show", "-o", "json")
        assert done.code == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def until_next(self) -> None:
        """Until the next step waits for nobody."""
        self.until_waits([])

    def does(self, step: str) -> None:
        """Until the next step is done, which is this one: an agent that connects again may hold it up once more."""
        up_world.until(lambda: self.rotate()["did"] == step, 60, step)

    def until_waits(self, wanted: list[str]) -> None:
        """Until it waits for this, and nothing else."""
        with contextlib.suppress(AssertionError):
            up_world.until(lambda: self.waits() == wanted, 60)
        assert self.waits() == wanted

    def waits(self) -> list[str]:
        step = self.rotate("--dry-run")
        return [] if step["did"] is not None else [wait["what"] for wait in step["waitsFor"]]

    def killed_step(self, *words: object, last: bool = False) -> int:
        """One step, killed at its first moment, then at the second of what is left, until it comes to its end; how often it was killed."""
        for number in range(1, 30):
            done = self.anchors("rotate", *words, kill_at=number)
            if not done.killed:
                assert done.code == 0, done.stderr
                return number - 1
            if last and self.shown()["rotation"] is None:
                return number
        raise AssertionError(self.shown())

    def root_of(self, run: run_world.Run) -> str:
        """The root that the certificate leads to which a server shows."""
        der, _ = run_world.certificate_at(self.plane, run.ip, WEB)
        row = self.entry(certificates.read(der).fingerprint)
        return str(row["rule"]).partition(": issuer ")[2]

    def entry(self, fingerprint: str) -> dict[str, Any]:
        items = self.plane.call("GET", "/apis/handfast.dev/v1alpha1/issuancelogs")[1]["items"]
        lines = [line for item in items for line in item["spec"]["entries"]]
        rows = [json.loads(line.partition(" ")[2].partition(" ")[2]) for line in lines]
        return next(row for row in rows if row["certificate"] == fingerprint)

    @property
    def roots(self) -> list[str]:
        return [anchor.fingerprint for anchor in issuer.read_anchors(self.plane.anchors()).anchors]

    @contextlib.contextmanager
    def load(self) -> Iterator[list[int]]:
        """Requests, one after the other, until the block ends; each is answered, by one whom the policy lets in."""
        codes: list[int] = []
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                code, headers, _ = self.client.ask(URL)
                codes.append(code if code == 200 else code * 1000)
                if code != 200:
                    print(code, headers)
                stop.wait(0.05)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield codes
        finally:
            stop.set()
            thread.join(30)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("anchors")
    with run_world.plane(directory) as plane, killed_commands.Zygote() as zygote:
        plane.install("--set", "identity.lifetime=2m")
        run_world.service(plane)
        plane.post("/apis/handfast.dev/v1alpha1/namespaces/shop/meshpolicies", POLICY)
        with run_world.server(plane, directory) as web, run_world.client(plane, directory) as client:
            made = World(plane, web.ready(), client.ready(), zygote)
            up_world.until(lambda: client.ask(URL)[0] == 200, 30, "the first answer")
            up_world.until(lambda: run_world.has(web.ip) == 403, 30, "the policy")
            yield made


@pytest.fixture(autouse=True)
def _over(world: World) -> Iterator[None]:
    """A test that failed half-way leaves no rotation to the others."""
    yield
    if not world.is_over():
        world.anchors("rotate", "--undo")
    while not world.is_over():
        world.anchors("rotate", "--unsafe-skip-wait")


def test_a_whole_rotation_killed_at_every_write_fails_no_request(world):
    """Nor does an octet of a request come to the server that is not in TLS, as whoever reads the network has it."""
    (old,) = world.roots
    before = world.root_of(world.web)
    with wire_capture.Capture(world.web.ip) as capture:
        (new,) = {*is_rotated(world)} - {old}
        assert world.roots == [new]
        assert world.root_of(world.web) != before
        # Who comes in plaintext is refused after it, as before; and is seen to come.
        assert run_world.has(world.web.ip, f"/{CONTROL}") == 403
        assert (world.shown()["rotation"], world.is_over()) == (None, True)
        # The files of the start-up are as they were made, and what was learned is beside them.
        store = next(world.web.directory().rglob("trust-anchors.pem"))
        assert [each.fingerprint for each in issuer.read_anchors(store.read_bytes()).anchors] == [world.first]
        learned = store.with_name("learned-anchors.pem")
        assert [each.fingerprint for each in issuer.read_anchors(learned.read_bytes()).anchors] == [new]
        assert learned.stat().st_mode & 0o777 == 0o400
        start_again(world)
    nothing_is_in_plaintext(capture, world.web.ip)


def is_rotated(world: World) -> list[str]:
    """All of it, under load; the roots that there were in the middle."""
    with world.load() as codes:
        kills = world.killed_step()
        both = world.roots
        world.until_next()
        kills += world.killed_step()
        assert world.shown()["rotation"]["next"] == "retire"
        # Agents are told to renew, until nobody has a certificate of the old issuer.
        world.until_next()
        kills += world.killed_step(last=True)
        # Of three writes, of four and of three: before each, and after those that are not made again.
        assert kills == 11
        seen = len(codes)
        up_world.until(lambda: len(codes) > seen + 20, 30, "requests after it")
    assert {*codes} == {200}
    assert len(codes) > 50
    return both


def nothing_is_in_plaintext(capture: wire_capture.Capture, ip: str) -> None:
    """But for the request that was made so. What was open before is TLS, too; what was opened is TLS 1.3 from its first octet."""
    connections = capture.connections((ip, 8080))
    (control,) = (each for each in connections if CONTROL.encode() in each.sent)
    others = [each for each in connections if each is not control]
    assert not [word for each in others for word in WORDS if word in each.sent + each.answered]
    begun = [each for each in others if each.begun]
    assert {each.sent[0] for each in begun} == {_HANDSHAKE}
    # Who comes before there is a certificate again is answered nothing; who came after it was served.
    assert {wire_capture.chosen_version(each.answered) for each in begun if each.answered} == {_TLS_1_3}


def start_again(world: World) -> None:
    """Its variables have the first root alone, by which nobody is believed any more: it uses what it has learned."""
    serial = world.web.identity()["serial"]
    proxy = next(pid for pid in world.web.descendants() if b"proxy\0run" in _line(pid))
    os.kill(proxy, signal.SIGKILL)

    def again() -> bool:
        status, text = world.web.admin("/identity")
        return status == 200 and json.loads(text)["serial"] not in {None, serial}

    up_world.until(again, 60, world.web.text())
    up_world.until(lambda: world.client.ask(URL)[0] == 200, 30, "an answer")
    der, _ = run_world.certificate_at(world.plane, world.web.ip, WEB)
    assert certificates.read(der).sans.dns == (WEB,)


def _line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_the_way_back_from_each_step_fails_no_request(world):
    (first,) = world.roots
    signer = world.shown()["issuer"]["sha256"]
    with world.load() as codes:
        # Before the switch the new root is dropped.
        world.killed_step()
        assert world.killed_step("--undo", last=True) >= 3
        assert (world.roots, world.shown()["rotation"]) == ([first], None)
        # After it, the two change places.
        assert world.rotate()["did"] == "add"
        world.does("switch")
        up_world.until(lambda: world.root_of(world.web) != signer[:16], 60, "the new issuer's certificate")
        assert world.rotate("--undo")["did"] == "switch"
        world.does("retire")
    assert {*codes} == {200}
    shown = world.shown()
    assert (world.roots, shown["issuer"]["sha256"], shown["rotation"]) == ([first], signer, None)


def stock(world: World, name: str) -> None:
    """A Pod that is injected, and has no agent: as one with a stock proxy."""
    spec = {"serviceAccountName": "web", "containers": [{"name": "c", "image": "i"}]}
    meta = {"name": name, "annotations": {"linkerd.io/inject": "enabled"}}
    made = world.plane.post("/api/v1/namespaces/shop/pods", {"metadata": meta, "spec": spec})
    env = [row for each in made["spec"]["initContainers"] for row in each.get("env", ())]
    blob = next(row["value"] for row in env if row["name"].endswith("TRUST_ANCHORS_BLOB"))
    bundle = issuer.read_anchors(base64.b64decode(blob))
    assert {anchor.fingerprint for anchor in bundle.anchors} == {*world.roots}


def test_laggards_are_named_and_a_stock_proxy_is_started_again(world):
    stock(world, "stock-1")
    agent = next(pid for pid in world.client.descendants() if b"proxy\0run" in _line(pid))
    os.kill(agent, signal.SIGSTOP)
    try:
        assert world.rotate()["did"] == "add"
        name = f"shop/{world.client.name}"
        wanted = [
            f"the new root is not acknowledged by 1 agent: {name}",
            "the new root is not in the variables of 1 Pod without an agent; start again: shop/stock-1",
        ]
        world.until_waits(wanted)
        shown = world.shown()
        assert shown["withoutAgent"] == ["shop/stock-1"]
        (new,) = (root for root in shown["roots"] if not root["signs"])
        assert new["believedByAgents"] == [f"shop/{world.web.name}"]
    finally:
        os.kill(agent, signal.SIGCONT)
    world.until_waits(wanted[1:])
    # Skipped, and the last step holds it up all the same.
    assert world.rotate("--unsafe-skip-wait")["did"] == "switch"
    world.until_waits(wanted[1:])
    assert world.plane.call("DELETE", "/api/v1/namespaces/shop/pods/stock-1")[0] == 200
    stock(world, "stock-2")
    world.until_next()
    last = world.rotate()
    assert last["did"] == "retire"
    # It has both, and goes on believing the old one.
    assert last["actions"][-1].endswith("until they are started again: shop/stock-2")
    assert world.client.ask(URL)[0] == 200
    assert world.plane.call("DELETE", "/api/v1/namespaces/shop/pods/stock-2")[0] == 200


def test_mesh_install_in_the_middle_leaves_a_rotation_alone(world, tmp_path):
    secret = world.plane.call("GET", "/api/v1/namespaces/linkerd/secrets/linkerd-identity-signing")[1]["data"]
    paths = {"--trust-anchors": world.plane.anchors()}
    paths |= {"--issuer-cert": base64.b64decode(secret["tls.crt"]), "--issuer-key": base64.b64decode(secret["key.der"])}
    words: list[object] = []
    for number, (flag, data) in enumerate(paths.items()):
        place = tmp_path / str(number)
        place.write_bytes(data)
        words += [flag, place]
    assert world.rotate()["did"] == "add"
    both = world.roots
    assert world.mesh("install").code == 0
    for more in ((), ("--force",)):
        done = world.mesh("install", *words, *more)
        assert (done.code, "RotationUnderWay" in done.stderr) == (1, True), done.stderr
    assert world.roots == both
    # Nor does a second rotation begin, or an operator who is slower go on.
    done = world.anchors("rotate", *words)
    assert (done.code, "OtherRotation" in done.stderr) == (1, True), done.stderr
    assert world.rotate("--undo")["did"] == "drop"


@pytest.mark.parametrize("bad", ["two thousand", "not a CA", "another root", "same key"])
def test_what_is_new_is_judged_before_anything_is_written(world, tmp_path, bad):
    now = clock.SystemClock().now()
    new, other = issuer.generate(now), issuer.generate(now)
    secret = world.plane.call("GET", "/api/v1/namespaces/linkerd/secrets/linkerd-identity-signing")[1]["data"]
    rows = {
        "two thousand": ((new.anchors * 2000)[: 1 << 20], new.certificate, new.key, "BadTrustAnchor"),
        "not a CA": (run_leaf(world), new.certificate, new.key, "BadTrustAnchor"),
        "another root": (other.anchors, new.certificate, new.key, "IssuerNotTrusted"),
        "same key": (
            world.plane.anchors(),
            base64.b64decode(secret["tls.crt"]),
            base64.b64decode(secret["key.der"]),
            "IssuerInUse",
        ),
    }
    anchors, certificate, key, reason = rows[bad]
    words: list[object] = []
    for flag, data in (("--trust-anchors", anchors), ("--issuer-cert", certificate), ("--issuer-key", key)):
        place = tmp_path / flag.strip("-")
        place.write_bytes(data)
        words += [flag, place]
    before = world.roots
    done = world.anchors("rotate", *words)
    assert (done.code, f"reason: {reason}" in done.stderr) == (1, True), done.stderr
    assert (world.roots, world.is_over()) == (before, True)


def run_leaf(world: World) -> bytes:
    return run_world.certificate_at(world.plane, world.web.ip, WEB)[0]


def test_of_operators_at_once_each_does_the_step_or_is_refused(world):
    words = ("mesh", "anchors", "rotate", "--dir", world.plane.directory, "-o", "json")
    with futures.ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: up_world.run(*words), range(4)))
    for done in outcomes:
        assert done.returncode == 0 or "MeshChangedMeanwhile" in done.stderr, done.stderr
    # One root has come, whoever was first.
    assert len(world.roots) == 2
    assert world.shown()["rotation"]["undone"] is False
    world.until_next()
    assert world.rotate("--undo")["did"] == "drop"
    assert len(world.roots) == 1
