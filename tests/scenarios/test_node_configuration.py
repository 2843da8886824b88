# SPDX-License-Identifier: Apache-2.0
"""A machine follows its configuration: `handfast up`, an agent with --machine-config, and a server that answers real renderings.

Proves: it is applied below the root, reported on the Node and in the health; another rendering, a withdrawn one and a changed
credential are followed without a restart; what cannot be applied, and drift, are Degraded by name and heal by themselves; what a
person takes back stays taken back; and an agent without the flag says nothing of it.
"""

from __future__ import annotations

import json
import pathlib
import stat
from collections.abc import Iterator

import pytest

from handfast.rules.machine_config import host_paths
from tests.scenarios import configured_world, up_world
from tests.unit.rules.machine_config import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def server(plane: up_world.Up, tmp_path: pathlib.Path) -> Iterator[configured_world.Server]:
    issuer = configured_world.authority_of(plane)
    clients = (plane.directory / "pki" / "ca.crt").read_bytes()
    with configured_world.Server(tmp_path, issuer, clients).running() as running:
        yield running


def machine(plane: up_world.Up, directory: pathlib.Path, name: str) -> configured_world.Machine:
    made = configured_world.Machine(plane, directory, name)
    made.joined()
    return made


def motd(text: str, **more: object) -> dict[str, object]:
    return serving.rendered(files=[serving.file("/etc/motd", text)], **more)  # type: ignore[arg-type]


def test_a_rendering_is_applied_reported_and_followed_by_the_next(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = machine(plane, tmp_path, "follower")
    first = server.serve(
        serving.rendered(
            files=[serving.file("/etc/motd", "one"), serving.file("/etc/only-first", "x")],
            units=[{"name": "a.service", "contents": "[Install]\nWantedBy=multi-user.target\n", "enabled": True}],
        )
    )
    with worker.agent(*worker.following(server)) as agent:
        up_world.until(lambda: worker.annotations().get("configuration-agent") == "v1", what="an agent that follows")
        assert "state" not in worker.annotations()
        worker.want(first)
        said = worker.until("Done", first)
        assert said["reason"] == ""
        assert (worker.root / "etc/motd").read_text() == "one"
        assert (worker.root / "etc/systemd/system/multi-user.target.wants/a.service").is_symlink()
        kubeconfig = worker.root / host_paths.KUBECONFIG[1:]
        assert kubeconfig.read_bytes() == serving.KUBECONFIG
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        # With the node's own certificate.
        assert set(server.callers) == {"system:node:follower"}
        assert server.headers[0]["accept"].startswith("application/vnd.coreos.ignition+json;version=3.5.0")
        agent.until_well()

        second = server.serve(motd("two"))
        worker.want(second)
        worker.until("Done", second)
        assert (worker.root / "etc/motd").read_text() == "two"
        assert not (worker.root / "etc/only-first").exists()
        assert not (worker.root / "etc/systemd/system/multi-user.target.wants/a.service").is_symlink()
        code, text, _ = agent.ask("/metrics")
        assert code in {200, 401, 403}
        assert serving.KUBECONFIG.decode().splitlines()[-1] not in agent.text() + text
    shown = up_world.run("node", "configuration", "status", "--root", worker.root, "-o", "json")
    facts = json.loads(shown.stdout)
    assert (shown.returncode, facts["rendering"], facts["state"], facts["drift"]) == (0, second, "Done", [])
    assert facts["restorable"]["rendering"] == first


def test_a_changed_credential_lies_there_and_counts_at_the_next_bootstrap(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = machine(plane, tmp_path, "recredited")
    old, new = b"kubeconfig: old\n", b"kubeconfig: new\n"
    with worker.agent(*worker.following(server)):
        first = server.serve(motd("x", kubeconfig=old), old)
        up_world.until(lambda: worker.node() is not None)
        worker.want(first)
        worker.until("Done", first)
        # Whatever certificate the node has at that time is shown.
        rotated = up_world.run("node", "rotate", *worker.places)
        assert rotated.returncode == 0, rotated.stderr
        second = server.serve(motd("x", kubeconfig=new), new)
        assert second != first
        worker.want(second)
        worker.until("Done", second)
        assert (worker.root / host_paths.KUBECONFIG[1:]).read_bytes() == new
        assert server.serials[-1] != server.serials[0]


def test_what_cannot_be_applied_is_degraded_by_name_and_heals_when_it_is_withdrawn(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = machine(plane, tmp_path, "withdrawn")
    with worker.agent(*worker.following(server)) as agent:
        up_world.until(lambda: worker.node() is not None)
        good = server.serve(motd("good"))
        worker.want(good)
        worker.until("Done", good)

        bad = server.serve(motd("bad", osImageURL="quay.example/os"))
        worker.want(bad)
        said = worker.until("Degraded", good, "osImageURL")
        assert "nothing of this rendering was written" in said["reason"]
        assert len(said["reason"].encode()) <= 1024
        assert (worker.root / "etc/motd").read_text() == "good"
        up_world.until(lambda: "configuration" in agent.report().get("problems", {}), what="a failing check")

        worse = server.serve(motd("worse", config={"passwd": {"users": [{"name": "core"}]}}))
        worker.want(worse)
        worker.until("Unreconcilable", good, "passwd.users")

        # It goes back, and nobody restarts anything.
        server.serve(motd("good"))
        worker.want(good)
        worker.until("Done", good)
        agent.until_well()


def test_drift_is_named_not_overwritten_and_healed_when_it_is_put_right(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = machine(plane, tmp_path, "drifting")
    path = worker.root / "etc/motd"
    with worker.agent(*worker.following(server)) as agent:
        up_world.until(lambda: worker.node() is not None)
        first = server.serve(motd("right"))
        worker.want(first)
        worker.until("Done", first)
        path.write_text("wrong")
        worker.poke()
        worker.until("Degraded", first, "Drift: not as the configuration left it: /etc/motd has other contents")
        assert path.read_text() == "wrong"
        path.write_text("right")
        worker.until("Done", first)
        agent.until_well()

        path.unlink()
        worker.poke()
        worker.until("Degraded", first, "/etc/motd is gone")
        second = server.serve(motd("over it"))
        worker.want(second)
        worker.until("Done", second)
        assert path.read_text() == "over it"

    # At the start, too.
    path.chmod(0o666)
    with worker.agent(*worker.following(server)):
        worker.until("Degraded", second, "has the mode 0666, not 0644")


def test_what_a_person_takes_back_stays_taken_back(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = machine(plane, tmp_path, "restored")
    with worker.agent(*worker.following(server)):
        up_world.until(lambda: worker.node() is not None)
        first = server.serve(motd("one"))
        worker.want(first)
        worker.until("Done", first)
        second = server.serve(motd("two"))
        worker.want(second)
        worker.until("Done", second)
        done = up_world.run("node", "configuration", "restore", "--root", worker.root)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{second} was taken back; this machine is as it was with {first}\n")
        assert (worker.root / "etc/motd").read_text() == "one"
        worker.poke()
        worker.until("Degraded", first, "RestoredByHand")
        shown = up_world.run("node", "configuration", "status", "--root", worker.root)
        assert (shown.returncode, f"held off    {second}" in shown.stdout) == (1, True)
        undone = up_world.run("node", "configuration", "restore", "--undo", "--root", worker.root)
        assert undone.stdout == f"{second} may be applied again\n"
        worker.poke()
        worker.until("Done", second)
        assert (worker.root / "etc/motd").read_text() == "two"


def test_a_server_that_is_not_ready_is_asked_again_and_one_that_refuses_is_told(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = machine(plane, tmp_path, "refused")
    document = motd("late")
    name = document["metadata"]["name"]  # type: ignore[index]
    server.fail(503, Retry_After="1", Handfast_Reason="CredentialChanging")
    with worker.agent(*worker.following(server)) as agent:
        up_world.until(lambda: worker.node() is not None)
        worker.want(name)
        up_world.until(lambda: len(server.callers) >= 2, what="a second attempt")
        assert "state" not in worker.annotations()
        problems = agent.report()["problems"]
        assert "CredentialChanging" in problems["configuration"]
        server.fail(403, Handfast_Reason="OtherPool")
        said = worker.until("Degraded", None, "OtherPool")
        assert "this machine may not have that configuration" in said["reason"]
        server.serve(document)
        worker.until("Done", name)


def test_an_answer_that_is_not_the_wanted_one_is_not_applied(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = machine(plane, tmp_path, "mistaken")
    good = motd("good")
    name = good["metadata"]["name"]  # type: ignore[index]
    server.serve(good, b"another kubeconfig")
    with worker.agent(*worker.following(server)) as agent:
        up_world.until(lambda: worker.node() is not None)
        worker.want(name)
        worker.until("Degraded", None, "OtherCredential")
        server.serve(motd("an older one"))
        worker.want("rendered-worker-nonsense")
        worker.until("Degraded", None, "is no name of a rendering")
        worker.want(name)
        up_world.until(lambda: "OtherRendering" in agent.text(), what="another rendering")
        assert list(worker.root.glob("etc/*")) == []
        server.serve(good)
        worker.until("Done", name)


def test_a_server_of_another_ca_is_refused_with_both_names(plane: up_world.Up, tmp_path: pathlib.Path) -> None:
    worker = machine(plane, tmp_path, "misled")
    issuer = configured_world.other_authority("somebody else's CA")
    clients = (plane.directory / "pki" / "ca.crt").read_bytes()
    name = motd("x")["metadata"]["name"]  # type: ignore[index]
    with configured_world.Server(tmp_path, issuer, clients).running() as false:
        false.serve(motd("x"))
        with worker.agent(*worker.following(false)):
            up_world.until(lambda: worker.node() is not None)
            worker.want(name)
            said = worker.until("Degraded", None, "OtherCA")
        assert "presents a certificate of another CA, CN=somebody else's CA" in said["reason"]
        assert "the kubeconfig trusts" in said["reason"]
        assert "sha256:" in said["reason"]
        assert false.callers == []


def test_an_agent_without_the_flag_says_and_does_nothing_of_it(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = machine(plane, tmp_path, "plain")
    name = server.serve(motd("x"))
    with worker.agent("--rotate-certificates") as agent:
        agent.until_well()
        worker.want(name)
        assert set(worker.annotations()) == {"desiredConfig"}
        assert server.callers == []
        assert list(worker.root.iterdir()) == []


def test_a_machine_that_came_by_fetch_is_followed_from_where_it_is(
    plane: up_world.Up, server: configured_world.Server, tmp_path: pathlib.Path
) -> None:
    worker = configured_world.Machine(plane, tmp_path, "fetched")
    ca = (plane.directory / "pki" / "ca.crt").read_bytes()
    name = server.serve(motd("first boot"))
    done = up_world.run(
        *(
            "node",
            "configuration",
            "fetch",
            "--pointer",
            worker.pointer(server, ca),
            "--root",
            worker.root,
            "-o",
            "json",
        )
    )
    assert (done.returncode, json.loads(done.stdout)["rendering"]) == (0, name), done.stderr
    assert server.headers[-1]["authorization"] == "Bearer s3cret"
    assert "s3cret" not in done.stdout + done.stderr
    assert (worker.root / "etc/motd").read_text() == "first boot"
    again = up_world.run(
        "node", "configuration", "fetch", "--pointer", worker.pointer(server, ca), "--root", worker.root
    )
    assert (again.returncode, "has a configuration already" in again.stderr) == (1, True)
    worker.joined()
    with worker.agent(*worker.following(server)):
        worker.until("Done", name)
